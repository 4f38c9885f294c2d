"""Decides what runs: one job at a time on this machine, by priority and age; ends what is cancelled or too
late; queues again, or gives up, what lost its worker.

All decisions are made from the job rows, so that a restarted server goes on where an earlier one stopped, and
several servers share one database.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime
from functools import partial

from dietcode.errors import DietCodeError
from dietcode.protocol import JobState
from dietcode_server.engine.placement import Placement
from dietcode_server.engine.processes import LocalEngine, WorkerProcess
from dietcode_server.engine.runner import is_alive, is_on_this_host
from dietcode_server.engine.worker import NOT_CLAIMED
from dietcode_server.store import jobs, leases
from dietcode_server.store.database import Database
from dietcode_server.store.tables import JobRow

_POLL_SECS = 0.5
_STALLED_SECS = 30.0
_STOP_SECS = 10.0
_log = logging.getLogger("dietcode.supervisor")


class Supervisor:
    """A thread of the server.

    Parameters
    ----------
    max_attempts, retry_secs : int, float
        As of `leases.lost`.
    placement : Placement, optional
        Which jobs this machine can measure.
    """

    def __init__(
        self,
        database: Database,
        engine: LocalEngine,
        max_attempts: int = leases.MAX_ATTEMPTS,
        retry_secs: float = leases.RETRY_SECS,
        placement: Placement | None = None,
    ) -> None:
        self._database = database
        self._engine = engine
        self._lost = partial(leases.lost, max_attempts=max_attempts, retry_secs=retry_secs)
        self._placement = placement or Placement()
        self._worker: WorkerProcess | None = None
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._last_turn = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Begin to act."""
        self._thread.start()

    def wake(self) -> None:
        """Act at once: a job was added, resumed or cancelled."""
        self._wake.set()

    def stop(self) -> None:
        """End the worker and hand its job back to the queue; the next server goes on with it."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECS)

    def healthy(self) -> bool:
        """Whether the thread acts and the database answers it."""
        return self._thread.is_alive() and time.monotonic() - self._last_turn < _STALLED_SECS

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._turn()
                self._last_turn = time.monotonic()
            except DietCodeError as error:  # a full disk, a busy database: try again
                _log.error("%s", error)
            except Exception:
                _log.exception("the supervisor goes on")
            self._wake.wait(_POLL_SECS)
            self._wake.clear()
        self._hand_back()

    def _turn(self) -> None:
        """Look at everything once."""
        with self._database.read() as session:
            now = leases.clock(session)
            running = jobs.running(session)
            overdue = leases.has_overdue(session, now)
            session.expunge_all()
        if overdue:
            with self._database.write() as session:
                leases.fail_overdue(session)
        self._look_after_own(running, now)
        for job in running:
            if self._worker is None or job.id != self._worker.job_id:
                self._look_after_other(job, now)
        if self._worker is None:
            self._start_next()

    def _look_after_own(self, running: list[JobRow], now: datetime) -> None:
        """End this server's worker where it is to end; where it has ended, see to its job."""
        worker = self._worker
        if worker is None:
            return
        job = next((j for j in running if (j.id, j.runner) == (worker.job_id, worker.runner)), None)
        how = None
        if job is not None and (job.cancel_requested or leases.is_overdue(job, now)):
            worker.end()
        elif job is not None and leases.is_expired(job, now):
            how = "its worker was silent for too long"
            worker.end()
        status = worker.exit_status()
        if status is None:
            return
        self._worker = None
        if status == NOT_CLAIMED:
            return
        with self._database.write() as session:
            row = jobs.get(session, worker.job_id)
            if row.state == JobState.QUEUED.value and row.attempt == worker.attempts_before:
                jobs.claim(session, row.id, worker.runner)  # which the worker never got as far as
            self._lost(session, worker.job_id, worker.runner, how or f"its worker {_how_it_ended(status)}")

    def _look_after_other(self, job: JobRow, now: datetime) -> None:
        """A job that an earlier server, or another one, works on."""
        runner = job.runner or ""
        died = is_on_this_host(runner) and not is_alive(runner)
        if not died and not leases.is_expired(job, now):
            return
        how = "its worker died with its server" if died else "its worker was silent for too long"
        with self._database.write() as session:
            self._lost(session, job.id, runner, how)

    def _start_next(self) -> None:
        """Start the first of the queue where nothing runs on this machine: it has one measuring slot."""
        with self._database.read() as session:
            if any(is_on_this_host(job.runner or "") for job in jobs.running(session)):
                return
        job = self._placement.next_job(self._database)
        if job is not None:
            self._worker = self._engine.start(job.id, job.attempt)
            _log.info("started", extra={"job": job.id, "worker": self._worker.runner})

    def _hand_back(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        worker.end()
        try:
            with self._database.write() as session:
                jobs.finish(session, worker.job_id, JobState.QUEUED, runner=worker.runner, ended=True)
        except DietCodeError as error:  # the next server finds the worker dead
            _log.error("%s", error)


def _how_it_ended(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
