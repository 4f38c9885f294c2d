"""A thousand altered downloads: none is loaded, each refusal says why in one line, none leaves a trace."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from recorded import MANIFESTS, OLD_HEAD, Replay, Reply, install, record, with_body
from small_libraries import draw, error, expected, packed_arguments
from wire_signing import canonical, envelope, rotation, signature

import dietcode
from dietcode.client import Client
from dietcode.errors import DietCodeError
from dietcode.runtime.manifest import read_manifest
from dietcode.trust.pins import Pins

MANIFEST, SIGNATURE, KEYS = "/libraries/dense/2", "/libraries/dense/2/signature", "/keys"
OLD, OLD_SIGNATURE = "/libraries/dense/1", "/libraries/dense/1/signature"
ATTACKER = Ed25519PrivateKey.from_private_bytes(b"a" * 32)
Changes = dict[str, Reply]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reply]:
    return record(tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reply]:
    """The same libraries on a server with another key."""
    return record(tmp_path_factory.mktemp("other"))


@pytest.fixture
def replay(good: dict[str, Reply], monkeypatch: pytest.MonkeyPatch) -> Replay:
    """In the place of the network."""
    made = Replay(good)
    install(monkeypatch, made)
    return made


@pytest.fixture
def cache(replay: Replay, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """After a first pull, by which the key was trusted: a cache that lacks everything but the runtime."""
    pull("dense")
    runtime = next(path for path in (own_cache / "blobs").iterdir() if path.stat().st_size > 1 << 17)
    root = tmp_path / "cache"
    (root / "blobs").mkdir(parents=True)
    os.link(runtime, root / "blobs" / runtime.name)
    monkeypatch.setenv("DIETCODE_CACHE", str(root))
    return root


def pull(ref: str) -> Path:
    with Client() as client:
        return client.pull(ref)


def altered(rng: random.Random, data: bytes) -> bytes:
    """One byte changed, somewhere."""
    offset = rng.randrange(len(data))
    return data[:offset] + bytes([data[offset] ^ rng.randrange(1, 256)]) + data[offset + 1 :]


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def grown(rng: random.Random, data: bytes) -> bytes:
    extra = rng.choice([b" ", b"\n", b"\0", b"x" * 1000, data])
    return data + extra if rng.random() < 0.5 else extra + data


BYTES: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "altered": altered,
    "truncated": cut,
    "oversized": grown,
}


def edited(good: dict[str, Reply], change: Callable[[dict[str, Any]], Any]) -> Changes:
    """The envelope with a change that keeps it canonical."""
    plain = json.loads(good[SIGNATURE].body)
    change(plain)
    return {SIGNATURE: with_body(good[SIGNATURE], canonical(plain))}


def manifest_bytes(rng: random.Random, good: dict[str, Reply], other: dict[str, Reply]) -> Changes:
    how = BYTES[rng.choice(sorted(BYTES))]
    body = how(rng, good[MANIFEST].body)
    return {path: with_body(good[path], body) for path in (MANIFEST, "/libraries/dense/latest")}


def signature_bytes(rng: random.Random, good: dict[str, Reply], other: dict[str, Reply]) -> Changes:
    how = BYTES[rng.choices(["altered", "truncated", "oversized"], [8, 2, 1])[0]]
    return {SIGNATURE: with_body(good[SIGNATURE], how(rng, good[SIGNATURE].body))}


def replayed(rng: random.Random, good: dict[str, Reply], other: dict[str, Reply]) -> Changes:
    """The older version in the place of the newer one, with any mix of headers and signatures."""
    old = good[OLD]
    told = {path: Reply(old.body, version=rng.choice("12")) for path in (MANIFEST, "/libraries/dense/latest")}
    signed = good[rng.choice([OLD_SIGNATURE, SIGNATURE])]
    kept = rng.choice([{}, {SIGNATURE: signed}, {SIGNATURE: signed, OLD_SIGNATURE: good[OLD_SIGNATURE]}])
    only = {SIGNATURE: good[OLD_SIGNATURE]}  # the newer manifest with the older signature
    head = {"/libraries/dense/head": good[OLD_HEAD]}  # and what was said of it before there was a newer one
    return rng.choice([told | kept, told | kept | head, only])


def another_name(rng: random.Random, good: dict[str, Reply], other: dict[str, Reply]) -> Changes:
    rows, signed = good["/libraries/rows/1"], good["/libraries/rows/1/signature"]
    told = {path: Reply(rows.body, version="2") for path in (MANIFEST, "/libraries/dense/latest")}
    return rng.choice([told, told | {SIGNATURE: signed}, {SIGNATURE: signed}])


def another_server(rng: random.Random, good: dict[str, Reply], other: dict[str, Reply]) -> Changes:
    """Right in itself, but by a key that was never trusted here."""
    everything = dict(other)
    parts = [SIGNATURE, MANIFEST, "/libraries/dense/latest", KEYS]
    return rng.choice(
        [
            everything,
            {path: other[path] for path in parts},
            {SIGNATURE: other[SIGNATURE]},
            {SIGNATURE: other[SIGNATURE], KEYS: forged_keys(good, other, rng)},
        ]
    )


def forged_keys(good: dict[str, Reply], other: dict[str, Reply], rng: random.Random) -> Reply:
    """A list of keys that leads from the trusted one to the attacker's without its consent."""
    mine, theirs = json.loads(good[KEYS].body), json.loads(other[KEYS].body)
    listed = mine | {"keys": mine["keys"] + theirs["keys"], "current": theirs["current"]}
    wrong = mine["keys"][0] | {"public_key": theirs["keys"][0]["public_key"]}
    link = rotation(ATTACKER, Ed25519PrivateKey.from_private_bytes(b"n" * 32))
    link["signatures"][0]["keyid"] = mine["current"]
    forms: list[dict[str, Any]] = [
        listed,
        theirs | {"keys": [wrong, *theirs["keys"]]},
        listed | {"rotations": [link]},
        listed | {"rotations": [link, link]},
        listed | {"rotations": [json.loads(good[SIGNATURE].body)]},
        listed | {"rotations": [{"signatures": []}]},
    ]
    return with_body(good[KEYS], json.dumps(rng.choice(forms)).encode())


