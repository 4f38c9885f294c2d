"""Names of processes that work on jobs, and whether they still live."""

from __future__ import annotations

import contextlib
import os
import socket
import time

import psutil

from dietcode.confinement.users import end_user

_START_TOLERANCE_SECS = 2.0
_LOOK_SECS = 0.02


def runner_name(pid: int | None = None) -> str:
    """``host/pid/start``: enough to tell a process from a later one with the same number.

    Raises
    ------
    psutil.NoSuchProcess
        There is no such process.
    """
    process = psutil.Process(os.getpid() if pid is None else pid)
    return f"{socket.gethostname()}/{process.pid}/{process.create_time():.2f}"


def is_on_this_host(runner: str) -> bool:
    """Return whether the runner's life can be seen from here."""
    return runner.rsplit("/", 2)[0] == socket.gethostname()


def is_alive(runner: str) -> bool:
    """Return whether a runner on this host still runs."""
    try:
        _, pid, started = runner.rsplit("/", 2)
        process = psutil.Process(int(pid))
        same = abs(process.create_time() - float(started)) < _START_TOLERANCE_SECS
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except (ValueError, psutil.NoSuchProcess):
        return False


def end_tree(pid: int, grace_secs: float = 5.0) -> None:
    """Kill another process with all its descendants, and wait for these; the process itself is its parent's.

    It is halted first and killed last: what its descendants leave becomes its own
    (`dietcode.lifeline.adopt_orphans`).
    """
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        root.suspend()
        _end_below(root, grace_secs)
        root.kill()


def end_descendants(grace_secs: float = 1.0) -> None:
    """Kill all that this process has started, and what that has started."""
    _end_below(psutil.Process(), grace_secs)


def _end_below(root: psutil.Process, grace_secs: float) -> None:
    """Kill descendants; one that forks and ends again and again is met in time, or may start no more."""
    until = time.monotonic() + grace_secs
    while time.monotonic() < until:
        alive, users = _below(root)
        for user in users:
            end_user(user)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if not alive:
            break
        psutil.wait_procs(alive, timeout=_LOOK_SECS)


def _below(root: psutil.Process) -> tuple[list[psutil.Process], set[int]]:
    """Return the descendants that live, and the users whom they and those that have ended were."""
    found, users = [], set()
    for process in root.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            users.add(process.uids().real)
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found, users
