"""Which jobs this machine, or its engine, can measure, where runners on several machines share one queue."""

from __future__ import annotations

import logging
import time

from dietcode.errors import DietCodeError, ServerError
from dietcode_server.engine.targets import Resolved, Targets
from dietcode_server.store import jobs, leases, waiting
from dietcode_server.store.database import Database
from dietcode_server.store.subjects import asked_of, remember_device, utc_now
from dietcode_server.store.tables import JobRow

_TAKE_UP_SECS = 2.0
_MOST_REMEMBERED = 10_000
_KNOWN_SECS = 60.0
_log = logging.getLogger("dietcode.placement")


class Placement:
    """Remembers which devices are this machine's: a device's id stands for its processor and its target.

    Parameters
    ----------
    targets : Targets or None
        None: every job is one for this machine.

    Attributes
    ----------
    is_resolving : bool
        Whether it waits for the compiler, which takes seconds.
    num_looks : int
        How often it has forgotten what is measured here, to look again.
    """

    def __init__(self, targets: Targets | None = None) -> None:
        self._targets, self.is_resolving = targets, False
        self._is_here: dict[str, bool] = {}
        self._not_here: set[str] = set()  # jobs that wait for another machine
        self._looked_at = -_TAKE_UP_SECS
        self._resolved_at = time.monotonic()
        self._gave_back: dict[str, float] = {}  # jobs, and until when they are left alone
        self.num_looks = 0

    def give_back(self, job_id: str) -> None:
        """Leave a job alone for a while whose worker did not find its device, and look for devices again.

        A GPU that has gone from this machine would else have its jobs taken and given back without end.
        """
        self._gave_back[job_id] = time.monotonic() + _KNOWN_SECS
        self._look_again()

    def next_job(self, database: Database) -> JobRow | None:
        """The first of the queue that can be measured here; without its spec."""
        self._forget()
        is_ready = self._targets is None or self._targets.is_ready()
        unknown: list[str] = []
        while True:
            elsewhere = [device for device, here in self._is_here.items() if not here] + unknown
            with database.read() as session:
                job = leases.next_queued(session, not_for=elsewhere, builds=self.builds)
                session.expunge_all()
            if job is not None and job.device_id is not None and not is_ready:
                unknown.append(job.device_id)
                continue
            if job is None or self._can_run(database, job):
                return job
            if job.device_id not in self._is_here:
                return None  # it cannot be found out now

    def knows(self) -> bool:
        """Return whether it is known, or was tried to find out, what is measured here."""
        return self._targets is None or self._targets.has_tried()

    @property
    def builds(self) -> bool:
        """Return whether jobs that need no device can be done here: they are built for a GPU from records."""
        return self._targets is None or self._targets.builds_for_gpus

    def here(self) -> list[str] | None:
        """Devices of jobs that were found to be measured here; None: all are."""
        return None if self._targets is None else [name for name, here in self._is_here.items() if here]

    def _forget(self) -> None:
        """Machines of other engines than the local one come and go; so does a device that was missed."""
        now = time.monotonic()
        is_local = self._targets is None or self._targets.engine.kind == "local"
        if (self._gave_back or not is_local) and now - self._resolved_at > _KNOWN_SECS:
            self._gave_back = {job: until for job, until in self._gave_back.items() if until > now}
            self._look_again()

    def _look_again(self) -> None:
        self._is_here.clear()
        self._not_here.clear()
        self._resolved_at = time.monotonic()
        self.num_looks += 1
        if self._targets is not None and self._targets.engine.kind == "local":
            self._targets.forget()

    def take_up(self, database: Database) -> list[str]:
        """Queue the jobs that waited for a machine like this one; their ids. Looks every few seconds."""
        if self._targets is None or time.monotonic() - self._looked_at < _TAKE_UP_SECS:
            return []
        if not self._targets.is_ready():
            return []
        self._looked_at = time.monotonic()
        with database.read() as session:
            found = waiting.waiting(session, but=self._not_here | self._gave_back.keys())
            built = waiting.waiting_for_records(session) if self.builds else []
            session.expunge_all()
        taken = [job.id for job in found if self._take_up(database, job)]
        if built:
            with database.write() as session:
                taken += waiting.take_up_built(session)
        return taken

    def _take_up(self, database: Database, job: JobRow) -> bool:
        try:
            here = self._resolve(database, job)
        except ServerError as error:
            _log.warning("job %s: %s", job.id, error)
            return False
        if here is None or here.device is None or not waiting.fits(job, here.target):
            if len(self._not_here) >= _MOST_REMEMBERED:
                self._not_here.clear()
            self._not_here.add(job.id)
            return False
        with database.write() as session:
            return waiting.take_up(session, job.id, here.target, here.device)

    def _can_run(self, database: Database, job: JobRow) -> bool:
        if self._targets is None or job.device_id is None:
            return True
        if job.device_id not in self._is_here:
            with database.read() as session:
                whole = jobs.get(session, job.id)
                session.expunge_all()
            try:
                found = self._resolve(database, whole)
            except ServerError as error:
                _log.warning("job %s: %s", job.id, error)
                return False
            if whole.device_id != job.device_id:
                return False  # it has another device by the next time
            device = None if found is None else found.device
            self._is_here[job.device_id] = device is not None and device[0] == job.device_id
        return self._is_here[job.device_id]

    def _resolve(self, database: Database, job: JobRow) -> Resolved | None:
        """Return what a job's target stands for here; None where it cannot be measured.

        A job of an earlier version, which had another id for the device, is for the device from now on.

        Raises
        ------
        ServerError
            It cannot be found out now.
        """
        assert self._targets is not None
        self.is_resolving = True
        try:
            found = self._targets.on(asked_of(job).target)
        except ServerError:
            raise
        except DietCodeError:
            return None
        finally:
            self.is_resolving = False
        if not found.runnable or found.device is None:
            return None
        if job.device_id is not None and found.device[2].get("formerly") == job.device_id:
            with database.write() as session:
                remember_device(session, *found.device, utc_now())
            job.device_id, job.target = found.device[0], found.target
        return found