def number_of_signatures(rng: random.Random, good: dict[str, Reply], other: dict[str, Reply]) -> Changes:
    theirs = json.loads(other[SIGNATURE].body)["signatures"]
    lists: list[Callable[[list[Any]], Any]] = [
        lambda mine: [],
        lambda mine: mine * 2,
        lambda mine: mine + theirs,
        lambda mine: theirs + mine,
        lambda mine: None,
        lambda mine: mine[0],
        lambda mine: [None],
        lambda mine: [{}],
        lambda mine: [{"keyid": mine[0]["keyid"]}],
        lambda mine: [{"sig": mine[0]["sig"]}],
        lambda mine: [mine[0] | {"cert": "x"}],
    ]
    form = rng.choice(lists)
    missing = Reply(b'{"title": "no", "status": 404, "detail": "no such thing"}', 404)
    empty = with_body(good[SIGNATURE], rng.choice([b"", b"{}", b"null", b"[]", b'""', b"0"]))
    changed = edited(good, lambda plain: plain.update(signatures=form(plain["signatures"])))
    return rng.choice([{SIGNATURE: missing}, {SIGNATURE: empty}, changed, changed])


def payload_type(rng: random.Random, good: dict[str, Reply], other: dict[str, Reply]) -> Changes:
    kinds = ["", "text/plain", "application/vnd.in-toto+json", "application/vnd.dietcode.key-rotation+json"]
    kinds += ["application/vnd.dietcode.manifest+json ", "Application/vnd.dietcode.manifest+json", "\u2028"]
    kind: Any = rng.choice([*kinds, None, 7, ["application/vnd.dietcode.manifest+json"]])
    return edited(good, lambda plain: plain.update(payloadType=kind))


