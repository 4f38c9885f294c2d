"""Decides what runs: one job at a time in this process's slot, by priority and age; ends what is cancelled or
too late; queues again, or gives up, what lost its worker.

All decisions are made from the rows, so that a restarted server goes on where an earlier one stopped, and
several servers and workers share one database. A job, and the slot where it measures, is reserved before a
process is started for it: idle supervisors that are alike begin with different jobs.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from datetime import datetime
from functools import partial

from dietcode.errors import DietCodeError
from dietcode.protocol import JobState
from dietcode_server.engine.placement import Placement
from dietcode_server.engine.processes import LocalEngine, WorkerProcess
from dietcode_server.engine.runner import is_alive, is_on_this_host, runner_name
from dietcode_server.engine.worker import NOT_CLAIMED
from dietcode_server.store import jobs, leases, slots, waiting
from dietcode_server.store.clock import clock
from dietcode_server.store.database import Database
from dietcode_server.store.tables import JobRow

_POLL_SECS = 0.5
_STALLED_SECS = 30.0
_STOP_SECS = 10.0
_JOIN_SECS = 0.1
_LET_GO_SECS = 10.0  # until a worker whose job is over, or another's, must have ended
_log = logging.getLogger("dietcode.supervisor")


class Supervisor:
    """A thread of a server or worker.

    Parameters
    ----------
    engine : LocalEngine or None
        None: nothing runs here; what others run is looked after all the same.
    max_attempts, retry_secs : int, float
        As of `leases.lost`.
    placement : Placement, optional
        Which jobs this machine can measure.
    patience_secs : float or None
        Jobs that were queued for so long for a device that nobody announces wait for a runner, and say so;
        None: they stay queued.
    only_one : bool
        Take one job at most: see `finished`.
    """

    def __init__(
        self,
        database: Database,
        engine: LocalEngine | None,
        max_attempts: int = leases.MAX_ATTEMPTS,
        retry_secs: float = leases.RETRY_SECS,
        placement: Placement | None = None,
        patience_secs: float | None = None,
        only_one: bool = False,
    ) -> None:
        self._database = database
        self._engine = engine
        self._lost = partial(leases.lost, max_attempts=max_attempts, retry_secs=retry_secs)
        self._placement = placement or Placement()
        self._patience_secs, self._only_one = patience_secs, only_one
        self._set_aside_at = time.monotonic()
        self._name = runner_name()
        self.finished = threading.Event()
        self._worker: WorkerProcess | None = None
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._last_turn, self._error = time.monotonic(), ""
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
        until = time.monotonic() + _STOP_SECS
        while self._thread.is_alive() and time.monotonic() < until:
            if self._placement.is_resolving and self._worker is None:
                return  # nothing is begun after the compiler has answered
            self._thread.join(_JOIN_SECS)

    def healthy(self) -> bool:
        """Return whether the thread acts and the database answers it."""
        return not self.trouble()

    def trouble(self) -> str:
        """Return why no job is looked after, and what to do; '' where all of them are."""
        silent_secs, error = time.monotonic() - self._last_turn, self._error
        if not self._thread.is_alive():
            return "the engine that runs jobs has stopped; restart the server"
        if silent_secs < _STALLED_SECS:
            return ""
        if error:
            return f"the engine that runs jobs has failed for {silent_secs:.0f} s, and tries on: {error}"
        return (
            f"the engine that runs jobs is busy since {silent_secs:.0f} s; restart the server if it stays so"
        )

    def working_on(self) -> str | None:
        """The id of the job that runs here, or is about to."""
        worker = self._worker
        return None if worker is None else worker.job_id

    def num_looks(self) -> int:
        """How often it was looked again for what this machine can measure."""
        return self._placement.num_looks

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._turn()
                self._last_turn, self._error = time.monotonic(), ""
            except DietCodeError as error:  # a full disk, a busy database: try again
                self._error = str(error).removeprefix(f"{self._database.location}: ")
                _log.error("%s", error)
            except Exception as error:
                self._error = type(error).__name__
                _log.exception("the supervisor goes on")
            self._wake.wait(_POLL_SECS)
            self._wake.clear()
        self._hand_back()

    def _turn(self) -> None:
        """Look at everything once."""
        with self._database.read() as session:
            now = clock(session)
            running = jobs.running(session, on=socket.gethostname(), now=now)
            overdue = leases.has_overdue(session, now)
            session.expunge_all()
        if overdue:
            with self._database.write() as session:
                leases.fail_overdue(session)
        self._look_after_own(running, now)
        for job in running:
            if self._worker is None or job.id != self._worker.job_id:
                self._look_after_other(job, now)
        self._set_aside()
        if self._worker is None and self._engine is not None and not self.finished.is_set():
            self._start_next(self._engine)

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
        elif job is not None:
            worker.has_claimed = True
        elif worker.has_claimed and _is_late(worker):
            worker.end()
        status = worker.exit_status()
        if status is None:
            return
        self._worker = None
        if status == NOT_CLAIMED:
            with self._database.write() as session:
                leases.release(session, worker.job_id, self._name)
            self._wake.set()  # there may be another one
            return
        if self._only_one:
            self.finished.set()
        with self._database.write() as session:
            row = jobs.get(session, worker.job_id)
            if (row.state, row.runner) == (JobState.QUEUED.value, self._name):
                jobs.claim(session, row.id, worker.runner)  # which the worker never got as far as
            self._lost(session, worker.job_id, worker.runner, how or f"its worker {_how_it_ended(status)}")
            slots.free(session, worker.runner)
            leases.release(session, worker.job_id, self._name)
            was_given_back = row.state == JobState.WAITING_FOR_RUNNER.value
        if was_given_back:
            self._placement.give_back(worker.job_id)

    def _look_after_other(self, job: JobRow, now: datetime) -> None:
        """A job that an earlier server, or another one, works on."""
        runner = job.runner or ""
        died = is_on_this_host(runner) and not is_alive(runner)
        if not died and not leases.is_expired(job, now):
            return
        how = "its worker died with its server" if died else "its worker was silent for too long"
        with self._database.write() as session:
            self._lost(session, job.id, runner, how)
            if died:
                slots.free(session, runner)

    def _start_next(self, engine: LocalEngine) -> None:
        """Start the first of the queue where nothing measures in this process's slot."""
        knows = self._placement.knows()  # before it looks for jobs
        self._placement.take_up(self._database)
        if engine.slot is not None and self._is_taken(engine.slot):
            return
        job = self._placement.next_job(self._database)
        if self._stop.is_set():
            return
        if job is None and self._only_one and knows:
            self.finished.set()
        reserved = None if job is None else self._reserve(engine)
        if reserved is None:
            return  # no job, or others were faster
        try:
            self._worker = engine.start(reserved)
        except DietCodeError:
            with self._database.write() as session:
                leases.release(session, reserved, self._name)
            raise
        _log.info("started", extra={"job": reserved, "worker": self._worker.runner})

    def _is_taken(self, slot: str) -> bool:
        """Return whether another measures there, or is about to, unless it died on this host."""
        with self._database.read() as session:
            held = slots.holder(session, slot)
            session.expunge_all()
        if held is None:
            return False
        died = is_on_this_host(held.runner) and not is_alive(held.runner)
        if died:
            with self._database.write() as session:
                leases.release(session, held.job_id, held.runner)
        return not died

    def _reserve(self, engine: LocalEngine) -> str | None:
        """The first job that is for this machine, with its slot: for as long as a worker may be silent."""
        secs = engine.lease_secs
        with self._database.write() as session:
            here, builds = self._placement.here(), self._placement.builds
            found = leases.reserve(session, self._name, secs, of=here, builds=builds)
            if found is None or engine.slot is None:
                return found
            if slots.take(session, engine.slot, self._name, found, secs):
                return found
            leases.release(session, found, self._name)
            return None

    def _set_aside(self) -> None:
        """Say of jobs that nobody can measure any more what they wait for."""
        if self._patience_secs is None or time.monotonic() - self._set_aside_at < self._patience_secs:
            return
        self._set_aside_at = time.monotonic()
        with self._database.write() as session:
            for job_id in waiting.set_aside(session, self._patience_secs):
                _log.warning("nobody announces its device", extra={"job": job_id})

    def _hand_back(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        worker.end()
        try:
            with self._database.write() as session:
                jobs.finish(session, worker.job_id, JobState.QUEUED, runner=worker.runner, ended=True)
                slots.free(session, worker.runner)
                leases.release(session, worker.job_id, self._name)
        except DietCodeError as error:  # the next server finds the worker dead
            _log.error("%s", error)


def _is_late(worker: WorkerProcess) -> bool:
    """Return whether a worker holds no job but still runs: a stopped one keeps its locks."""
    worker.let_go_at = worker.let_go_at or time.monotonic()
    return time.monotonic() - worker.let_go_at > _LET_GO_SECS


def _how_it_ended(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
