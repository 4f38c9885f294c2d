"""How a worker holds its job and the slot where it measures, and stops in time where it loses them.

Three things keep a worker that stood still (a machine that slept, a process that was stopped) from measuring
beside the one that has its slot by then. Its heartbeat looks at the clock before anything else, and ends the
process with all its descendants where the lease is over; `HeldChildren` begin no build and no measurement
without a look at the same clock; and the database takes nothing that it writes. On one machine
`dietcode.measure.local.measuring_slot` comes on top: the lock on a file is held until the process is gone.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dietcode_server.engine.runner import end_descendants
from dietcode_server.store import jobs, slots
from dietcode_server.store.database import Database, StoreError
from dietcode_server.store.leases import LEASE_SECS, LeaseLostError
from dietcode_server.store.patience import patiently

if TYPE_CHECKING:
    from dietcode.measure.children import Children
    from dietcode.measure.requests import (
        BuildRequest,
        BuildResult,
        CheckRequest,
        CheckResult,
        TimeRequest,
        TimeResult,
    )
    from dietcode.measure.seed_search import Progress, SeedRequest, SeedResult, SeedSearch

_SLOT_POLL_SECS = 0.5
_log = logging.getLogger("dietcode.worker")


def clock_secs() -> float:
    """Seconds that go on while the machine sleeps, where the system counts them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Heartbeat(threading.Thread):
    """Prolongs this worker's leases; ends the worker where the job or a slot is no longer its own.

    Parameters
    ----------
    slot : str or None
        Taken with the claim; then it is the only one. None: `take` is called for those that become known.
    since : float or None
        When the claim began, by `clock_secs`; by default now.
    """

    def __init__(
        self,
        database: Database,
        job_id: str,
        runner: str,
        interval_secs: float,
        lease_secs: float = LEASE_SECS,
        slot: str | None = None,
        since: float | None = None,
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._database, self._job_id, self._runner = database, job_id, runner
        self._lease_secs = lease_secs
        self._interval_secs = min(interval_secs, lease_secs / 3)
        self._slots, self._knows_slot = [] if slot is None else [slot], slot is not None
        self._held_until = (clock_secs() if since is None else since) + lease_secs
        self._done = threading.Event()

    def run(self) -> None:
        """Stamp until `stop`; a database that is busy or full for less than a lease does not end the work."""
        while not self._done.wait(self._interval_secs):
            if not (self.holds() and self._prolong()) and not self._done.is_set():
                why = "cancelled, given to another worker, or the lease has run out"
                _log.warning(why, extra={"job": self._job_id})
                end_descendants()
                os.kill(os.getpid(), signal.SIGKILL)

    def stop(self) -> None:
        """Stop the stamps."""
        self._done.set()

    def holds(self) -> bool:
        """Return whether the lease lasts by this machine's clock, never longer than the database's."""
        return clock_secs() < self._held_until

    def take(self, slot: str, on_wait: Callable[[str], None]) -> None:
        """Take a slot that became known after the claim; wait where another job measures there.

        Nothing happens where it is held, or where the claim took the slot of the job.

        Parameters
        ----------
        told : callable
            Called with one line where it has to wait.

        Raises
        ------
        StoreError
            The database cannot be written.
        """
        if self._knows_slot or slot in self._slots:
            return
        waits = False
        while not patiently(lambda: self._try(slot)):
            if not waits:
                on_wait(f"another job measures on {slot}; waiting for it")
            waits = True
            time.sleep(_SLOT_POLL_SECS)
        self._slots.append(slot)

    def _try(self, slot: str) -> bool:
        with self._database.write() as session:
            return slots.take(session, slot, self._runner, self._job_id, self._lease_secs)

    def _prolong(self) -> bool:
        began = clock_secs()
        try:
            with self._database.write() as session:
                mine = jobs.heartbeat(session, self._job_id, self._runner, lease_secs=self._lease_secs)
                mine = mine and all(
                    slots.renew(session, slot, self._runner, self._lease_secs) for slot in self._slots
                )
        except StoreError as error:
            _log.warning("heartbeat: %s", error, extra={"job": self._job_id})
            return self.holds()
        self._held_until = began + self._lease_secs
        return mine


class HeldChildren:
    """Builder and runner of one job, which begin nothing once its lease is over.

    Parameters
    ----------
    children : Children
        Those that do the work; closed with this.
    holds : callable
        Whether the lease lasts.
    take : callable
        Given their `slot`, where they have one, before each call: `Heartbeat.take`.
    """

    def __init__(self, children: Children, holds: Callable[[], bool], take: Callable[[str], None]) -> None:
        self._children, self._holds, self._take = children, holds, take

    def __enter__(self) -> HeldChildren:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def build(self, requests: Sequence[BuildRequest]) -> Iterator[BuildResult]:
        """As `dietcode.measure.children.Children` has it.

        Raises
        ------
        LeaseLostError
            The lease is over.
        """
        self._check()
        return self._children.build(requests)

    def time(self, request: TimeRequest, timeout_secs: float) -> TimeResult:
        """As `build`, for one."""
        self._check()
        return self._children.time(request, timeout_secs)

    def check(self, request: CheckRequest, timeout_secs: float) -> CheckResult:
        """As `build`, for one."""
        self._check()
        return self._children.check(request, timeout_secs)

    @property
    def seeds(self) -> SeedSearch:
        """MetaSchedule, begun as everything else."""
        return _HeldSeedSearch(self._children.seeds, self._check)

    @property
    def slot(self) -> str:
        """Return what is measured on; empty where that is not known yet."""
        return self._children.slot

    def close(self) -> None:
        """End them."""
        self._children.close()

    def _check(self) -> None:
        if self.slot:
            self._take(self.slot)
        if not self._holds():
            raise LeaseLostError("the lease has run out; nothing more is measured")


class _HeldSeedSearch:
    """Begins no search once the lease is over."""

    def __init__(self, seeds: SeedSearch, check: Callable[[], None]) -> None:
        self._seeds, self._check = seeds, check

    def find(self, request: SeedRequest, work_dir: Path, progress: Progress) -> SeedResult:
        """As `dietcode.measure.seed_search.SeedSearch` has it."""
        self._check()
        return self._seeds.find(request, work_dir, progress)