def keyid(rng: random.Random, good: dict[str, Reply], other: dict[str, Reply]) -> Changes:
    """The attacker's signature under the trusted name, the trusted one under other names."""
    trusted = json.loads(good[KEYS].body)["current"]
    name, version = rng.choice([("dense", 2), ("dense", 1), ("rows", 1)])
    forged = json.loads(signature(ATTACKER, name, version, good[MANIFEST].body))
    forged["signatures"][0]["keyid"] = trusted
    if rng.random() < 0.4:
        return {SIGNATURE: with_body(good[SIGNATURE], canonical(forged))}
    names: list[Any] = ["", trusted.upper(), trusted[7:], f" {trusted}", trusted[:-1], "sha256:" + "0" * 64]
    names += [None, 0, [trusted], json.loads(other[KEYS].body)["current"], "../../etc/passwd", "\n"]
    wanted = rng.choice(names)
    changed = edited(good, lambda plain: plain["signatures"][0].update(keyid=wanted))
    return changed | ({KEYS: forged_keys(good, other, rng)} if rng.random() < 0.5 else {})


def forged_payload(rng: random.Random, good: dict[str, Reply], other: dict[str, Reply]) -> Changes:
    """Another statement under the right signature, or the right statement under the attacker's."""
    mine = json.loads(good[SIGNATURE].body)
    statement = json.loads(base64.b64decode(mine["payload"]))
    facts = {"sha256": "sha256:" + "0" * 64, "bytes": rng.randrange(1 << 20)}
    changes: list[dict[str, Any]] = [
        {"version": rng.randrange(3, 1000)},
        {"name": "rows"},
        {"manifest": facts},
        {"revoked": ["sha256:" + "0" * 64]},
        {"issued_at": "2036-01-01T00:00:00Z"},
        {"type": "dietcode-key-rotation/1"},
    ]
    payload = canonical(statement | rng.choice(changes))
    forged = mine | {"payload": base64.b64encode(payload).decode()}
    theirs = envelope(ATTACKER, mine["payloadType"], base64.b64decode(mine["payload"]))
    stolen = mine | {"signatures": [mine["signatures"][0] | {"sig": theirs["signatures"][0]["sig"]}]}
    made = rng.choice([forged, forged, theirs, stolen])
    return {SIGNATURE: with_body(good[SIGNATURE], canonical(made))}


Make = Callable[[random.Random, dict[str, Reply], dict[str, Reply]], Changes]
# How many, how they are made, and what the refusal says.
KINDS: dict[str, tuple[int, Make, str]] = {
    "the manifest's bytes": (150, manifest_bytes, "the manifest has .* signed are"),
    "the signature's bytes": (
        250,
        signature_bytes,
        "signature|signed payload|is pinned and names no successor",
    ),
    "an older version again": (
        60,
        replayed,
        "signed are|the signature is that of|for the latest|given version",
    ),
    "another name's": (40, another_name, "signed are|the signature is that of rows@1"),
    "another server's": (80, another_server, "is pinned and names no successor|rotation of its key|two keys"),
    "dropped or doubled signatures": (60, number_of_signatures, "signature"),
    "another payload type": (30, payload_type, "payload of type"),
    "another key's name": (
        70,
        keyid,
        "not that of the key|names the key|is pinned and names no successor|rotation of its key|two keys",
    ),
    "another payload": (50, forged_payload, "not that of the key|is pinned and names no successor"),
}
NUM_FILES = 210


def test_there_are_a_thousand() -> None:
    assert sum(number for number, _, _ in KINDS.values()) + NUM_FILES == 1000


def _never(*_: Any) -> None:
    raise AssertionError("code of a library that was not verified reached the loader")


def refused(ref: str, command: Callable[..., Any], trial: int) -> str:
    """Pulling, from Python or by the command, must end in one line before anything is loaded; returns it."""
    if trial % 10 == 9:
        done = command("pull", ref, "--no-lock")
        assert done.returncode in {1, 2} and done.stdout == "", done
        assert done.stderr.startswith("dietcode: ") and done.stderr.endswith("\n")
        text = done.stderr.removeprefix("dietcode: ")[:-1]
    else:
        with pytest.raises(DietCodeError) as caught, pytest.MonkeyPatch.context() as patch:
            patch.setattr("dietcode.runtime.loading.load_content", _never)
            dietcode.pull(ref)
        text = str(caught.value)
    assert text and "\n" not in text and text.isprintable() and len(text) < 600, text
    return text


