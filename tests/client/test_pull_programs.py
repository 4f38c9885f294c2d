"""The bundle of a program as the application signs it: pulled, loaded and shown; a changed one is none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_tuning import FakeTuning, submit_model, untuned_library, work
from recorded import URL, Replay, install, record_model
from small_programs import Pair, encoded, pair_program, pair_weights

import dietcode
from dietcode.cli.app import inspect
from dietcode.client import Client
from dietcode.client.pull import pull_and_lock
from dietcode.errors import LibraryError
from dietcode.models.bundle_files import save_weights
from dietcode.runtime.manifest import MANIFEST, PROGRAM, SIGNATURE, file_facts
from dietcode_server.dashboard.bundle_snippet import bundle_snippet
from dietcode_server.store.database import Database


def publish(database: Database, folder: Path) -> str:
    """A program whose libraries run, though nobody tuned them."""
    with pytest.MonkeyPatch.context() as patch:
        FakeTuning(untuned_library).install(patch.setattr)
        assert work(database, submit_model(database, pair_program()), folder) == 0
    return "pairs"


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    return Replay(record_model(tmp_path_factory.mktemp("server"), publish))


@pytest.fixture
def pulled(tmp_path: Path, replay: Replay, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(monkeypatch, replay)
    with Client() as client:
        pull_and_lock(client.transport, "pairs", tmp_path / "pairs", tmp_path / "dietcode.lock", print)
    save_weights(pair_weights(), tmp_path / "pairs.safetensors")
    return tmp_path / "pairs"


def load(folder: Path) -> Any:
    return dietcode.load(folder, weights=folder.parent / "pairs.safetensors", require_signature=True)


@pytest.mark.thorough
def test_a_signed_program_loads_runs_and_is_shown(pulled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [Pair(Pair(word=1), Pair(Pair(word=6), Pair(word=0))), Pair(word=3)]
    for found, wanted in zip(load(pulled)(pairs), map(encoded, pairs), strict=True):
        assert np.abs(found - wanted).max() < 1e-5
    capsys.readouterr()
    inspect(pulled)
    said = " ".join(capsys.readouterr().out.split())
    assert "pairs a program of 1 parameter" in said and "objects Pair(left, right, word)" in said
    assert "functions encode 12: instructions of each" in said and "samples 2 instances" in said
    assert "Which numbers of rows go where" in said and "block1" in said
    inspect(pulled, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert [one["buckets"] for one in shown["report"]["blocks"]] == [{"5": 1}, {"1": 1, "2": 1}]
    for part in shown["report"]["parts"]:  # a server's bundle has no search of its own: its libraries say it
        own = json.loads((pulled / "libraries" / part["digest"] / "report.json").read_bytes())
        assert part["measured"] == own["space"]["measured"] > 0


def test_what_its_page_shows_takes_instances_of_the_reader(
    pulled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = bundle_snippet(pair_program().to_json(), len(pair_weights()), "pairs", "pairs@1", URL)
    assert "instances = []  # yours: what `encode` takes\n" in code
    monkeypatch.chdir(pulled.parent)
    found: dict[str, Any] = {"Pair": Pair}
    exec(code.replace("[]", "[Pair(word=3)]"), found)
    assert np.abs(found["results"][0] - encoded(Pair(word=3))).max() < 1e-5


def changed_program(folder: Path) -> None:
    """Another line of the source, in a file that is right otherwise."""
    data = json.loads((folder / PROGRAM).read_bytes())
    data["functions"][0]["lines"][0] += 1
    (folder / PROGRAM).write_text(json.dumps(data))


def listed(folder: Path) -> None:
    """The manifest says of the file what it is now."""
    changed_program(folder)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    manifest["files"][PROGRAM] = file_facts((folder / PROGRAM).read_bytes())
    (folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed_program, "program.json"),
        (listed, "sign"),
        (lambda folder: (folder / SIGNATURE).unlink(), "its signature.json is missing"),
        (lambda folder: shutil.rmtree(next((folder / "libraries").iterdir())), "missing"),
    ],
    ids=["a file", "a file that is listed", "no signature", "a library"],
)
def test_a_changed_one_does_not_load(pulled: Path, change: Any, words: str) -> None:
    change(pulled)
    with pytest.raises(LibraryError, match=words):
        load(pulled)
