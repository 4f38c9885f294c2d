"""Attempts, priorities, deadlines, and several servers on one database."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from child_processes import gone
from simple_server import Server
from small_libraries import spec_data

from dietcode.protocol import JobState
from dietcode.workload.parse import spec_from_data
from dietcode_server.engine.placement import Placement
from dietcode_server.engine.targets import Resolved, Targets
from dietcode_server.store import events as job_events
from dietcode_server.store import jobs, leases
from dietcode_server.store.database import migrations_config

only_sqlite = pytest.mark.parametrize("kind", ["sqlite"])
only_postgresql = pytest.mark.parametrize("kind", ["postgresql"])


@pytest.fixture
def servers(tmp_path: Path, new_url: Callable[[], str]) -> Iterator[Callable[..., Server]]:
    """Return a function that makes one more server on the same database."""
    made: list[Server] = []
    url = new_url()

    def make(**options: Any) -> Server:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Server(folder, url, **options))
        return made[-1]

    yield make
    for server in made:
        server.close()


def messages(server: Server, job_id: str) -> list[tuple[str, str]]:
    with server.database.read() as session:
        events = job_events.events_after(session, job_id, 0)
        return [(str(event.state), event.message) for event in events if event.kind == "state"]


@pytest.mark.thorough
@only_sqlite
def test_a_job_whose_worker_dies_begins_again_until_its_attempts_are_used_up(
    servers: Callable[..., Server],
) -> None:
    server = servers(max_attempts=2)
    server.supervisor.start()
    job_id = server.submit("crashes")
    row = server.reach(job_id, JobState.INTERRUPTED)
    assert (row.attempt, row.num_lost) == (2, 2)
    assert row.error is not None and "signal 6" in row.error and f"resume {job_id}" in row.error
    said = [message for state, message in messages(server, job_id) if state == "queued"]
    assert said == ["", "its worker was killed by signal 6; attempt 2 of 2 begins in 0.2 s"]


@pytest.mark.long  # as the storm, which kills some besides
@only_postgresql
def test_two_servers_share_the_jobs_and_none_runs_twice(servers: Callable[..., Server]) -> None:
    one, two = servers(), servers()
    ids = [one.submit(f"job{number}") for number in range(3)]
    for server in (one, two):
        server.supervisor.start()
    rows = [one.reach(job_id, JobState.FAILED, timeout_secs=40) for job_id in ids]
    assert [(row.attempt, row.error) for row in rows] == [(1, "as told")] * 3
    assert all([state for state, _ in messages(one, i)] == ["queued", "running", "failed"] for i in ids)


@pytest.mark.sampled(keep=1)
def test_a_cancel_at_one_server_ends_a_worker_of_another(servers: Callable[..., Server]) -> None:
    one, two = servers(), servers()
    two.supervisor.start()
    job_id = one.submit("waits")
    processes = two.processes("waits")
    began = time.monotonic()
    with one.database.write() as session:
        jobs.request_cancel(session, job_id)
    one.reach(job_id, JobState.CANCELLED, timeout_secs=5.0)
    assert gone(processes, 5.0 - (time.monotonic() - began))


@pytest.mark.thorough
@only_postgresql
def test_a_server_that_stands_still_loses_its_job_to_another(
    servers: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that wakes up after its lease is refused, and ends itself."""
    one, two = servers(max_attempts=3, lease_secs=1.0), servers(max_attempts=3, lease_secs=30.0)
    one.supervisor.start()
    job_id = one.submit("waits")
    old = one.processes("waits")
    monkeypatch.setattr(one.supervisor, "_turn", lambda: None)
    old[0].suspend()
    two.supervisor.start()
    new = two.processes("waits")
    row = two.row(job_id)
    assert (row.attempt, row.num_lost) == (2, 1)
    assert any("silent for too long" in message for _, message in messages(two, job_id))
    old[0].resume()
    assert gone(old), "it ended itself"
    assert new[0].is_running() and two.row(job_id).runner == row.runner


@pytest.mark.thorough
@only_postgresql
def test_deadlines(servers: Callable[..., Server]) -> None:
    server = servers()
    server.supervisor.start()
    running = server.submit("waits", deadline=timedelta(hours=1))
    processes = server.processes("waits")
    waiting = server.submit("other", deadline=timedelta(seconds=0.5))
    row = server.reach(waiting, JobState.FAILED)
    assert row.error is not None and "passed before it began" in row.error and row.attempt == 0
    with server.database.write() as session:
        jobs.get(session, running).deadline_at = leases.clock(session)
    row = server.reach(running, JobState.FAILED)
    assert row.error is not None and "passed while it ran" in row.error
    assert gone(processes, 5.0)
    with server.database.write() as session:
        assert jobs.resume(session, waiting).deadline_at is None
    server.supervisor.wake()
    assert server.reach(waiting, JobState.FAILED).error == "as told"


@pytest.mark.thorough
@only_sqlite
def test_a_worker_refuses_a_stale_schema(servers: Callable[..., Server]) -> None:
    server = servers()
    job_id = server.submit("stale")
    config = migrations_config()
    with server.database.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0002")
    request = {"parent_pid": None, "database_url": server.url, "job": job_id, "work_root": ""}
    done = subprocess.run(
        [sys.executable, "-m", "dietcode_server.engine.worker"],
        input=json.dumps(request | {"heartbeat_secs": 1.0, "lease_secs": 15.0}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "run `dietcode db upgrade`" in done.stderr
    assert "Traceback" not in done.stderr


class Elsewhere(Targets):
    """Says that only one device is here."""

    def on(self, target: object, host: object = None) -> Resolved:
        return Resolved({"kind": "llvm"}, ("d", "a device", {}), True)


@only_sqlite
def test_jobs_for_another_machine_are_left_to_its_server(servers: Callable[..., Server]) -> None:
    server = servers()
    mine = server.submit("mine")
    with server.database.write() as session:
        other, _ = jobs.submit(
            session,
            spec=spec_from_data(spec_data("other")),
            target={"kind": "llvm", "mcpu": "another"},
            device=("e", "another device", {"kind": "llvm"}),
            runnable=True,
            force=False,
            idempotency_key=None,
            priority=10,
        )
        first = jobs.next_queued(session)
        assert first is not None and first.id == other.id
    found = Placement(Elsewhere()).next_job(server.database)
    assert found is not None and found.id == mine
    found = Placement().next_job(server.database)
    assert found is not None and found.id == other.id
