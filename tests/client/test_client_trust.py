"""Whose libraries are loaded: trust on first use, ``dietcode trust``, rotation, revocation, lock files."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from small_libraries import as_served, library_bytes
from wire_server import Fault, WireServer
from wire_signing import digest, head, public_der, signature

import dietcode
from dietcode.cli.reselect import reselect
from dietcode.client import Client
from dietcode.errors import DietCodeError, LibraryError
from dietcode.trust.pins import Pins

Command = Callable[..., Any]
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)


@pytest.fixture
def fresh(wire: WireServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WireServer]:
    """A server that nobody trusts yet; the current folder is a project of its own."""
    files = library_bytes("dense")
    wire.publish("dense", 1, files)
    wire.publish("dense", 2, {**files, "manifest.json": files["manifest.json"] + b"\n"})
    Pins().path.unlink()
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    yield wire


def another_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str = "second") -> None:
    """Neither cache nor pins."""
    monkeypatch.setenv("DIETCODE_CACHE", str(tmp_path / name / "cache"))
    monkeypatch.setenv("DIETCODE_TRUST", str(tmp_path / name / "trust"))


def failed(done: Any, status: int, *words: str) -> None:
    assert done.returncode == status, done
    assert done.stderr.startswith("dietcode: ") and done.stderr.count("\n") == 1, done.stderr
    assert all(word in done.stderr for word in words) and done.stdout == "", done


def pinned(wire: WireServer) -> list[tuple[str, str, str]]:
    pins = Pins().read().servers[wire.url]
    return [(pin.fingerprint, pin.state, pin.how) for pin in pins.keys]


def test_a_key_is_told_and_pinned_on_first_use(fresh: WireServer, command: Command) -> None:
    done = command("pull", "dense@1")
    first, second = done.stderr.splitlines()
    assert first.startswith(f"dietcode: {fresh.url}: trusted from now on with the key {fresh.fingerprint}")
    assert second.startswith("dietcode: dense@1")
    assert pinned(fresh) == [(fresh.fingerprint, "current", "first use")]
    assert "trusted" not in command("pull", "dense@2").stderr
    assert len(fresh.asked("/keys")) == 1


def test_the_fingerprint_is_that_of_openssl(fresh: WireServer) -> None:
    dietcode.pull("dense@1")
    assert pinned(fresh)[0][0] == digest(public_der(fresh.key))
    assert (Pins().read().servers[fresh.url].keys[0].public_key or "").split() == fresh.public_pem.split()


def test_python_says_it_on_stderr(fresh: WireServer, capsys: pytest.CaptureFixture[str]) -> None:
    dietcode.pull("dense@1")
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and fresh.fingerprint in err


def test_a_changed_key_is_refused(fresh: WireServer, command: Command) -> None:
    command("pull", "dense@1")
    before = Pins().path.read_bytes()
    old, fresh.key = fresh.fingerprint, Ed25519PrivateKey.from_private_bytes(b"n" * 32)
    new = fresh.fingerprint
    failed(command("pull", "dense"), 1, old, new, f"`dietcode trust {fresh.url} --key {new}`")
    assert Pins().path.read_bytes() == before
    assert command("pull", "dense@1").returncode == 0  # from the cache, by the key that was trusted
    assert command("trust", fresh.url, "--key", new).returncode == 0
    assert command("pull", "dense").returncode == 1  # the lock file names the older key
    Path("dietcode.lock").unlink()
    assert command("pull", "dense").returncode == 0
    assert pinned(fresh) == [(new, "current", "given")]


def test_trust_by_fingerprint_and_by_file(fresh: WireServer, command: Command, tmp_path: Path) -> None:
    wrong = "sha256:" + "0" * 64
    assert command("trust", fresh.url + "/", "--key", wrong).returncode == 0
    failed(command("pull", "dense"), 1, wrong)
    listed = command("trust", fresh.url, "--key", fresh.fingerprint).stdout
    assert listed.startswith(f"{fresh.url}  {fresh.fingerprint}  current, given")
    assert command("pull", "dense").stderr.count("\n") == 1  # nothing is trusted on first use
    (tmp_path / "key.pem").write_text(fresh.public_pem)
    assert command("trust", fresh.url, "--key", tmp_path / "key.pem").returncode == 0
    assert pinned(fresh) == [(fresh.fingerprint, "current", "given")]
    shown = json.loads(command("trust", "--json").stdout)
    assert shown["servers"][fresh.url]["keys"][0]["fingerprint"] == fresh.fingerprint
    assert command("trust", fresh.url, "--remove").returncode == 0
    assert fresh.url not in Pins().read().servers
    assert "no keys are pinned" in command("trust").stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--key", "sha256:" + "0" * 64], "need a SERVER"),
        (["--remove"], "need a SERVER"),
        (["ftp://x", "--remove"], "allowed: http"),
        (["http://nowhere.example", "--remove"], "no key of http://nowhere.example is pinned"),
        (["http://x", "--key", "sha256:12"], "allowed: sha256:<64 hex digits>"),
        (["http://x", "--key", "nowhere.pem"], "No such file"),
        (["http://x", "--key", "empty.pem"], "no ed25519 public key"),
        (["http://x", "--key", "rsa.pem"], "no ed25519 public key"),
        (["http://x", "--key", "x", "--remove"], "give one of them"),
    ],
)
def test_what_trust_refuses(fresh: WireServer, command: Command, arguments: list[str], words: str) -> None:
    Path("empty.pem").write_text("")
    Path("rsa.pem").write_text("-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEB\n-----END PUBLIC KEY-----\n")
    failed(command("trust", *arguments), 2, words)
    assert not Pins().path.exists()


def test_rotations_are_followed(fresh: WireServer, command: Command) -> None:
    command("pull", "dense@1", "--no-lock")
    first = fresh.fingerprint
    for seed in (b"b", b"c", b"d"):
        fresh.rotate(seed)
    done = command("pull", "dense", "--no-lock")
    assert done.returncode == 0 and f"its key is now {fresh.fingerprint}" in done.stderr.splitlines()[0]
    assert [state for _, state, _ in pinned(fresh)] == ["earlier", "earlier", "earlier", "current"]
    assert pinned(fresh)[0] == (first, "earlier", "first use")
    dietcode.load(Client().pull("dense@1"))  # what the earlier key signed, from the cache


def test_an_earlier_key_signs_nothing_new(fresh: WireServer, command: Command) -> None:
    command("pull", "dense@1", "--no-lock")
    old = fresh.key
    fresh.rotate(b"b")
    command("pull", "dense@2", "--no-lock")
    fresh.key = old
    fresh.publish("dense", 3, library_bytes("dense"))
    failed(command("pull", "dense@3", "--no-lock"), 1, "an earlier one of")


@pytest.mark.parametrize("how", ["altered", "by another", "twice", "in a circle"])
def test_a_rotation_that_is_wrong_leads_nowhere(fresh: WireServer, command: Command, how: str) -> None:
    command("pull", "dense@1", "--no-lock")
    before = Pins().path.read_bytes()
    old = fresh.fingerprint
    fresh.rotate(b"b")
    (link,) = fresh.rotations
    if how == "altered":
        link["payload"] = link["payload"].replace("A", "B", 1)
    elif how == "by another":
        fresh.rotate(b"c")
        fresh.rotations = fresh.rotations[1:]
        fresh.rotations[0]["signatures"][0]["keyid"] = old
    elif how == "twice":
        fresh.rotations *= 2
    else:
        fresh.rotate(b"c")
        fresh.key = Ed25519PrivateKey.from_private_bytes(b"d" * 32)
        fresh.rotations[1] = {**fresh.rotations[1]}
    failed(command("pull", "dense", "--no-lock"), 1, "")
    assert Pins().path.read_bytes() == before


def test_a_revoked_key_loads_nothing(fresh: WireServer, command: Command) -> None:
    assert command("pull", "dense@1", "-o", "mine", "--no-lock").returncode == 0
    revoked = fresh.fingerprint
    fresh.rotate(b"b")
    command("pull", "dense@2", "--no-lock")
    dietcode.load("mine")
    fresh.revoked = [revoked]
    command("pull", "dense", "--no-lock")
    with pytest.raises(LibraryError, match=r"which its server has revoked; pull it again"):
        dietcode.load("mine")
    assert command("pull", "dense@1", "-o", "mine", "--no-lock").returncode == 0
    dietcode.load("mine")


def test_the_latest_does_not_go_back(fresh: WireServer, command: Command) -> None:
    """What the server signed before it had a second version is not taken after that was seen."""
    command("pull", "dense@2", "--no-lock")
    newest = fresh.manifests.pop(("dense", 2))
    fresh.sequences["dense"] = 1
    failed(
        command("pull", "dense", "--no-lock"), 1, "gives dense@1 for the latest, state 1", "state 2 was seen"
    )
    assert command("pull", "dense@1", "--no-lock").returncode == 0
    fresh.manifests["dense", 2], fresh.sequences["dense"] = newest, 2
    assert command("pull", "dense", "--no-lock").returncode == 0


def test_a_lock_file_knows_the_newest_version_too(
    fresh: WireServer, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("pull", "dense")
    del fresh.manifests["dense", 2]
    fresh.sequences["dense"] = 1
    another_machine(monkeypatch, tmp_path)
    failed(command("pull", "dense"), 1, "gives dense@1 for the latest, state 1", "state 2 was seen")
    assert command("pull", "dense@1").returncode == 0


def test_after_a_yank_the_latest_is_an_older_version(
    fresh: WireServer, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json.loads(command("pull", "dense", "--json").stdout)[0]["version"] == 2
    fresh.yank("dense", 2)
    assert json.loads(command("pull", "dense", "--json").stdout)[0]["version"] == 1  # as the server signed
    assert Pins().read().servers[fresh.url].seen == {"dense": 3}
    fresh.yanked.clear()
    fresh.sequences["dense"] = 2  # what it signed before the yank
    failed(
        command("pull", "dense", "--no-lock"), 1, "gives dense@2 for the latest, state 2", "state 3 was seen"
    )
    fresh.sequences["dense"] = 4  # the yank was taken back
    assert command("pull", "dense", "--no-lock").returncode == 0
    another_machine(monkeypatch, tmp_path)
    assert command("pull", "dense").returncode == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda wire: head(wire.key, "dense", 1, 9), "signed that it is dense@1"),
        (lambda wire: head(wire.key, "rows", 2, 9), "the latest version of 'rows'"),
        (lambda wire: head(OTHER, "dense", 2, 9), "the signature names the key"),
        (lambda wire: signature(wire.key, "dense", 2, b"x"), "payload of type"),
        (lambda wire: head(wire.key, "dense", 2, 0), "no LatestStatement"),
        (lambda wire: b"{}", "no DSSE envelope"),
    ],
)
def test_a_wrong_word_on_the_latest(fresh: WireServer, command: Command, body: Any, words: str) -> None:
    command("pull", "dense", "--no-lock")
    fresh.fault("/head$", Fault(body=body(fresh)))
    failed(command("pull", "dense", "--no-lock"), 1, words)
    assert command("pull", "dense", "--no-lock").returncode == 0


PAST, FUTURE = "2026-01-03T03:04:05Z", "2999-01-01T00:00:00Z"


def test_an_answer_that_is_shown_for_ever_is_noticed(fresh: WireServer, command: Command) -> None:
    """A freeze: newer versions are withheld, by an older answer or by one that has no end."""
    for_ever = head(fresh.key, "dense", 2, 2)
    fresh.fault("/head$", Fault(body=head(fresh.key, "dense", 2, 2, PAST)))
    failed(command("pull", "dense", "--no-lock"), 1, f"expired at {PAST}", "clock is wrong", "pull dense@2")
    assert command("pull", "dense@2", "--no-lock").returncode == 0
    fresh.fault("/head$", Fault(body=head(fresh.key, "dense", 2, 2, FUTURE)))
    assert command("pull", "dense", "--no-lock").returncode == 0
    assert Pins().read().servers[fresh.url].expires
    for older in (Fault(body=for_ever), Fault(status=404, body=b'{"title": "no", "status": 404}')):
        fresh.fault("/head$", older)
        failed(command("pull", "dense", "--no-lock"), 1, "does not say when it expires", "any older answer")


def test_a_machine_may_ask_for_answers_that_expire(
    fresh: WireServer, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("pull", "dense", "--no-lock").returncode == 0  # of an older server
    monkeypatch.setenv("DIETCODE_REQUIRE_FRESH", "1")
    failed(command("pull", "dense", "--no-lock"), 1, "does not say when it expires")


@pytest.mark.parametrize("ends", ["2026-1-1", "never", ""])
def test_an_end_that_is_no_time(fresh: WireServer, command: Command, ends: str) -> None:
    fresh.fault("/head$", Fault(body=head(fresh.key, "dense", 2, 2, ends)))
    failed(command("pull", "dense", "--no-lock"), 1, "no LatestStatement")


def test_a_server_that_is_older_than_such_words(fresh: WireServer, command: Command) -> None:
    """Its newest version is the latest; nobody yanks by keeping the words to himself."""
    fresh.always = [
        ("/head$", Fault(status=404, body=b'{"title": "no", "status": 404, "detail": "no route"}'))
    ]
    assert command("pull", "dense", "--no-lock").returncode == 0
    fresh.yank("dense", 2)
    failed(
        command("pull", "dense", "--no-lock"), 1, "gives dense@1 for the latest, state 1", "state 2 was seen"
    )


def test_a_server_without_signatures(fresh: WireServer, command: Command) -> None:
    fresh.always = [
        ("/signature$", Fault(status=404, body=b'{"title": "no", "status": 404, "detail": "no such route"}'))
    ]
    failed(command("pull", "dense"), 1, "dense@2: the server gives no signature", "nothing of it is used")
    assert not Pins().path.exists()


def test_a_lock_file_names_the_key(
    fresh: WireServer, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("pull", "dense@1", "-o", "lib").returncode == 0
    another_machine(monkeypatch, tmp_path)
    done = command("pull")
    assert done.returncode == 0 and "trusted" not in done.stderr, done
    dietcode.load("lib")
    trusted = Pins().read()
    assert not trusted.servers and list(trusted.locks) == [fresh.fingerprint]
    fresh.stop()
    assert command("pull").returncode == 0


def test_a_lock_file_refuses_another_key(
    fresh: WireServer, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("pull", "dense@1")
    named = fresh.fingerprint
    fresh.key = Ed25519PrivateKey.from_private_bytes(b"n" * 32)
    another_machine(monkeypatch, tmp_path)
    failed(command("pull"), 1, "dense@1", named)
    failed(command("pull", "dense@1"), 1, "dense@1", named)
    assert not Pins().path.exists()


def test_a_lock_file_follows_rotations(
    fresh: WireServer, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("pull", "dense@1", "-o", "lib")
    fresh.rotate(b"b")
    fresh.rotate(b"c")
    another_machine(monkeypatch, tmp_path)
    done = command("pull")
    assert done.returncode == 0, done
    dietcode.load("lib")
    assert list(Pins().read().locks) == [fresh.fingerprint]


def test_a_lock_file_of_an_older_version(
    fresh: WireServer, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("pull", "dense@1")
    lock = json.loads(Path("dietcode.lock").read_text())
    del lock["libraries"]["dense"]["key"]
    Path("dietcode.lock").write_text(json.dumps(lock))
    another_machine(monkeypatch, tmp_path)
    assert "first use" in command("pull").stderr


def test_a_pulled_folder_loads_only_where_its_key_is_trusted(
    fresh: WireServer, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("pull", "dense@1", "-o", "lib", "--no-lock")
    another_machine(monkeypatch, tmp_path)
    with pytest.raises(LibraryError, match="which nobody here trusts; pull it again"):
        dietcode.load("lib")
    Path("key.pem").write_text(fresh.public_pem)
    command("trust", fresh.url, "--key", "key.pem")
    dietcode.load("lib")


@pytest.mark.parametrize("name", ["signature.json", "manifest.json"])
def test_a_pulled_folder_that_was_altered(fresh: WireServer, command: Command, name: str) -> None:
    command("pull", "dense@1", "-o", "lib", "--no-lock")
    path = Path("lib") / name
    data = path.read_bytes()
    for offset in range(0, len(data), len(data) // 40):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])
        with pytest.raises(DietCodeError) as caught:
            dietcode.load("lib")
        assert "\n" not in str(caught.value)
    path.write_bytes(data)
    dietcode.load("lib")


@pytest.mark.parametrize("text", ["", "{}x", "[]", '{"format": "dietcode-trust/2"}', '{"servers": 1}'])
def test_pins_that_cannot_be_read_trust_nobody(fresh: WireServer, command: Command, text: str) -> None:
    Pins().path.write_text(text)
    failed(command("pull", "dense"), 1, "trust.json: not what this version of dietcode writes")
    assert Pins().path.read_text() == text


def test_first_uses_at_once(fresh: WireServer) -> None:
    told: list[BaseException] = []

    def one(version: int) -> None:
        try:
            with Client(fresh.url) as client:
                client.pull(f"dense@{version}")
        except BaseException as error:
            told.append(error)

    threads = [threading.Thread(target=one, args=(1 + number % 2,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not told and pinned(fresh) == [(fresh.fingerprint, "current", "first use")]
    assert Pins().read().servers[fresh.url].seen == {"dense": 2}


def test_a_folder_that_lost_its_signature(fresh: WireServer, command: Command) -> None:
    """It does not become a library that was tuned here."""
    fresh.publish("dense", 3, as_served(library_bytes("dense")))
    assert command("pull", "dense@3", "-o", "lib", "--no-lock").returncode == 0
    dietcode.load("lib")
    (Path("lib") / "signature.json").unlink()
    with pytest.raises(LibraryError, match=r"its signature\.json is missing; pull it again"):
        dietcode.load("lib")
    failed(command("inspect", "lib"), 1, "its signature.json is missing")
    assert command("pull", "dense@3", "-o", "lib", "--no-lock").returncode == 0
    dietcode.load("lib")
    assert command("inspect", "lib").returncode == 0


def test_what_reads_a_folder_verifies_it(fresh: WireServer, command: Command) -> None:
    command("pull", "dense@1", "-o", "lib", "--no-lock")
    Pins().path.unlink()
    failed(command("inspect", "lib"), 1, "which nobody here trusts")
    with pytest.raises(LibraryError, match="which nobody here trusts"):
        reselect("lib", ["max_kernels=1"], Path("new"))
    assert not Path("new").exists()
