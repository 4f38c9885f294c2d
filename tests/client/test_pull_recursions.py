"""The bundle of a recursion as the real application gives it: pulled, verified, locked, loaded and run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_tuning import FakeTuning, submit_model, untuned_library, work
from recorded import URL, Replay, install, record_model
from small_recursions import states_of, tree_model, tree_weights

import dietcode
from dietcode.cli.app import inspect
from dietcode.client import Client
from dietcode.client.pull import install as install_locked
from dietcode.client.pull import pull_and_lock
from dietcode.models.bundle_files import save_weights
from dietcode_server.dashboard.bundle_snippet import bundle_snippet
from dietcode_server.store.database import Database


def publish(database: Database, folder: Path) -> str:
    """A recursion whose libraries run, though nobody tuned them."""
    with pytest.MonkeyPatch.context() as patch:
        FakeTuning(untuned_library).install(patch.setattr)
        assert work(database, submit_model(database, tree_model()), folder) == 0
    return "tree"


@pytest.mark.thorough
def test_a_recursion_is_pulled_and_runs_with_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "server").mkdir()
    install(monkeypatch, Replay(record_model(tmp_path / "server", publish)))
    weights, lock = tmp_path / "tree.safetensors", tmp_path / "dietcode.lock"
    save_weights(tree_weights(), weights)
    with Client() as client:
        pull_and_lock(client.transport, "tree", tmp_path / "tree", lock, print)
    monkeypatch.chdir(tmp_path)
    pasted: dict[str, Any] = {}
    exec(bundle_snippet(tree_model().to_json(), len(tree_weights()), "tree", "tree@1", URL), pasted)
    assert np.isfinite(pasted["states"]).all() and pasted["states"].shape == (1, 16), "of the only root"
    shutil.rmtree(tmp_path / "tree")
    (done,) = install_locked(lock, None, None)
    model = dietcode.load(done.folder, weights=weights)
    children = np.array([[-1, -1], [-1, -1], [0, 1], [2, -1]], np.int32)
    x = np.random.default_rng(1).standard_normal((4, 6), dtype=np.float32)
    found = model(dietcode.Structure(children), x, all_nodes=True)
    assert np.abs(found - states_of(children, x)).max() < 1e-5
    capsys.readouterr()
    inspect(done.folder)
    said = capsys.readouterr().out
    assert "2 calls, up to 5 nodes, levels up to 1" in said and "Which sizes go where" in said
