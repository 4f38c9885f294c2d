"""Child processes that are called: one, and several side by side."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pickle
import subprocess
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import psutil

from dietcode.measure.answers import read_answer
from dietcode.measure.fork_server import Process, start_child

_END_SECS = 1.0
_MAX_ANSWER_BYTES = 1 << 26

Request = TypeVar("Request")
Result = TypeVar("Result")


class FailedCallError(Exception):
    """What a child says of an error of its call: one line."""


class CalledProcess:
    """A child that is started by the first call, and again by the first one after it has ended.

    Parameters
    ----------
    initializer, initargs
        What it calls first.
    """

    def __init__(self, initializer: Callable[..., None], initargs: tuple[Any, ...]) -> None:
        self._initializer, self._initargs = initializer, initargs
        self._process: Process | None = None
        self._connection: Connection | None = None

    def send(self, function: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> None:
        """Begin a call; `recv` comes before the next one."""
        if self._process is None:
            self._start()
        self._send((function, arguments))

    def recv(self, timeout_secs: float | None = None) -> Any:
        """Return the result of the call.

        Raises
        ------
        FailedCallError
            It raised.
        TimeoutError
            There is none in time; the process has been ended.
        ChildProcessError
            The process has ended, or was ended since its answer is none.
        """
        assert self._connection is not None
        try:
            if not self._connection.poll(timeout_secs):
                self.kill()
                raise TimeoutError
            data = self._rest_of_answer(timeout_secs)
        except TimeoutError:
            raise
        except (EOFError, OSError) as error:  # also of an answer that is too long
            self.kill()
            raise ChildProcessError("Subprocess terminated") from error
        try:
            returned, value = read_answer(data)
        except ChildProcessError:
            self.kill()
            raise
        if not returned:
            raise FailedCallError(value)
        return value

    def _rest_of_answer(self, timeout_secs: float | None) -> bytes:
        """Read what has begun to come; a process that writes no end of it is ended."""
        assert self._connection is not None
        if timeout_secs is None:
            return self._connection.recv_bytes(_MAX_ANSWER_BYTES)
        watchdog = threading.Timer(timeout_secs, self.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            return self._connection.recv_bytes(_MAX_ANSWER_BYTES)
        finally:
            watchdog.cancel()

    def kill(self) -> None:
        """End the process and what it has started; any thread may."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            for below in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    below.kill()
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECS)

    def _start(self) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            self._process = start_child(theirs)
        self._send((dict(os.environ), str(Path.cwd())))
        self._send((self._initializer, self._initargs))
        self.recv()

    def _send(self, message: tuple[Any, Any]) -> None:
        assert self._connection is not None
        with contextlib.suppress(ConnectionError):  # `recv` says that it has ended
            self._connection.send_bytes(cloudpickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))


class ProcessPool:
    """Child processes that each answer one call at a time.

    Parameters
    ----------
    num_processes : int
        As many as answer side by side; each is started when it is needed.
    timeout_secs : float
        Of each call.
    initializer, initargs
        What each calls first.
    """

    def __init__(
        self,
        num_processes: int,
        timeout_secs: float,
        initializer: Callable[..., None],
        initargs: tuple[Any, ...],
    ) -> None:
        self._threads = concurrent.futures.ThreadPoolExecutor(num_processes, thread_name_prefix="builder")
        self._made_of, self._timeout_secs = (initializer, initargs), timeout_secs
        self._own = threading.local()
        self._processes: list[CalledProcess] = []
        self._closed = False

    def submit(self, function: Callable[..., Result], *arguments: Any) -> concurrent.futures.Future[Result]:
        """Call a function when a process is free; errors are those of `CalledProcess.recv`."""
        return self._threads.submit(self._call, function, arguments)

    def _call(self, function: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
        if not hasattr(self._own, "process"):
            self._own.process = CalledProcess(*self._made_of)
            self._processes.append(self._own.process)
        process: CalledProcess = self._own.process
        process.send(function, arguments)
        if self._closed:
            process.kill()
        result: Result = process.recv(self._timeout_secs)
        return result

    def close(self) -> None:
        """End all processes; calls that have begun fail."""
        self._closed = True
        # First, since a thread whose call fails takes the next one.
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.kill()
