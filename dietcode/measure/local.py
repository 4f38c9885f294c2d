"""Child processes on this machine, by TVM's process pool: one for measuring, one a core for building."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from tvm.support.popen_pool import PopenPoolExecutor, PopenWorker

from dietcode.measure import worker
from dietcode.runtime import pool

_MEMORY_BYTES = 16 << 30
_GRACE_SECS = 5.0  # for a child to report its own time-out, which it cannot while native code holds the GIL


class LocalChildren:
    """`dietcode.measure.measurer.Children` on this machine.

    Parameters
    ----------
    num_builders : int
        Processes that build side by side.
    num_threads : int
        P: cores that a measured kernel uses. TVM's own default is half of the visible ones.
    """

    def __init__(self, num_builders: int, num_threads: int, build_timeout_secs: float = 60.0) -> None:
        # The children inherit these. A second pool that spins, such as OpenBLAS's, disturbs every timing.
        self._temporary = tempfile.TemporaryDirectory(prefix="dietcode-children-")
        confined = (_MEMORY_BYTES, self._temporary.name)
        pool.set_num_threads(num_threads)
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        self._builders = PopenPoolExecutor(
            max_workers=num_builders,
            timeout=build_timeout_secs,
            initializer=worker.start_child,
            initargs=confined,
            stderr=subprocess.DEVNULL,
        )
        self._runner = PopenWorker(
            initializer=worker.start_child, initargs=confined, stderr=subprocess.DEVNULL
        )

        self._pending: list[concurrent.futures.Future[dict[str, Any]]] = []
        self._started, self._closed = threading.Event(), threading.Event()
        threading.Thread(target=self._start_runner, name="runner", daemon=True).start()

    def map_builds(self, requests: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any] | str]:
        """Results in the order of `requests`."""
        self._pending = [self._builders.submit(worker.build, request) for request in requests]
        for future in self._pending:
            yield _outcome(future)

    def run(self, function: str, request: dict[str, Any], timeout_secs: float) -> dict[str, Any] | str:
        """Call `worker.<function>` in the measuring process; it is replaced after a crash or a hang."""
        ended = threading.Event()
        watchdog = threading.Timer(timeout_secs + _GRACE_SECS, self._end_runner, (ended,))
        watchdog.daemon = True
        self._started.wait()
        try:
            self._runner.send(getattr(worker, function), (request,), timeout=timeout_secs)
            watchdog.start()
            result: dict[str, Any] = self._runner.recv()
            return result
        except Exception as error:
            if ended.is_set() or isinstance(error, TimeoutError):
                self._runner.kill()
                return f"no answer within {timeout_secs:.0f} s; the process was ended"
            return describe(error)
        finally:
            watchdog.cancel()

    def _start_runner(self) -> None:
        """Start the measuring process while others build: it takes seconds.

        The thread stays, because the process ends with the thread that started it.
        """
        try:
            with contextlib.suppress(Exception):  # `run` starts it again, and says what is wrong
                self._runner.send(worker.get_ready)
                self._runner.recv()
        finally:
            self._started.set()
        self._closed.wait()

    def _end_runner(self, ended: threading.Event) -> None:
        process = self._runner._proc
        if process is not None:
            ended.set()
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End all children."""
        for future in self._pending:
            future.cancel()  # or the pool would start them all the same
        self._closed.set()
        self._runner.kill()
        self._builders.shutdown(wait=False)
        self._temporary.cleanup()


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
