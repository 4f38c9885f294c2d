"""Announcing what this process can measure, for as long as it lives."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from dietcode._version import __version__
from dietcode.errors import ConflictError, DietCodeError
from dietcode_server.engine.runner import is_alive, is_on_this_host, runner_name
from dietcode_server.engine.supervisor import Supervisor
from dietcode_server.engine.targets import Targets
from dietcode_server.store import runners
from dietcode_server.store.clock import clock
from dietcode_server.store.database import Database
from dietcode_server.store.runners import AnnouncedDevice

_RETRY_SECS = 1.0
_log = logging.getLogger("dietcode.announcer")


def announced(targets: Targets, slot: str) -> list[AnnouncedDevice]:
    """Return what a runner's engine measures on.

    That is this machine's processor and GPU, the machines of a cluster, or the device behind an RPC key once
    it is known.

    Parameters
    ----------
    slot : str
        Of the local engine; others have one for each device.

    Raises
    ------
    DietCodeError
        It cannot be found out.
    """
    return [
        AnnouncedDevice(
            *found.device,
            host=found.host,
            slot=slot if targets.engine.kind == "local" else found.slot,
            builds_for_gpus=targets.builds_for_gpus,
        )
        for found in targets.devices()
        if found.device is not None
    ]


class Announcer:
    """A thread of a server or worker that runs jobs.

    Parameters
    ----------
    devices : callable
        What it can measure; asked until it says so without an error, and again where a worker did not find
        its device; of other engines than the local one again and again.
    supervisor : Supervisor
        Who runs the jobs; while it does not work, nothing is announced.
    name : str or None
        What people call it; by default the process: ``host/pid/start time``.
    engine : str
        How it measures: local, ray or rpc.
    """

    def __init__(
        self,
        database: Database,
        devices: Callable[[], Sequence[AnnouncedDevice]],
        supervisor: Supervisor,
        *,
        name: str | None = None,
        engine: str = "local",
        interval_secs: float = 2.0,
        lease_secs: float = 15.0,
    ) -> None:
        self._database, self._find, self._supervisor = database, devices, supervisor
        self.process = runner_name()
        self.name = name or self.process
        self.devices: Sequence[AnnouncedDevice] = ()
        self._engine, self._lease_secs = engine, lease_secs
        self._comes_and_goes = engine != "local"
        self._num_looks = 0
        self._interval_secs = min(interval_secs, lease_secs / 3)
        with database.read() as session:
            self._started_at = clock(session)
        self._announced, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)

    def check_name(self, stop: threading.Event) -> None:
        """Wait for a name that an earlier process had, until its announcement does not count any more.

        Parameters
        ----------
        stop : threading.Event
            Waits no longer once it is set.

        Raises
        ------
        ConflictError
            A process that lives has it.
        """
        deadline = time.monotonic() + self._lease_secs + _RETRY_SECS
        while True:
            with self._database.read() as session:
                row = next((row for row in runners.live(session) if row.name == self.name), None)
                other = None if row is None or row.process == self.process else row.process
            if other is None:
                return
            if is_on_this_host(other) and not is_alive(other):
                with self._database.write() as session:
                    runners.withdraw(session, other)
            elif time.monotonic() > deadline:
                raise ConflictError(
                    f"--name: given {self.name!r}, which {other} has; choose another, or end that one"
                )
            elif stop.wait(_RETRY_SECS):
                return

    def start(self) -> None:
        """Begin to announce."""
        self._thread.start()

    def stop(self) -> None:
        """Take the announcement back."""
        self._stop.set()
        if not self._announced.is_set():
            return  # it may be asking the compiler still
        self._thread.join(self._lease_secs)
        try:
            with self._database.write() as session:
                runners.withdraw(session, self.process)
        except DietCodeError as error:  # it counts for a lease at most
            _log.warning("%s", error)

    def wait(self, secs: float | None = None) -> bool:
        """Return whether it has announced itself, within so many seconds."""
        return self._announced.wait(secs)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._announce()
            except DietCodeError as error:
                _log.error("%s", error)
            except Exception:
                _log.exception("announcing goes on")
            self._stop.wait(self._interval_secs if self._announced.is_set() else _RETRY_SECS)

    def _announce(self) -> None:
        looks = self._supervisor.num_looks()
        if looks != self._num_looks or not self.devices:
            self.devices = self._find()
            self._num_looks = looks
        if self._stop.is_set() or not self._supervisor.healthy():
            return
        with self._database.write() as session:
            done = runners.announce(
                session,
                name=self.name,
                process=self.process,
                engine=self._engine,
                version=__version__,
                devices=self.devices,
                started_at=self._started_at,
                lease_secs=self._lease_secs,
                job_id=self._supervisor.working_on(),
            )
        if not done:
            raise ConflictError(f"another runner is announced as {self.name!r}")
        self._announced.set()
        if self._comes_and_goes:  # after it was announced: asking a cluster takes seconds
            self.devices = self._find()
