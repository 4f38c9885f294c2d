"""What the supervisor decides, with worker processes that only wait."""

from __future__ import annotations

import itertools
import socket
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_libraries import spec_data

from dietcode.protocol import JobState
from dietcode.workload.parse import spec_from_data
from dietcode_server.engine.processes import LocalEngine
from dietcode_server.engine.runner import runner_name
from dietcode_server.engine.supervisor import Supervisor
from dietcode_server.store import jobs
from dietcode_server.store.database import Database
from dietcode_server.store.tables import JobRow

LOST_AFTER_SECS = 15.0


class Server:
    """A database, an engine of simple workers, and supervisors over them."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'dietcode.db'}"
        self.database = Database(self.url)
        self.database.upgrade()
        self.work = folder / "work"
        worker = str(Path(__file__).with_name("simple_worker.py"))
        self.engine = LocalEngine(
            self.url, self.work, folder / "logs", heartbeat_secs=0.1, command=(sys.executable, worker)
        )
        self.supervisor = self.new_supervisor()

    def new_supervisor(self) -> Supervisor:
        return Supervisor(self.database, self.engine, LOST_AFTER_SECS)

    def submit(self, name: str) -> str:
        spec = spec_from_data(spec_data(name))
        device = ("d", "a device", {"kind": "llvm"})
        with self.database.write() as session:
            row, _ = jobs.submit(
                session,
                spec=spec,
                target={"kind": "llvm"},
                device=device,
                runnable=True,
                force=False,
                idempotency_key=None,
            )
            job_id = row.id
        self.supervisor.wake()
        return job_id

    def row(self, job_id: str) -> JobRow:
        with self.database.read() as session:
            found = jobs.get(session, job_id)
            session.expunge(found)
        return found

    def reach(self, job_id: str, *states: JobState, timeout_secs: float = 20.0) -> JobRow:
        wanted = {state.value for state in states}
        found: JobRow = self.wait(lambda: (row := self.row(job_id)).state in wanted and row, timeout_secs)
        return found

    def wait(self, until: Callable[[], Any], timeout_secs: float = 20.0) -> Any:
        deadline = time.monotonic() + timeout_secs
        while not (found := until()):
            assert time.monotonic() < deadline, "it does not happen"
            time.sleep(0.02)
        return found

    def processes(self, name: str) -> list[psutil.Process]:
        """Worker and its child."""
        path = self.work / f"{name}.pids"
        text = self.wait(lambda: path.exists() and path.read_text())
        return [psutil.Process(int(pid)) for pid in text.split()]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.supervisor.stop()
    made.database.dispose()


def gone(processes: list[psutil.Process], timeout_secs: float = 10.0) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=timeout_secs)
    return all(p.status() == psutil.STATUS_ZOMBIE for p in alive)


def test_jobs_run_one_after_another_oldest_first(server: Server) -> None:
    ids = [server.submit(name) for name in ("first", "second", "third")]
    server.supervisor.start()
    rows = [server.reach(job_id, JobState.FAILED) for job_id in ids]
    assert [row.error for row in rows] == ["as told"] * 3 and all(row.attempt == 1 for row in rows)
    for earlier, later in itertools.pairwise(rows):
        assert earlier.finished_at is not None and later.started_at is not None
        assert earlier.finished_at <= later.started_at
    assert server.supervisor.healthy()


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
    row = server.reach(job_id, JobState.INTERRUPTED, timeout_secs=15)
    assert row.error is not None and "killed by signal 9" in row.error and f"resume {job_id}" in row.error
    assert gone(processes), "its child went with it"
    (server.work / "waits.pids").unlink()
    with server.database.write() as session:
        jobs.resume(session, job_id)
    server.supervisor.wake()
    server.processes("waits")
    assert server.row(job_id).state == JobState.RUNNING.value and server.row(job_id).attempt == 2


@pytest.mark.parametrize(
    ("name", "says", "attempts"),
    [("crashes", "killed by signal 6", 1), ("unclaimed", "ended with status 5", 1)],
)
def test_a_worker_that_ends_too_early(server: Server, name: str, says: str, attempts: int) -> None:
    server.supervisor.start()
    row = server.reach(server.submit(name), JobState.INTERRUPTED)
    assert row.error is not None and says in row.error and row.attempt == attempts


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


def claimed(server: Server, runner: str, beat: datetime) -> str:
    job_id = server.submit("claimed")
    with server.database.write() as session:
        assert jobs.claim(session, job_id, runner, now=beat)
    return job_id


def test_a_job_of_a_worker_that_is_dead_is_interrupted_at_start(server: Server) -> None:
    job_id = claimed(server, f"{socket.gethostname()}/999999999/1.0", datetime.now(timezone.utc))
    server.supervisor.start()
    row = server.reach(job_id, JobState.INTERRUPTED, timeout_secs=10)
    assert row.error is not None and "died with an earlier server" in row.error


def test_a_job_of_a_worker_that_lives_is_left_alone_and_nothing_runs_beside_it(server: Server) -> None:
    job_id = claimed(server, runner_name(), datetime.now(timezone.utc) - timedelta(hours=1))
    other = server.submit("other")
    server.supervisor.start()
    time.sleep(1.2)
    assert server.row(job_id).state == JobState.RUNNING.value
    assert server.row(other).state == JobState.QUEUED.value


@pytest.mark.parametrize(("age_secs", "lost"), [(1.0, False), (LOST_AFTER_SECS + 1, True)])
def test_a_worker_elsewhere_is_judged_by_its_heartbeat(server: Server, age_secs: float, lost: bool) -> None:
    beat = datetime.now(timezone.utc) - timedelta(seconds=age_secs)
    job_id = claimed(server, "elsewhere/1/1.0", beat)
    server.supervisor.start()
    if lost:
        server.reach(job_id, JobState.INTERRUPTED, timeout_secs=10)
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
