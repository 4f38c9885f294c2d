"""One child process that answers one call at a time, and what is said of what goes wrong in it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tvm.support.popen_pool import PopenWorker

_GRACE_SECS = 5.0  # for a child to report its own time-out, which it cannot while native code holds the GIL

Request = TypeVar("Request")
Result = TypeVar("Result")


class ChildProcess:
    """A child process that answers one call at a time; it is replaced after a failure.

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

    def run(
        self,
        function: Callable[[Request], Result],
        request: Request,
        timeout_secs: float,
        failed: Callable[[str], Result],
    ) -> Result:
        """Call a function in the process and return its result.

        After a failure the process is ended, since generated code may have damaged it; the next call starts
        another.

        Parameters
        ----------
        function : callable
            Takes the request.
        timeout_secs : float
            After which the process is ended.
        failed : callable
            Makes a result of an error.
        """
        ended = threading.Event()
        watchdog = threading.Timer(timeout_secs + _GRACE_SECS, self._end, (ended,))
        watchdog.daemon = True
        self.started.wait()
        try:
            self.process.send(function, (request,), timeout=timeout_secs)
            watchdog.start()
            result: Result = self.process.recv()
            return result
        except Exception as error:
            self.process.kill()
            if ended.is_set() or isinstance(error, TimeoutError):
                return failed(f"no answer within {timeout_secs:.0f} s; the process was ended")
            return failed(describe(error))
        finally:
            watchdog.cancel()

    def _start(self, warm: Callable[[], None]) -> None:
        """Start the process; the thread stays, because the process ends with the thread that started it."""
        try:
            with contextlib.suppress(Exception):  # `run` starts it again and reports what is wrong
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

    def end(self) -> None:
        """End the process; the next call starts another."""
        self.process.kill()

    def close(self) -> None:
        """End the process for good."""
        self._closed.set()
        self.end()


def describe(error: BaseException) -> str:
    """Return the last line of an error that is not empty, clipped."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__)[:300]