def well(folder: Path) -> None:
    """A library that was pulled is whole, and runs."""
    arrays = draw("dense", T=5)
    library = dietcode.load(folder, num_threads=2)
    assert error(library(**packed_arguments(library, arrays)), expected("dense", arrays)) < 1e-5


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_said_of_a_library(
    kind: str,
    replay: Replay,
    cache: Path,
    good: dict[str, Reply],
    other: dict[str, Reply],
    command: Callable[..., Any],
) -> None:
    number, make, why = KINDS[kind]
    rng = random.Random(kind)
    trusted = Pins().path.read_bytes()
    blobs = set((cache / "blobs").iterdir())
    before = len(replay.asked)
    for trial in range(number):
        changes = make(rng, good, other)
        with replay.altering(lambda path, reply, changes=changes: changes.get(path, reply)):
            text = refused("dense@2" if trial % 2 else "dense", command, trial)
        assert re.search(why, text), text
        assert Pins().path.read_bytes() == trusted, "a refused answer changed what is trusted"
        assert not (cache / "libraries").exists() and not (cache / "servers").exists()
        assert set((cache / "blobs").iterdir()) == blobs
    assert not any("/blobs/" in path for path in replay.asked[before:]), (
        "nothing is fetched before it is verified"
    )
    well(pull("dense"))


def test_what_a_library_consists_of(
    replay: Replay, cache: Path, good: dict[str, Reply], command: Any
) -> None:
    """Each file altered, cut, lengthened or swapped; the right one arrives afterwards, in the same cache."""
    rng = random.Random("files")
    manifest = json.loads(good[MANIFEST].body)
    paths = [f"/blobs/{facts['sha256']}" for facts in manifest["files"].values()]
    runtime = f"/blobs/{manifest['runtime']['sha256']}"
    for trial in range(NUM_FILES):
        path = runtime if trial % 70 == 0 else rng.choice(paths)
        swapped = with_body(good[path], good[rng.choice([other for other in paths if other != path])].body)
        wrong = rng.choice(
            [swapped, *(with_body(good[path], how(rng, good[path].body)) for how in BYTES.values())]
        )
        kept = cache / "blobs" / path.removeprefix("/blobs/").replace(":", "-")
        kept.unlink(missing_ok=True)
        forget(cache)
        with replay.altering(lambda asked, reply, path=path, wrong=wrong: wrong if asked == path else reply):
            refused("dense@2" if trial % 2 else "dense", command, trial)
        assert not kept.exists() and not list(cache.glob("libraries/*/dense"))
        if trial % 10 == 0:
            read_manifest(pull("dense@2"))
    well(pull("dense"))


@pytest.mark.parametrize("kind", ["the manifest's bytes", "the signature's bytes", "another key's name"])
def test_a_first_use_pins_nothing_that_is_wrong(
    kind: str, replay: Replay, good: dict[str, Reply], other: dict[str, Reply], command: Callable[..., Any]
) -> None:
    rng = random.Random(kind)
    for trial in range(30):
        changes = KINDS[kind][1](rng, good, other)
        changes.pop(KEYS, None)  # whoever alters all that a first answer says can have their own key trusted
        with replay.altering(lambda path, reply, changes=changes: changes.get(path, reply)):
            refused("dense", command, trial)
        assert not Pins().path.exists()
    with replay.altering(lambda path, reply: (other if path == SIGNATURE else good).get(path, reply)):
        assert "shows another as its own" in refused("dense", command, 0)
    well(pull("dense"))


def forget(cache: Path) -> None:
    """Remove what was put together, but not the blobs."""
    shutil.rmtree(cache / "libraries", ignore_errors=True)


def test_the_manifests_are_those_of_the_paths(good: dict[str, Reply]) -> None:
    assert {path for path in good if MANIFESTS.fullmatch(path)} >= {MANIFEST, OLD}
