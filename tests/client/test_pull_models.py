"""Bundles as the real application gives them: pulled with what is missing, verified, locked, loaded."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_tuning import FakeTuning, submit_model, untuned_library, work
from recorded import URL, Replay, Reply, install, record_model, with_body
from small_models import expected, mlp, weights_of

import dietcode
from dietcode.client import Client
from dietcode.client.lock import lock_weights, read_lock
from dietcode.client.pull import install as install_locked
from dietcode.client.pull import pull_and_lock
from dietcode.errors import DietCodeError, LibraryError
from dietcode.models.bundle_files import save_weights
from dietcode.runtime.manifest import sha256_file
from dietcode_server.dashboard.bundle_snippet import bundle_snippet
from dietcode_server.store.database import Database

BUNDLE = "/libraries/mlp/1"


def publish(database: Database, folder: Path) -> str:
    """A model whose libraries run, though nobody tuned them."""
    with pytest.MonkeyPatch.context() as patch:
        FakeTuning(untuned_library).install(patch.setattr)
        assert work(database, submit_model(database), folder) == 0
    return "mlp"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reply]:
    return record_model(tmp_path_factory.mktemp("good"), publish)


@pytest.fixture
def replay(good: dict[str, Reply], monkeypatch: pytest.MonkeyPatch) -> Replay:
    made = Replay(good)
    install(monkeypatch, made)
    return made


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "mlp.safetensors"
    save_weights(weights_of(mlp()), path)
    return path


def parts(good: dict[str, Reply]) -> list[str]:
    listed = json.loads(good[BUNDLE].body)["libraries"].values()
    return [f"/libraries/{one['name']}/{one['version']}" for one in listed]


def check(model: Any) -> None:
    for rows in (1, 6, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 16), dtype=np.float32)
        wanted = expected(mlp(), weights_of(mlp()), x)
        assert np.abs(model(x) - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_what_its_page_shows_runs_as_pasted(
    replay: Replay, tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = bundle_snippet(mlp().to_json(), len(mlp().weights), "mlp", "mlp@1", URL)
    assert f'model = dietcode.pull("mlp@1", server="{URL}", weights="mlp.safetensors")' in code
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(code, found)
    assert found["x"].shape == (6, 16) and found["outputs"].shape == (6, 32), "the largest L is 6"


def test_what_a_page_shows_of_inputs_within_lists_and_dictionaries() -> None:
    graph = mlp().to_json()
    (x,) = graph["inputs"]
    graph["inputs"] = dict.fromkeys(("tokens", "k", "v", "mask"), graph["inputs"][x])
    tree = {"list": [{"tuple": ["k", "v"]}, {"tuple": [None]}, {"constant": "it's"}]}
    graph["signature"] |= {"positional": ["tokens", tree], "keyword": {"more": {"dict": [["a b", "mask"]]}}}
    code = bundle_snippet(graph, 1, "mlp", "mlp@1", URL)
    assert "outputs = model(tokens, [(k, v), (None,), \"it's\"], more={'a b': mask})  # L = 6" in code
    assert [line.partition(" = ")[0] for line in code.splitlines() if "standard_normal" in line] == [
        *("tokens", "k", "v", "mask")
    ]
    compile(code, "snippet", "exec")
    graph["signature"]["keyword"] = {"more=1); print(": None}
    with pytest.raises(ValueError, match="whose names are identifiers"):
        bundle_snippet(graph, 1, "mlp", "mlp@1", URL)


def test_a_model_is_pulled_and_runs_with_its_weights(replay: Replay, tmp_path: Path, weights: Path) -> None:
    check(dietcode.pull("mlp@1", tmp_path / "mlp", weights=weights))
    check(dietcode.load(tmp_path / "mlp", weights=weights))
    with pytest.raises(LibraryError, match="pass weights="):
        dietcode.load(tmp_path / "mlp")
    asked = len(replay.asked)
    check(dietcode.pull("mlp@1", weights=weights))  # all of it is in the cache
    assert len(replay.asked) == asked


def test_only_libraries_that_are_missing_are_fetched(
    replay: Replay, good: dict[str, Reply], own_cache: Path
) -> None:
    with Client() as client:
        folder = client.pull("mlp")
        assert set(parts(good)) <= set(replay.asked)
        replay.asked.clear()
        shutil.rmtree(folder.parent)
        client.pull("mlp")
        assert not set(parts(good)) & set(replay.asked)
        assert not [path for path in replay.asked if path.startswith("/blobs/")]


def test_a_lock_file_has_models_too(replay: Replay, tmp_path: Path, weights: Path) -> None:
    lock = tmp_path / "dietcode.lock"
    with Client() as client:
        pull_and_lock(client.transport, "mlp", tmp_path / "mlp", lock, print)
    shutil.rmtree(tmp_path / "mlp")
    (done,) = install_locked(lock, None, None)
    assert done.folder == tmp_path / "mlp"
    check(dietcode.load(done.folder, weights=weights))


@pytest.mark.parametrize("beside", [False, True])
def test_weights_of_the_lock_file(
    replay: Replay, tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    """Which no server has: by default the file that was submitted, a loud other one where it is named."""
    lock, bundle = tmp_path / "dietcode.lock", tmp_path / "build" / "mlp"
    lock_weights(lock, "mlp", weights)
    with Client() as client:
        pull_and_lock(client.transport, "mlp", bundle, lock, print)
    if beside:  # moved into the bundle, which does not list it
        weights = weights.rename(bundle / "weights.safetensors")
    check(dietcode.load(bundle))
    check(pickle.loads(pickle.dumps(dietcode.load(bundle))))
    monkeypatch.chdir(tmp_path)
    cached = dietcode.pull("mlp@1", **{"weights": weights} if beside else {})
    check(cached)
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    said = rf"{weights.name}: sha256:\w{{64}}, other weights than .*dietcode.lock has for mlp, sha256:"
    with pytest.raises(LibraryError, match=f"{said}.*; restore it, or name the file by weights="):
        dietcode.load(bundle)
    with pytest.warns(UserWarning, match=said):
        dietcode.load(bundle, weights=weights)
    if not beside:
        with pytest.raises(LibraryError, match=f"{said}.*; restore it, or submit the model again"):
            install_locked(lock, None, None)
    weights.unlink()
    with pytest.raises(LibraryError, match="no such file; pass weights="):
        dietcode.load(bundle)


@pytest.mark.parametrize("file", ["/etc/x", "../x", "", "a\0b", 3])
def test_a_lock_file_with_odd_weights_is_refused(tmp_path: Path, weights: Path, file: Any) -> None:
    lock = tmp_path / "dietcode.lock"
    lock_weights(lock, "mlp", weights)
    plain = json.loads(lock.read_text())
    assert plain["weights"] == {
        "mlp": {"file": weights.name, "sha256": sha256_file(weights), "size_bytes": weights.stat().st_size}
    }
    plain["weights"]["mlp"]["file"] = file
    lock.write_text(json.dumps(plain))
    with pytest.raises(LibraryError, match=r"weights"):
        read_lock(lock)


def edited(reply: Reply, change: Callable[[dict[str, Any]], Any]) -> Reply:
    plain = json.loads(reply.body)
    change(plain)
    return with_body(reply, json.dumps(plain).encode())


def one_of(plain: dict[str, Any]) -> dict[str, Any]:
    return next(iter(plain["libraries"].values()))


@pytest.mark.parametrize(
    "change",
    [
        lambda plain: plain.update(name="other"),
        lambda plain: plain["files"]["model.json"].update(sha256="sha256:" + "0" * 64),
        lambda plain: plain["libraries"].popitem(),
        lambda plain: one_of(plain).update(version=2),
        lambda plain: one_of(plain).update(name="dense"),
        lambda plain: one_of(plain).update(name="part:../../x"),
    ],
)
def test_an_altered_bundle_is_refused(replay: Replay, change: Callable[[dict[str, Any]], Any]) -> None:
    def alter(path: str, reply: Reply) -> Reply:
        return edited(reply, change) if path in (BUNDLE, "/libraries/mlp/latest") else reply

    with replay.altering(alter), Client() as client, pytest.raises(DietCodeError, match="mlp"):
        client.pull("mlp")


def test_whatever_is_altered_on_its_way_is_refused(
    replay: Replay, good: dict[str, Reply], own_cache: Path
) -> None:
    """Each answer in turn, with one byte changed: steps, report, code, manifests and signatures of all."""
    for altered in [path for path in good if path not in ("/keys", f"{BUNDLE}/head")]:
        shutil.rmtree(own_cache / "blobs", ignore_errors=True)
        for name in ("libraries", "servers", "downloads"):
            shutil.rmtree(own_cache / name, ignore_errors=True)

        def alter(path: str, reply: Reply, altered: str = altered) -> Reply:
            if path != altered:
                return reply
            middle = len(reply.body) // 2
            byte = bytes([reply.body[middle] ^ 1])
            return with_body(reply, reply.body[:middle] + byte + reply.body[middle + 1 :])

        ref = "mlp" if altered.endswith(("latest", "head")) else "mlp@1"
        with replay.altering(alter), Client() as client, pytest.raises(DietCodeError):
            client.pull(ref)


def test_a_folder_that_was_altered_does_not_load(replay: Replay, tmp_path: Path, weights: Path) -> None:
    place = tmp_path / "mlp"
    dietcode.pull("mlp@1", place, weights=weights)
    spoilt = [path for path in sorted(place.rglob("*")) if path.is_file() and "blobs" not in path.parts]
    assert len(spoilt) == 4 + 2 * 5  # manifest, signature, steps, report; and those of two libraries
    for path in spoilt:
        data = path.read_bytes()
        path.unlink()  # never written over: its code may be loaded
        with pytest.raises(LibraryError):
            dietcode.load(place, weights=weights)
        path.write_bytes(data[:-2] + bytes([data[-2] ^ 1]) + data[-1:])
        with pytest.raises(LibraryError):
            dietcode.load(place, weights=weights)
        path.unlink()
        path.write_bytes(data)
    check(dietcode.load(place, weights=weights))
