"""Jobs about whole models: parts tuned one after the other, shared, resumed, and published as a bundle."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_tuning import LIMITS, FakeTuning, plain_library, submit_model, work
from simple_server import Server
from small_models import mlp

from dietcode.protocol import Job, JobState
from dietcode_server.engine import planning
from dietcode_server.store import events, jobs, libraries, model_parts, wire
from dietcode_server.store.database import Database
from dietcode_server.store.library_names import list_names


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path / 'dietcode.db'}")
    made.upgrade()
    yield made
    made.dispose()


@pytest.fixture
def tuning(monkeypatch: pytest.MonkeyPatch) -> FakeTuning:
    made = FakeTuning()
    made.install(monkeypatch.setattr)
    return made


def shown(database: Database, job_id: str) -> Job:
    with database.read() as session:
        return wire.to_wire(session, jobs.get(session, job_id))


def test_parts_become_libraries_and_a_bundle(database: Database, tuning: FakeTuning, tmp_path: Path) -> None:
    job_id = submit_model(database)
    assert work(database, job_id, tmp_path) == 0
    job = shown(database, job_id)
    assert job.state == JobState.SUCCEEDED and job.library is not None and job.parts is not None
    assert (job.library.name, job.library.version) == ("mlp", 1)
    assert [part.state for part in job.parts] == ["tuned", "tuned"] and [p.calls for p in job.parts] == [2, 1]
    assert sum(part.share for part in job.parts) == pytest.approx(1)
    assert [part.gflops for part in job.parts] == [pytest.approx(20.0)] * 2
    assert tuning.tuned == [part.name for part in job.parts] and tuning.opened == 1
    with database.read() as session:
        bundle = libraries.get(session, "mlp")
        manifest = json.loads(libraries.manifest_bytes(session, bundle))
        assert bundle.kind == "bundle" and manifest["signature"] and manifest["name"] == "mlp"
        for part in job.parts:
            assert part.library is not None and part.library.name.startswith("part:")
            listed = manifest["libraries"][part.digest]
            own = libraries.get(session, part.library.name, part.library.version)
            assert listed == {"manifest": own.manifest_digest, "name": own.name, "version": own.version}
            assert json.loads(libraries.manifest_bytes(session, own))["name"] == own.name
        assert [one.name for one in libraries.list_libraries(session)[0]] == ["mlp"]
        assert [one.newest.name for one in list_names(session)[0]] == ["mlp"]
        said = [row.message for row in events.events_after(session, job_id, 0)]
    assert any(line.startswith("part 2 of 2, ") for line in said)
    assert said[-2] == "mlp@1: a bundle of 2 libraries"


def test_models_share_their_parts(database: Database, tuning: FakeTuning, tmp_path: Path) -> None:
    assert work(database, submit_model(database), tmp_path) == 0
    other = submit_model(database, mlp("other"))
    assert work(database, other, tmp_path) == 0
    job = shown(database, other)
    assert job.parts is not None and [part.state for part in job.parts] == ["reused", "reused"]
    assert len(tuning.tuned) == 2 and tuning.opened == 1  # nothing was measured for the second
    forced = submit_model(database, mlp("other"), force=True)
    tuning.make = lambda spec: plain_library(spec, b"anew")
    assert work(database, forced, tmp_path) == 0
    job = shown(database, forced)
    assert len(tuning.tuned) == 4 and job.library is not None and job.library.version == 2
    assert job.parts is not None
    assert [part.library.version for part in job.parts if part.library] == [2, 2]


@pytest.mark.thorough
def test_a_part_that_fails_names_itself(database: Database, tuning: FakeTuning, tmp_path: Path) -> None:
    job_id = submit_model(database)
    tuning.fails = lambda number: number == 1
    assert work(database, job_id, tmp_path) == 1
    job = shown(database, job_id)
    assert job.state == JobState.FAILED and job.library is None and job.parts is not None
    assert job.error == f"part 2 of 2, {tuning.tuned[1]}: no candidate worked"
    assert [part.state for part in job.parts] == ["tuned", "failed"]
    with database.write() as session:
        jobs.resume(session, job_id)
    assert work(database, job_id, tmp_path) == 0
    assert tuning.tuned == [job.parts[0].name, job.parts[1].name, job.parts[1].name]
    assert shown(database, job_id).state == JobState.SUCCEEDED


def test_a_part_beyond_the_servers_limits_is_refused_before_tuning(
    database: Database, tuning: FakeTuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fake_tuning.LIMITS", replace(LIMITS, max_flops=1000))
    job_id = submit_model(database)
    assert work(database, job_id, tmp_path) == 1
    error = shown(database, job_id).error
    assert error is not None and "DIETCODE_SERVE_MAX_FLOPS" in error and not tuning.tuned


def test_a_graph_that_takes_too_long_costs_its_job(
    database: Database, tuning: FakeTuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "PLAN_SECS", 0.01)
    job_id = submit_model(database)
    assert work(database, job_id, tmp_path) == 1
    assert "not taken apart" in str(shown(database, job_id).error)


@pytest.mark.long
def test_a_killed_worker_is_gone_on_from(tmp_path: Path) -> None:
    server = Server(tmp_path, max_attempts=3)
    script = str(Path(__file__).with_name("model_worker.py"))
    server.engine = replace(server.engine, command=(sys.executable, script), limits=LIMITS)
    server.supervisor = server.new_supervisor()
    try:
        job_id = submit_model(server.database)
        server.supervisor.start()
        row = server.reach(job_id, JobState.SUCCEEDED, JobState.FAILED, timeout_secs=60)
        assert (row.state, row.attempt) == ("succeeded", 2)
        first, second, again = (server.work / "tuned").read_text().split()
        assert first != second == again
        with server.database.read() as session:
            states = [part.state for part in model_parts.parts_of(session, job_id)]
        assert states == ["tuned", "tuned"]
    finally:
        server.close()
