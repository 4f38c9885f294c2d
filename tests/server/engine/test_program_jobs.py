"""Jobs about programs: blocks as data become parts, and a bundle with the form that the machine runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_tuning import FakeTuning, submit_model, work
from small_programs import pair_program

from dietcode.protocol import JobState
from dietcode_server.store import jobs, libraries, wire
from dietcode_server.store.database import Database


def test_jobs_of_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(f"sqlite:///{tmp_path / 'dietcode.db'}")
    database.upgrade()
    tuning = FakeTuning()
    tuning.install(monkeypatch.setattr)
    job_id = submit_model(database, pair_program())
    tuning.fails = lambda number: number == 1
    assert work(database, job_id, tmp_path) == 1
    with database.write() as session:
        jobs.resume(session, job_id)
    tuning.fails = lambda _: False
    assert work(database, job_id, tmp_path) == 0
    with database.read() as session:
        job = wire.to_wire(session, jobs.get(session, job_id))
        assert job.parts is not None and (job.kind, job.library is not None) == ("model", True)
        assert len(tuning.tuned) == len(job.parts) + 1  # the part that failed, twice
        manifest = json.loads(libraries.manifest_bytes(session, libraries.get(session, "pairs")))
    assert manifest["format"] == "dietcode-program/1"
    assert set(manifest["files"]) == {"program.json", "report.json"}
    assert manifest["samples"] == {"instances": 2} and len(manifest["libraries"]) == len(job.parts)
    again = submit_model(database, pair_program("other"))
    assert work(database, again, tmp_path) == 0
    assert len(tuning.tuned) == len(job.parts) + 1  # it has the same parts
    database.dispose()


def test_a_block_without_kernels_costs_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(f"sqlite:///{tmp_path / 'dietcode.db'}")
    database.upgrade()
    tuning = FakeTuning()
    tuning.install(monkeypatch.setattr)
    model = pair_program()
    leaf, merge = model.blocks
    merge.graph.outputs = [merge.graph.add("atan", merge.graph.outputs[0], source="pairs.py:9")]
    job_id = submit_model(database, replace(model, blocks=(leaf, merge)))
    assert work(database, job_id, tmp_path) == 1
    with database.read() as session:
        row = jobs.get(session, job_id)
    assert row.state == JobState.FAILED.value and "pairs.py:9" in str(row.error) and not tuning.tuned
    database.dispose()
