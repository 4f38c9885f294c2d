"""Which queued jobs this machine can measure, where servers on several machines share one queue."""

from __future__ import annotations

import logging

from dietcode.errors import DietCodeError, ServerError
from dietcode.workload.parse import spec_from_data
from dietcode_server.engine.targets import Targets
from dietcode_server.store import jobs, leases
from dietcode_server.store.database import Database
from dietcode_server.store.tables import JobRow

_log = logging.getLogger("dietcode.placement")


class Placement:
    """Remembers which devices are this machine's: a device's id stands for its processor and its target.

    Parameters
    ----------
    targets : Targets or None
        None where no other server shares the database: then every job is tried here, and the worker itself
        sees whether the machine is the right one.
    """

    def __init__(self, targets: Targets | None = None) -> None:
        self._targets = targets
        self._is_here: dict[str, bool] = {}

    def next_job(self, database: Database) -> JobRow | None:
        """The first of the queue that can be measured here; without its spec."""
        while True:
            elsewhere = [device for device, here in self._is_here.items() if not here]
            with database.read() as session:
                job = leases.next_queued(session, not_for=elsewhere)
                session.expunge_all()
            if job is None or self._can_run(database, job):
                return job
            if job.device_id not in self._is_here:
                return None  # it cannot be found out now

    def _can_run(self, database: Database, job: JobRow) -> bool:
        if self._targets is None or job.device_id is None:
            return True
        if job.device_id not in self._is_here:
            with database.read() as session:
                spec = jobs.get(session, job.id).spec
            try:
                found = self._targets.resolve(spec_from_data(spec))
                here = found.runnable and found.device is not None and found.device[0] == job.device_id
            except ServerError as error:
                _log.warning("job %s: %s", job.id, error)
                return False
            except DietCodeError:
                here = False
            self._is_here[job.device_id] = here
        return self._is_here[job.device_id]
