"""Child processes on this machine, by TVM's process pool: some that build, and one that measures."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence

from filelock import FileLock, Timeout
from tvm.support.popen_pool import PopenPoolExecutor

from dietcode.errors import TuningError
from dietcode.lean import children_without_torch
from dietcode.measure.children import Children, Worker
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.engine import Device, Say
from dietcode.measure.gpu import need_gpu
from dietcode.measure.gpu_device import gpu_device
from dietcode.measure.requests import (
    BuildRequest,
    BuildResult,
    CheckRequest,
    CheckResult,
    TimeRequest,
    TimeResult,
)
from dietcode.measure.runner import Runner, describe
from dietcode.measure.seed_search import LocalSeedSearch, SeedSearch
from dietcode.runtime.cache import cache_dir
from dietcode.target.base import kind_of
from dietcode.target.cpu import Host, device_record, resolve_target
from dietcode.target.cuda import resolve_cuda
from dietcode.workload.target_spec import TargetSpec

_CPU = "measure"  # the lock that keeps two runs from measuring on it


class LocalChildren:
    """`dietcode.measure.children.Children` on this machine.

    Parameters
    ----------
    worker : Worker
        What runs in them.
    num_builders : int, optional
        Processes that build side by side; by default as many as the worker says.
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
        temporary = self._open.enter_context(tempfile.TemporaryDirectory(prefix="dietcode-children-"))
        self._builders = PopenPoolExecutor(
            max_workers=num_builders or worker.num_builders,
            timeout=build_timeout_secs,
            initializer=worker.start,
            initargs=(temporary, False),
            stderr=subprocess.DEVNULL,
        )
        self._runner = Runner(worker.start, (temporary, True), worker.get_ready if measures else None)
        self._pending: list[concurrent.futures.Future[BuildResult]] = []
        self.slot = platform.node()
        self.seeds: SeedSearch = LocalSeedSearch()

    def build(self, requests: Sequence[BuildRequest]) -> Iterator[BuildResult]:
        """As `Children.build`."""
        pending = [self._builders.submit(self._worker.build, request) for request in requests]
        self._pending = pending
        try:
            for future in pending:
                yield _outcome(future)
        finally:
            _cancel(pending)

    def time(self, request: TimeRequest, timeout_secs: float) -> TimeResult:
        """As `Children.time`."""
        return self._runner.run(self._worker.time, request, timeout_secs, TimeResult.failed)

    def check(self, request: CheckRequest, timeout_secs: float) -> CheckResult:
        """As `Children.check`."""
        return self._runner.run(self._worker.check, request, timeout_secs, CheckResult.failed)

    def close(self) -> None:
        """End all children."""
        _cancel(self._pending)
        self._runner.close()
        self._builders.shutdown(wait=False)
        self._open.close()


class LocalMachine:
    """`dietcode.measure.engine.Engine` that is this machine."""

    def devices(self) -> list[Device]:
        """This machine's CPU."""
        return [self.resolve(TargetSpec(kind="llvm"))]

    def resolve(self, spec: TargetSpec) -> Device:
        """This machine's CPU as `resolve_target` has it, or its GPU as `need_gpu` has it."""
        return _OWN.get(kind_of(spec), _own_cpu)(spec)

    @contextlib.contextmanager
    def children(self, device: Device, say: Say) -> Iterator[Children]:
        """One tuning run works on a device at a time: a build beside a timing would disturb it."""
        with measuring_slot(say, device.place or _CPU):
            children = LocalChildren(device.worker)
            try:
                yield children
            finally:
                children.close()

    def close(self) -> None:
        """Nothing is held."""


@contextlib.contextmanager
def measuring_slot(say: Say, what: str) -> Iterator[None]:
    """Be the only one on this machine that measures on a device; waits for another.

    Parameters
    ----------
    what : str
        The device's place.

    Raises
    ------
    TuningError
        The cache folder cannot be written.
    """
    place = cache_dir() / "locks"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TuningError(f"{place}: cannot be written: {error.strerror}; set DIETCODE_CACHE") from error
    lock = FileLock(place / f"{what}.lock")
    try:
        lock.acquire(timeout=0.1)
    except Timeout:
        say("another tuning run works on this machine; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _own_cpu(spec: TargetSpec) -> Device:
    host = Host.here()
    target = resolve_target(spec, host)
    lacks = host.refusal(target)
    refusal = lacks and (
        f"this machine {lacks}, so nothing can be measured for it here; "
        "measure on such a machine and build with --records"
    )
    return Device(target, device_record(target), CpuWorker(target.num_cores), refusal, host, _CPU)


def _own_gpu(spec: TargetSpec) -> Device:
    return gpu_device(need_gpu(resolve_cuda(spec)))


_OWN: dict[str, Callable[[TargetSpec], Device]] = {"llvm": _own_cpu, "cuda": _own_gpu}


def _cancel(pending: Sequence[concurrent.futures.Future[BuildResult]]) -> None:
    """Begin no build that is not wanted any more; the pool would, beside what is timed next."""
    for future in pending:
        future.cancel()


def _outcome(future: concurrent.futures.Future[BuildResult]) -> BuildResult:
    try:
        return future.result()
    except TimeoutError:
        return BuildResult.failed("the build did not finish in time; its process was ended")
    except Exception as error:
        return BuildResult.failed(describe(error))
