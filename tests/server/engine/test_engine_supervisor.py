"""What the supervisor decides, with worker processes that only wait."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from child_processes import gone
from simple_server import Server

from dietcode.errors import DietCodeError
from dietcode.protocol import JobState
from dietcode_server.engine import supervisor
from dietcode_server.engine.runner import runner_name
from dietcode_server.store import jobs, leases, slots
from dietcode_server.store.database import StoreError
from dietcode_server.store.leases import LEASE_SECS


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.close()


@pytest.mark.thorough
def test_jobs_run_one_after_another_oldest_first(server: Server) -> None:
    ids = [server.submit(name) for name in ("first", "second", "third")]
    server.supervisor.start()
    rows = [server.reach(job_id, JobState.FAILED) for job_id in ids]
    assert [row.error for row in rows] == ["as told"] * 3 and all(row.attempt == 1 for row in rows)
    for earlier, later in itertools.pairwise(rows):
        assert earlier.finished_at is not None and later.started_at is not None
        assert earlier.finished_at <= later.started_at
    assert server.supervisor.healthy()


def test_an_engine_that_fails_says_why_and_goes_on_by_itself(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a disk fills up, and has room again."""

    def fail(*_: object) -> None:
        raise StoreError(f"{server.database.location}: database or disk is full; make room, then try again")

    with monkeypatch.context() as patch:
        patch.setattr(supervisor, "_STALLED_SECS", 0.1)
        patch.setattr(leases, "has_overdue", fail)
        server.supervisor.start()
        until = time.monotonic() + 20
        while "disk" not in server.supervisor.trouble() and time.monotonic() < until:
            time.sleep(0.02)
        assert server.supervisor.trouble() == (
            "the engine that runs jobs has failed for 0 s, and tries on: "
            "database or disk is full; make room, then try again"
        )
        assert not server.supervisor.healthy()
    job_id = server.submit("first")
    server.supervisor.wake()
    server.reach(job_id, JobState.FAILED)
    assert server.supervisor.healthy() and server.supervisor.trouble() == ""
    server.supervisor.stop()
    assert server.supervisor.trouble() == "the engine that runs jobs has stopped; restart the server"


@pytest.mark.thorough
def test_a_running_job_that_is_cancelled_ends_with_all_its_processes(server: Server) -> None:
    server.supervisor.start()
    job_id = server.submit("waits")
    other = server.submit("other")
    processes = server.processes("waits")
    assert server.row(other).state == JobState.QUEUED.value
    with server.database.write() as session:
        jobs.request_cancel(session, job_id)
    server.supervisor.wake()
    assert server.reach(job_id, JobState.CANCELLED, timeout_secs=5).error is None
    assert gone(processes, 5.0)
    server.reach(other, JobState.FAILED)


def test_a_worker_that_is_killed_leaves_an_interrupted_job(server: Server) -> None:
    server.supervisor.start()
    job_id = server.submit("waits")
    processes = server.processes("waits")
    processes[0].kill()
    row = server.reach(job_id, JobState.INTERRUPTED, timeout_secs=60)
    assert row.error is not None and "killed by signal 9" in row.error and f"resume {job_id}" in row.error
    assert gone(processes), "its child went with it"
    (server.work / "waits.pids").unlink()
    with server.database.write() as session:
        jobs.resume(session, job_id)
    server.supervisor.wake()
    server.processes("waits")
    assert server.row(job_id).state == JobState.RUNNING.value and server.row(job_id).attempt == 2


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize(
    ("name", "says", "attempts"),
    [("crashes", "killed by signal 6", 1), ("unclaimed", "ended with status 5", 1)],
)
def test_a_worker_that_ends_too_early(server: Server, name: str, says: str, attempts: int) -> None:
    server.supervisor.start()
    row = server.reach(server.submit(name), JobState.INTERRUPTED)
    assert row.error is not None and says in row.error and row.attempt == attempts


@pytest.mark.thorough
def test_a_server_that_stops_hands_its_job_back_and_the_next_goes_on(server: Server) -> None:
    server.supervisor.start()
    job_id = server.submit("waits")
    processes = server.processes("waits")
    server.supervisor.stop()
    assert server.row(job_id).state == JobState.QUEUED.value and gone(processes)
    (server.work / "waits.pids").unlink()
    server.supervisor = server.new_supervisor()
    server.supervisor.start()
    server.processes("waits")
    assert server.row(job_id).attempt == 2


def reserved_by(server: Server, job_id: str) -> str | None:
    row = server.row(job_id)
    assert row.state == JobState.QUEUED.value and row.attempt == 0
    return row.runner


