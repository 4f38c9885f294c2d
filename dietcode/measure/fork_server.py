"""A process that has imported the compiler and forks, so that a child starts in milliseconds.

On Linux alone; elsewhere, and where no server can be started, each child is a Python process of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from dietcode.confinement import kept_environment
from dietcode.lean import import_less_of_tvm, python_command
from dietcode.lifeline import die_with_parent

_LOADED = (  # what most children use
    "tvm",
    "dietcode.measure.cpu_worker",
    "dietcode.search_space.cpu.compiling",
    "dietcode.search_space.cpu.host",
)
_OF_ONE_CHILD = {"DIETCODE_CACHE", "TMPDIR"}  # variables that nothing reads while it is imported
_PID_BYTES = 8


class Process(Protocol):
    """A child that runs."""

    @property
    def pid(self) -> int:
        """Its process number."""

    def kill(self) -> None:
        """End it, if it runs."""

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end; `subprocess.TimeoutExpired` where it takes longer."""


class ForkedProcess:
    """A child of a fork server.

    It is held by a descriptor, since its number may belong to another process once it has ended; the server
    stays as long as it is held, because a child ends with it.
    """

    def __init__(self, pid: int, descriptor: int | None, server: ForkServer) -> None:
        self.pid, self._descriptor, self._server = pid, descriptor, server

    def kill(self) -> None:
        """As `Process.kill`."""
        if self._descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int | None:
        """As `Process.wait`; its status is the server's to know."""
        if self._descriptor is None:
            return None
        if not select.select([self._descriptor], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        return None

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


class ForkServer:
    """A server of this process, with its variables and folder; it ends with this process, however that ends.

    Raises
    ------
    OSError
        From `fork`: it has ended.
    """

    def __init__(self) -> None:
        self.made_for = _circumstances()
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = python_command(__name__, str(theirs.fileno()))
            quiet = subprocess.DEVNULL
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=quiet, stdout=quiet, stderr=quiet
            )

    def fork(self, descriptor: int) -> ForkedProcess:
        """Return a child that has this descriptor as its connection."""
        socket.send_fds(self._socket, [b"+"], [descriptor])
        data, descriptors, _, _ = socket.recv_fds(self._socket, _PID_BYTES, 1)
        if len(data) != _PID_BYTES:
            raise BrokenPipeError("the fork server has ended")
        return ForkedProcess(int.from_bytes(data, "little"), descriptors[0] if descriptors else None, self)

    def has_ended(self) -> bool:
        """Whether it forks no more."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End it and its children."""
        self._socket.close()
        if self.made_for[0] == os.getpid():
            self._process.kill()
            self._process.wait()
        else:  # a copy of the process that started it, which waits for it
            self._process.returncode = 0

    def __del__(self) -> None:
        self.close()


_lock = threading.Lock()
_servers: list[ForkServer] = []  # at most one, the last


atexit.register(_servers.clear)


def start_child(connection: Connection) -> Process:
    """Start a process that runs `dietcode.measure.child_calls.serve` on a connection."""
    with _lock, contextlib.suppress(OSError):
        if sys.platform == "linux" and hasattr(os, "pidfd_open"):
            return _server().fork(connection.fileno())
    command = python_command("dietcode.measure.child_calls", str(connection.fileno()))
    return subprocess.Popen(command, pass_fds=[connection.fileno()], stderr=subprocess.DEVNULL)


def _server() -> ForkServer:
    """Return the server, or another one where that one's variables or folder are no longer this process's."""
    if _servers and (_servers[0].made_for != _circumstances() or _servers[0].has_ended()):
        _servers.clear()
    if not _servers:
        _servers.append(ForkServer())
    return _servers[0]


def _circumstances() -> tuple[int, str, dict[str, str]]:
    """Return what a Python process reads as it starts, and who starts it."""
    kept = kept_environment(os.environ).items()
    return os.getpid(), str(Path.cwd()), {name: value for name, value in kept if name not in _OF_ONE_CHILD}


def main(descriptor: int) -> None:
    """Import, then fork for each descriptor that comes, until the other end is closed."""
    from dietcode.measure.child_calls import serve

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the process that a terminal interrupts
    import_less_of_tvm()
    gc.disable()
    for name in _LOADED:
        with contextlib.suppress(ImportError):  # the child's call says so
            importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, _reap)
    own, server = os.getpid(), socket.socket(fileno=descriptor)
    while True:
        data, descriptors, _, _ = socket.recv_fds(server, 1, 1)
        if not data:
            return
        child = os.fork()
        if child == 0:
            server.close()
            die_with_parent(own)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            gc.enable()
            serve(Connection(descriptors[0]))
        os.close(descriptors[0])
        held = []
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            held.append(os.pidfd_open(child))
        socket.send_fds(server, [child.to_bytes(_PID_BYTES, "little")], held)
        for one in held:
            os.close(one)


def _reap(_signal: int, _frame: object) -> None:
    """Let children that have ended go; their seconds of CPU are this process's from then on."""
    with contextlib.suppress(ChildProcessError):  # there are no more
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main(int(sys.argv[1]))
