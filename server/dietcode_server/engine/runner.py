"""Names of processes that work on jobs, and whether they still live."""

from __future__ import annotations

import contextlib
import os
import socket

import psutil

_START_TOLERANCE_SECS = 2.0


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
    """Kill a process with all its descendants, and wait for these; the process itself is its parent's.

    Its own process a caller kills last.
    """
    try:
        root = psutil.Process(pid)
        descendants = root.children(recursive=True)
    except psutil.NoSuchProcess:
        return
    for process in [*descendants, root] if pid == os.getpid() else [root, *descendants]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(descendants, timeout=grace_secs)