def test_a_server_that_stops_gives_back_what_no_worker_had_claimed(server: Server) -> None:
    server.supervisor.start()
    job_id = server.submit("stuck")
    assert server.wait(lambda: reserved_by(server, job_id)) == runner_name()
    server.wait(server.supervisor.working_on)
    server.supervisor.stop()
    assert reserved_by(server, job_id) is None
    with server.database.read() as session:
        assert slots.holders(session) == {}


@pytest.mark.long
def test_a_job_that_is_cancelled_before_its_worker_claims_it(server: Server) -> None:
    """The worker ends by itself, and the next job begins."""
    server.supervisor.start()
    job_id, other = server.submit("late"), server.submit("other", priority=-1)
    server.wait(lambda: reserved_by(server, job_id))
    with server.database.write() as session:
        jobs.request_cancel(session, job_id)
    (server.work / "go").touch()
    assert server.reach(other, JobState.FAILED).error == "as told"
    row = server.row(job_id)
    assert (row.state, row.attempt, row.runner) == (JobState.CANCELLED.value, 0, None)


def reserve(server: Server, job_id: str, by: str, slot: str, secs: float) -> None:
    with server.database.write() as session:
        assert leases.reserve(session, by, secs) == job_id
        assert slots.take(session, slot, by, job_id, secs)


@pytest.mark.long
def test_what_a_dead_server_of_this_host_reserved_begins_at_once(server: Server) -> None:
    job_id = server.submit("left")
    reserve(server, job_id, f"{socket.gethostname()}/999999999/1.0", socket.gethostname(), 3600.0)
    server.supervisor.start()
    assert server.reach(job_id, JobState.FAILED).error == "as told"


@pytest.mark.long
def test_what_another_host_reserved_is_left_to_it_for_a_while(server: Server) -> None:
    theirs, mine = server.submit("theirs"), server.submit("mine", priority=-1)
    reserve(server, theirs, "elsewhere/1/1.0", "elsewhere", 3600.0)
    server.supervisor.start()
    server.reach(mine, JobState.FAILED)
    assert reserved_by(server, theirs) == "elsewhere/1/1.0"
    with server.database.write() as session:
        jobs.get(session, theirs).leased_until = leases.clock(session)
    assert server.reach(theirs, JobState.FAILED).error == "as told"


def test_a_job_is_given_back_where_no_process_can_be_started(server: Server) -> None:
    job_id = server.submit("never")
    engine = replace(server.engine, command=(str(server.work / "no such program"),))
    with pytest.raises(DietCodeError, match="no worker can be started"):
        server.supervisor._start_next(engine)
    assert reserved_by(server, job_id) is None
    with server.database.read() as session:
        assert slots.holders(session) == {}


def claimed(server: Server, runner: str, beat: datetime) -> str:
    job_id = server.submit("claimed")
    with server.database.write() as session:
        assert jobs.claim(session, job_id, runner, now=beat)
        assert slots.take(session, socket.gethostname(), runner, job_id, LEASE_SECS, now=beat)
    return job_id


def test_a_job_of_a_worker_that_is_dead_is_interrupted_at_start(server: Server) -> None:
    job_id = claimed(server, f"{socket.gethostname()}/999999999/1.0", datetime.now(UTC))
    server.supervisor.start()
    row = server.reach(job_id, JobState.INTERRUPTED, timeout_secs=60)
    assert row.error is not None and "died with its server" in row.error


def test_a_job_of_a_worker_that_lives_is_left_alone_and_nothing_runs_beside_it(server: Server) -> None:
    job_id = claimed(server, runner_name(), datetime.now(UTC))
    other = server.submit("other")
    server.supervisor.start()
    time.sleep(1.2)
    assert server.row(job_id).state == JobState.RUNNING.value
    assert server.row(other).state == JobState.QUEUED.value


@pytest.mark.parametrize(("age_secs", "lost"), [(1.0, False), (LEASE_SECS + 1, True)])
@pytest.mark.parametrize("where", ["elsewhere", "here"])
def test_a_worker_is_judged_by_its_lease(server: Server, where: str, age_secs: float, lost: bool) -> None:
    beat = datetime.now(UTC) - timedelta(seconds=age_secs)
    job_id = claimed(server, "elsewhere/1/1.0" if where == "elsewhere" else runner_name(), beat)
    server.supervisor.start()
    if lost:
        server.reach(job_id, JobState.INTERRUPTED, timeout_secs=60)
    else:
        time.sleep(1.2)
        assert server.row(job_id).state == JobState.RUNNING.value


def test_a_worker_whose_job_was_taken_away_ends_itself(server: Server) -> None:
    server.supervisor.start()
    job_id = server.submit("waits")
    processes = server.processes("waits")
    with server.database.write() as session:
        assert jobs.finish(session, job_id, JobState.INTERRUPTED, error="by a test")
    assert gone(processes)
    assert server.row(job_id).error == "by a test"
