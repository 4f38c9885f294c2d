"""Processes of pytest-xdist that begin as copies of one process, which has imported all tests.

Importing them takes ten seconds, on a fresh clone twenty, and each process would do it. So one process
imports what is to be collected, and for each that pytest-xdist starts it forks: the copy finds every module
there. What pytest-xdist itself starts, `main`, hands its standard streams over and lives as long as the copy.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_STREAMS = (0, 1, 2)
_ENDING_SECS = 20.0
_path: list[str] = []  # where this process found modules as it imported the tests


def fork_workers(config: Any, specs: list[Any]) -> None:
    """Have the processes of these specs of execnet forked from one that begins to import now."""
    folder = tempfile.mkdtemp(prefix="dietcode-tests-")
    path = f"{folder}/socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    command = [sys.executable, str(Path(__file__)), "--from", str(listener.fileno()), *map(str, config.args)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()], cwd=config.invocation_params.dir
    )
    listener.close()
    for spec in specs:
        spec.python = f"'{sys.executable}' -S '{Path(__file__)}' '{path}'"

    def end() -> None:
        process.communicate()  # its input ends
        Path(path).unlink()
        Path(folder).rmdir()

    config.add_cleanup(end)


def main(path: str, code: str) -> None:
    """Run `code`, which reads its standard input, in a copy of the process that listens at `path`."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [code.encode()], list(_STREAMS))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in _STREAMS:
            os.dup2(null, stream)  # they end when the copy does
        connection.recv(1)


def _serve(listener: socket.socket) -> str | None:
    """Fork for each that connects, until this process's input ends; return the code to run in a copy."""
    copies = []
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            _end(copies)
            return None
        connection, _ = listener.accept()
        code, streams, _, _ = socket.recv_fds(connection, 1 << 16, len(_STREAMS))
        copies.append(os.fork())
        if copies[-1] == 0:
            connection.detach()  # it ends with this process
            listener.close()
            for stream, given in zip(_STREAMS, streams, strict=True):
                os.dup2(given, stream)
                os.close(given)
            return code.decode()
        connection.close()
        for given in streams:
            os.close(given)


def _end(copies: list[int]) -> None:
    """Wait for those that end, as all do that pytest-xdist told to; kill the others."""
    until = time.monotonic() + _ENDING_SECS
    for pid in copies:
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def find_modules_again() -> None:
    """Put back on the path what modules of tests added as they were imported: pytest-xdist replaces it."""
    sys.path.extend(folder for folder in _path if folder not in sys.path)


def _collect(given: list[str]) -> None:
    """Import the tests that are named; what goes wrong is said by whoever collects them next.

    Nothing is captured: what is imported may keep the standard streams, and they are to stay open.
    """
    import pytest

    pytest.main(["--collect-only", "--capture=no", "-p", "no:terminalreporter", *given])
    import forked_workers  # by this name the configuration of the tests knows it

    forked_workers._path[:] = sys.path


def heed_interrupts() -> None:
    """Have processes that are started from here heed SIGINT, also under ``nohup``, which ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Those who sit at a terminal interrupt all; pytest-xdist ends its own, and this one's input."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


if __name__ == "__main__":
    if sys.argv[1] == "--from":
        sys.path[0] = str(Path.cwd())  # as `python -m pytest` has it
        with _deaf_to_interrupts(), socket.socket(fileno=int(sys.argv[2])) as listening:
            _collect(sys.argv[3:])
            worker_code = _serve(listening)
        if worker_code is not None:
            random.seed()
            sys.stdin, sys.stdout, sys.stderr = (
                open(stream, mode, buffering=1, closefd=False)  # noqa: SIM115
                for stream, mode in zip(_STREAMS, "rww", strict=True)
            )
            exec(worker_code, {"__name__": "__main__"})
    else:
        main(sys.argv[1], sys.argv[-1])
