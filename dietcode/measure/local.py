"""Child processes on this machine, by TVM's process pool: one for measuring, one a core for building."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import platform
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tvm.support.popen_pool import PopenPoolExecutor, PopenWorker

from dietcode.confinement import MEMORY_BYTES
from dietcode.errors import TuningError
from dietcode.lean import children_without_torch
from dietcode.measure import worker
from dietcode.measure.engine import Device, Say
from dietcode.measure.measurer import Children, Progress
from dietcode.runtime import pool
from dietcode.runtime.cache import cache_dir
from dietcode.search_space.cpu.seed import run_seed
from dietcode.search_space.problem import Problem
from dietcode.search_space.seed import Seed
from dietcode.target.cpu import CpuTarget, Host, device_record, resolve_target
from dietcode.workload.target_spec import TargetSpec

_GRACE_SECS = 5.0  # for a child to report its own time-out, which it cannot while native code holds the GIL

Function = Callable[[Any], Any]


class Runner:
    """A child process that answers one call at a time; it is replaced after a crash or a hang.

    Parameters
    ----------
    initializer, initargs
        What it calls first.
    warm : callable, optional
        Called in it at once, while others build: importing the compiler takes seconds.
    """

    def __init__(
        self, initializer: Callable[..., None], initargs: tuple[Any, ...], warm: Callable[[], None] | None
    ) -> None:
        self.process = PopenWorker(initializer=initializer, initargs=initargs, stderr=subprocess.DEVNULL)
        self.started, self._closed = threading.Event(), threading.Event()
        if warm is None:
            self.started.set()
        else:
            threading.Thread(target=self._start, args=(warm,), name="runner", daemon=True).start()

    def run(self, function: Function, request: Any, timeout_secs: float) -> dict[str, Any] | str:
        """One call; a text instead of a result is an error."""
        ended = threading.Event()
        watchdog = threading.Timer(timeout_secs + _GRACE_SECS, self._end, (ended,))
        watchdog.daemon = True
        self.started.wait()
        try:
            self.process.send(function, (request,), timeout=timeout_secs)
            watchdog.start()
            result: dict[str, Any] = self.process.recv()
            return result
        except Exception as error:
            if ended.is_set() or isinstance(error, TimeoutError):
                self.process.kill()
                return f"no answer within {timeout_secs:.0f} s; the process was ended"
            return describe(error)
        finally:
            watchdog.cancel()

    def _start(self, warm: Callable[[], None]) -> None:
        """The thread stays, because the process ends with the thread that started it."""
        try:
            with contextlib.suppress(Exception):  # `run` starts it again, and says what is wrong
                self.process.send(warm)
                self.process.recv()
        finally:
            self.started.set()
        self._closed.wait()

    def _end(self, ended: threading.Event) -> None:
        process = self.process._proc
        if process is not None:
            ended.set()
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it."""
        self._closed.set()
        self.process.kill()


class LocalChildren:
    """`dietcode.measure.measurer.Children` on this machine.

    Parameters
    ----------
    num_builders : int
        Processes that build side by side.
    num_threads : int
        P: cores that a measured kernel uses. TVM's own default is half of the visible ones.
    measures : bool
        Whether the measuring process is started at once.

    Attributes
    ----------
    slot : str
        This machine's name.
    """

    def __init__(
        self,
        num_builders: int,
        num_threads: int,
        build_timeout_secs: float = 60.0,
        measures: bool = True,
    ) -> None:
        # The children inherit these. A second pool that spins, such as OpenBLAS's, disturbs every timing.
        self._temporary = tempfile.TemporaryDirectory(prefix="dietcode-children-")
        confined = (MEMORY_BYTES, self._temporary.name)
        pool.set_num_threads(num_threads)
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        self._lean = contextlib.ExitStack()
        self._lean.enter_context(children_without_torch())
        self._builders = PopenPoolExecutor(
            max_workers=num_builders,
            timeout=build_timeout_secs,
            initializer=worker.start_child,
            initargs=confined,
            stderr=subprocess.DEVNULL,
        )
        self._runner = Runner(worker.start_child, confined, worker.get_ready if measures else None)
        self._pending: list[concurrent.futures.Future[dict[str, Any]]] = []
        self.slot = platform.node()

    def map_builds(self, requests: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any] | str]:
        """Results in the order of `requests`."""
        self._pending = [self._builders.submit(worker.build, request) for request in requests]
        for future in self._pending:
            yield _outcome(future)

    def run(self, function: str, request: dict[str, Any], timeout_secs: float) -> dict[str, Any] | str:
        """Call `worker.<function>` in the measuring process; it is replaced after a crash or a hang."""
        return self._runner.run(getattr(worker, function), request, timeout_secs)

    def run_seed(
        self,
        problem: Problem,
        extents: Mapping[str, int],
        target: CpuTarget,
        work_dir: Path,
        num_trials: int,
        max_secs: float,
        progress: Progress,
    ) -> tuple[Seed, dict[str, Any]]:
        """MetaSchedule in a process of its own, as `dietcode.search_space.cpu.seed.run_seed` has it."""
        return run_seed(problem, dict(extents), target, work_dir, num_trials, max_secs, progress)

    def close(self) -> None:
        """End all children."""
        for future in self._pending:
            future.cancel()  # or the pool would start them all the same
        self._runner.close()
        self._builders.shutdown(wait=False)
        self._temporary.cleanup()
        self._lean.close()


class LocalMachine:
    """`dietcode.measure.engine.Engine` that is this machine."""

    def devices(self) -> list[Device]:
        """This machine's CPU."""
        return [self.resolve(TargetSpec(kind="llvm"))]

    def resolve(self, spec: TargetSpec) -> Device:
        """As `resolve_target` has it."""
        host = Host.here()
        target = resolve_target(spec, host)
        lacks = host.refusal(target)
        refusal = lacks and (
            f"this machine {lacks}, so nothing can be measured for it here; "
            "measure on such a machine and build with --records"
        )
        return Device(target, device_record(target), refusal, host)

    @contextlib.contextmanager
    def children(self, device: Device, say: Say) -> Iterator[Children]:
        """One tuning run works on this machine at a time: a build beside a timing would disturb it."""
        with measuring_slot(say):
            children = LocalChildren(device.target.num_cores, device.target.num_cores)
            try:
                yield children
            finally:
                children.close()

    def close(self) -> None:
        """Nothing is held."""


@contextlib.contextmanager
def measuring_slot(say: Say, what: str = "measure") -> Iterator[None]:
    """Be the only one on this machine that measures on `what`; waits for another.

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


def _outcome(future: concurrent.futures.Future[dict[str, Any]]) -> dict[str, Any] | str:
    try:
        return future.result()
    except TimeoutError:
        return "the build did not finish in time; its process was ended"
    except Exception as error:
        return describe(error)


def describe(error: BaseException) -> str:
    """The last meaningful line of an error, clipped."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__)[:300]
