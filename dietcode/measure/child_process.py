"""One child process that answers one call at a time, and what is said of what goes wrong in it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from dietcode.measure.child_calls import describe
from dietcode.measure.process_pool import CalledProcess, FailedCallError

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
        self.process = CalledProcess(initializer, initargs)
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
        self.started.wait()
        try:
            self.process.send(function, (request,))
            result: Result = self.process.recv(timeout_secs)
            return result
        except TimeoutError:
            return failed(f"no answer within {timeout_secs:.0f} s; the process was ended")
        except Exception as error:
            self.process.kill()
            return failed(what_is_said(error))

    def _start(self, warm: Callable[[], None]) -> None:
        """Start the process; the thread stays, because the process ends with the thread that started it."""
        try:
            with contextlib.suppress(Exception):  # `run` starts it again and reports what is wrong
                self.process.send(warm)
                self.process.recv()
        finally:
            self.started.set()
        self._closed.wait()

    def end(self) -> None:
        """End the process; the next call starts another."""
        self.process.kill()

    def close(self) -> None:
        """End the process for good."""
        self._closed.set()
        self.end()


def what_is_said(error: Exception) -> str:
    """Return one line on why a call failed: the child's own, or what happened to the child."""
    return str(error) if isinstance(error, FailedCallError) else describe(error)
