"""Decides what runs: one job at a time, the oldest first; ends what is cancelled; marks what died.

All decisions are made from the job rows, so that a restarted server goes on where an earlier one stopped.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime, timedelta, timezone

from dietcode.errors import DietCodeError
from dietcode.protocol import JobState
from dietcode_server.engine.processes import LocalEngine, WorkerProcess
from dietcode_server.engine.runner import is_alive, is_on_this_host
from dietcode_server.store import jobs
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
    lost_after_secs : float
        A running job whose worker cannot be seen from here counts as lost when its heartbeat is older.
    """

    def __init__(self, database: Database, engine: LocalEngine, lost_after_secs: float) -> None:
        self._database = database
        self._engine = engine
        self._lost_after = timedelta(seconds=lost_after_secs)
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
            running = jobs.running(session)
            session.expunge_all()
        self._look_after_own(running)
        for job in running:
            if self._worker is None or job.id != self._worker.job_id:
                self._look_after_other(job)
        if self._worker is None:
            self._start_next()

    def _look_after_own(self, running: list[JobRow]) -> None:
        worker = self._worker
        if worker is None:
            return
        job = next((j for j in running if j.id == worker.job_id), None)
        if job is not None and job.cancel_requested:
            worker.end()
        status = worker.exit_status()
        if status is None:
            return
        self._worker = None
        with self._database.write() as session:
            row = jobs.get(session, worker.job_id)
            if row.state == JobState.QUEUED.value:  # it never got as far as claiming it
                jobs.claim(session, row.id, worker.runner)
            if row.cancel_requested:
                jobs.finish(session, row.id, JobState.CANCELLED, runner=worker.runner)
            else:
                error = f"its worker {_how_it_ended(status)}; `dietcode resume {row.id}` goes on"
                jobs.finish(session, row.id, JobState.INTERRUPTED, error=error, runner=worker.runner)

    def _look_after_other(self, job: JobRow) -> None:
        """A job that an earlier server, or another machine, works on."""
        runner = job.runner or ""
        if is_on_this_host(runner):
            lost = not is_alive(runner)
        else:
            beat = job.heartbeat_at or job.updated_at
            lost = datetime.now(timezone.utc) - beat > self._lost_after
        if not lost:
            return
        with self._database.write() as session:
            if job.cancel_requested:
                jobs.finish(session, job.id, JobState.CANCELLED, runner=job.runner)
            else:
                error = f"its worker died with an earlier server; `dietcode resume {job.id}` goes on"
                jobs.finish(session, job.id, JobState.INTERRUPTED, error=error, runner=job.runner)

    def _start_next(self) -> None:
        """Start the oldest queued job where no other runs: a device has one measuring slot."""
        with self._database.read() as session:
            job = None if jobs.running(session) else jobs.next_queued(session)
            job_id = None if job is None else job.id
        if job_id is not None:
            self._worker = self._engine.start(job_id)
            _log.info("started", extra={"job": job_id, "worker": self._worker.runner})

    def _hand_back(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        worker.end()
        try:
            with self._database.write() as session:
                row = jobs.get(session, worker.job_id)
                state = JobState.CANCELLED if row.cancel_requested else JobState.QUEUED
                jobs.finish(session, row.id, state, runner=worker.runner)
        except DietCodeError as error:  # the next server finds the worker dead
            _log.error("%s", error)


def _how_it_ended(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
