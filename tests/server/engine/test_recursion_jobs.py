"""Jobs about recursions: cells as data become parts, and a bundle with the samples that it was tuned for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_tuning import FakeTuning, submit_model, work
from small_recursions import SAMPLES, tree_model

from dietcode.protocol import JobState
from dietcode_server.store import jobs, libraries, wire
from dietcode_server.store.database import Database


def test_jobs_of_recursions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(f"sqlite:///{tmp_path / 'dietcode.db'}")
    database.upgrade()
    tuning = FakeTuning()
    tuning.install(monkeypatch.setattr)
    job_id = submit_model(database, tree_model())
    tuning.fails = lambda number: number == 1
    assert work(database, job_id, tmp_path) == 1
    with database.read() as session:
        failed = jobs.get(session, job_id)
        assert failed.state == JobState.FAILED.value and tuning.tuned[1] in str(failed.error)
    with database.write() as session:
        jobs.resume(session, job_id)
    tuning.fails = lambda _: False
    assert work(database, job_id, tmp_path) == 0
    with database.read() as session:
        job = wire.to_wire(session, jobs.get(session, job_id))
        assert job.parts is not None and (job.kind, job.library is not None) == ("model", True)
        assert len(tuning.tuned) == len(job.parts) + 1  # the part that failed, twice
        manifest = json.loads(libraries.manifest_bytes(session, libraries.get(session, "tree")))
    assert manifest["format"] == "dietcode-recursion/1" and set(manifest["files"]) == {
        "recursion.json",
        "report.json",
    }
    assert manifest["samples"] == SAMPLES.to_json() and len(manifest["libraries"]) == len(job.parts)
    again = submit_model(database, tree_model("other"))
    assert work(database, again, tmp_path) == 0
    assert len(tuning.tuned) == len(job.parts) + 1  # it has the same parts
    database.dispose()


def test_a_cell_without_kernels_costs_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(f"sqlite:///{tmp_path / 'dietcode.db'}")
    database.upgrade()
    tuning = FakeTuning()
    tuning.install(monkeypatch.setattr)
    model = tree_model()
    cell = replace(model.cells.cell, nodes=list(model.cells.cell.nodes), types=dict(model.cells.cell.types))
    cell.outputs = [cell.add("atan", cell.outputs[0], source="tree.py:9")]
    job_id = submit_model(database, replace(model, cells=replace(model.cells, cell=cell)))
    assert work(database, job_id, tmp_path) == 1
    with database.read() as session:
        row = jobs.get(session, job_id)
    assert row.state == JobState.FAILED.value and "tree.py:9" in str(row.error) and not tuning.tuned
    database.dispose()
