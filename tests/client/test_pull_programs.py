"""The bundle of a program as the real application gives it: pulled, verified, locked, loaded and run."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from fake_tuning import FakeTuning, submit_model, untuned_library, work
from recorded import Replay, install, record_model
from small_programs import Pair, encoded, pair_program, pair_weights

import dietcode
from dietcode.cli.app import inspect
from dietcode.client import Client
from dietcode.client.pull import install as install_locked
from dietcode.client.pull import pull_and_lock
from dietcode.models.compiling import save_weights
from dietcode_server.store.database import Database


def publish(database: Database, folder: Path) -> str:
    """A program whose libraries run, though nobody tuned them."""
    with pytest.MonkeyPatch.context() as patch:
        FakeTuning(untuned_library).install(patch.setattr)
        assert work(database, submit_model(database, pair_program(max_rows=4096)), folder) == 0
    return "pairs"


def test_a_program_is_pulled_and_runs_with_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "server").mkdir()
    install(monkeypatch, Replay(record_model(tmp_path / "server", publish)))
    weights, lock = tmp_path / "pairs.safetensors", tmp_path / "dietcode.lock"
    save_weights(pair_weights(), weights)
    with Client() as client:
        pull_and_lock(client.transport, "pairs", tmp_path / "pairs", lock, print)
    shutil.rmtree(tmp_path / "pairs")
    (done,) = install_locked(lock, None, None)
    program = dietcode.load(done.folder, weights=weights)
    trees = [Pair(Pair(Pair(word=3), Pair(word=1)), Pair(word=6)), Pair(word=5), Pair(Pair(), Pair(word=2))]
    for found, tree in zip(program(trees), trees, strict=True):
        assert np.abs(found - encoded(tree)).max() < 1e-5
    capsys.readouterr()
    inspect(done.folder)
    said = capsys.readouterr().out
    assert "a program of 1 parameter" in said and "2 instances" in said
