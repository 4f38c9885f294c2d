"""Child processes on this machine: some that build, and one that measures."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from filelock import FileLock, Timeout

from dietcode.errors import TuningError
from dietcode.lean import children_without_torch
from dietcode.measure.child_process import ChildProcess, what_is_said
from dietcode.measure.children import Children, Worker
from dietcode.measure.device_kinds import DEVICE_KINDS, device_kind_of, devices_here
from dietcode.measure.engine import Device, OnWait
from dietcode.measure.handover import NO_ANSWER, Handover
from dietcode.measure.process_pool import ProcessPool
from dietcode.measure.requests import (
    BuildRequest,
    BuildResult,
    CheckRequest,
    CheckResult,
    TimeRequest,
    TimeResult,
)
from dietcode.runtime.cache import cache_dir
from dietcode.workload.target_spec import TargetSpec


class LocalChildren:
    """`dietcode.measure.children.Children` on this machine.

    Parameters
    ----------
    worker : Worker
        What runs in them.
    num_builders : int, optional
        Processes that build side by side; by default those of the worker.
    measures : bool
        Whether the measuring process is started at once.

    Attributes
    ----------
    slot : str
        This machine's name.
    """

    def __init__(
        self,
        worker: Worker,
        num_builders: int | None = None,
        build_timeout_secs: float = 60.0,
        measures: bool = True,
    ) -> None:
        self._worker = worker
        os.environ.update(worker.environment)  # the children inherit it
        self._open = contextlib.ExitStack()
        self._open.enter_context(children_without_torch())
        temporary = self._open.enter_context(
            tempfile.TemporaryDirectory(prefix="dietcode-children-", ignore_cleanup_errors=True)
        )
        self._handover = Handover(Path(temporary))
        self._builders = ProcessPool(
            num_builders or worker.num_builders, build_timeout_secs, worker.start, (temporary, False)
        )
        self._runner = ChildProcess(worker.start, (temporary, True), worker.get_ready if measures else None)
        self._build_timeout_secs = build_timeout_secs
        self._pending: list[concurrent.futures.Future[BuildResult]] = []
        self.slot = platform.node()
        self.seeds = worker.seeds

    def build(self, requests: Sequence[BuildRequest]) -> Iterator[BuildResult]:
        """As `Children.build`."""
        paths = [self._handover.new_path(request.path) for request in requests]
        pending = [
            self._builders.submit(self._worker.build, replace(request, path=path))
            for request, path in zip(requests, paths, strict=True)
        ]
        self._pending = pending
        try:
            for request, path, future in zip(requests, paths, pending, strict=True):
                yield self._handover.taken(self._outcome(future), path, request.path)
        finally:
            _cancel(pending)

    def time(self, request: TimeRequest, timeout_secs: float) -> TimeResult:
        """As `Children.time`."""
        shown = replace(request, path=self._handover.shown(request.path))
        found = self._runner.run(self._worker.time, shown, timeout_secs, TimeResult.failed)
        if not request.keeps:
            self._handover.forget(request.path)
        return found if isinstance(found, TimeResult) else TimeResult.failed(NO_ANSWER)

    def check(self, request: CheckRequest, timeout_secs: float) -> CheckResult:
        """As `Children.check`."""
        shown = replace(request, path=self._handover.shown(request.path))
        found = self._runner.run(self._worker.check, shown, timeout_secs, CheckResult.failed)
        return found if isinstance(found, CheckResult) else CheckResult.failed(NO_ANSWER)

    def _outcome(self, future: concurrent.futures.Future[BuildResult]) -> BuildResult:
        try:
            return future.result()
        except TimeoutError:
            return BuildResult.failed(
                f"the build took longer than {self._build_timeout_secs:g} s, and its process was ended; "
                "try again while the machine is less busy"
            )
        except Exception as error:
            return BuildResult.failed(what_is_said(error))

    def close(self) -> None:
        """End all children."""
        _cancel(self._pending)
        self._runner.close()
        self._builders.close()
        self._open.close()


class LocalMachine:
    """`dietcode.measure.engine.Engine` that is this machine."""

    def devices(self, on_error: Callable[[str], None]) -> list[Device]:
        """As `Engine.devices`: this machine's CPU and GPUs."""
        found = devices_here(on_error).items()
        return [
            one for name, here in found for one in DEVICE_KINDS[name].all_of([("", each) for each in here])
        ]

    def resolve(self, spec: TargetSpec) -> Device:
        """As `Engine.resolve`."""
        return device_kind_of(spec).own(spec)

    @contextlib.contextmanager
    def children(self, device: Device, on_wait: OnWait) -> Iterator[Children]:
        """Open children, for one tuning run at a time: a build beside a timing would disturb it."""
        with measuring_slot(on_wait, device.slot):
            children = LocalChildren(device.worker)
            try:
                yield children
            finally:
                children.close()

    def close(self) -> None:
        """Do nothing: nothing is held."""


@contextlib.contextmanager
def measuring_slot(on_wait: OnWait, slot: str) -> Iterator[None]:
    """Hold a slot of this machine, so that one run at a time measures on its device; waits for it.

    Parameters
    ----------
    on_wait : callable
        As `Engine.children` has it.
    slot : str
        As `Device` has it.

    Raises
    ------
    TuningError
        The cache folder cannot be written.
    """
    folder = cache_dir() / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TuningError(f"{folder}: cannot be written: {error.strerror}; set DIETCODE_CACHE") from error
    lock = FileLock(folder / f"{slot}.lock")
    try:
        lock.acquire(timeout=0.1)
    except Timeout:
        on_wait("another tuning run works on this machine; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _cancel(pending: Sequence[concurrent.futures.Future[BuildResult]]) -> None:
    """Cancel builds that have not begun: the pool would run them beside what is timed next."""
    for future in pending:
        future.cancel()
