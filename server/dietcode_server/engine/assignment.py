"""A job that this process has claimed, and what it works with."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dietcode.bench.confined import Compare
from dietcode.errors import TargetError
from dietcode.measure.engine_spec import EngineSpec
from dietcode.protocol import JobState
from dietcode.workload.spec import TargetSpec
from dietcode_server.engine.holding import Heartbeat, HeldChildren
from dietcode_server.engine.reporter import Reporter
from dietcode_server.limits import SizeLimits
from dietcode_server.store import architectures, jobs
from dietcode_server.store.database import Database
from dietcode_server.store.patience import patiently
from dietcode_server.store.tables import JobRow

if TYPE_CHECKING:
    from dietcode.measure.engine import Device, Engine

_log = logging.getLogger("dietcode.worker")


@dataclass(frozen=True)
class Assignment:
    """A claimed job.

    Attributes
    ----------
    runner : str
        Who holds it: this process.
    work_root : Path
        Folder of what running jobs need.
    engine : EngineSpec
        Where it builds and measures.
    compare : str
        What its libraries are measured beside.
    limits : SizeLimits or None
        What the parts of a model are compared with.
    """

    database: Database
    job: JobRow
    runner: str
    work_root: Path
    heartbeat: Heartbeat
    engine: EngineSpec
    compare: Compare = "none"
    limits: SizeLimits | None = None

    def reporter(self) -> Reporter:
        """Return one that writes the job's events."""
        return Reporter(self.database, self.job.id, self.runner)

    def device_of(self, engine: Engine, target: TargetSpec) -> Device | None:
        """Return the job's device; None where it is not the engine's, or records would have been needed."""
        job = self.job
        if not job.measure and architectures.names_one(job.target):
            return None
        try:
            device = engine.resolve(target)
        except TargetError as error:
            _log.warning("%s", error, extra={"job": job.id})
            return None
        is_same = device.target.to_json() == job.target and device.record["id"] == job.device_id
        return device if is_same else None

    def children(self, engine: Engine, device: Device, stack: ExitStack, reporter: Reporter) -> HeldChildren:
        """Open what builds and measures on the device, alone on it until the stack is closed."""
        found = stack.enter_context(engine.children(device, reporter.on_wait))
        held = self.heartbeat
        return HeldChildren(found, held.holds, lambda slot: held.take(slot, reporter.on_wait))

    def finish(self, state: JobState, error: str | None = None) -> None:
        """End the job, if it is still this worker's."""

        def attempt() -> None:
            with self.database.write() as session:
                jobs.finish(session, self.job.id, state, error=error, runner=self.runner)

        patiently(attempt)
