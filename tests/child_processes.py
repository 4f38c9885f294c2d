"""Which processes are the children of a tuning run, and whether processes have ended."""

from __future__ import annotations

import time
from collections.abc import Sequence

import psutil


def is_child(process: psutil.Process) -> bool:
    """Whether it builds or measures: a process that a fork server has forked."""
    server = "dietcode.measure.fork_server"
    try:
        parent = process.parent()
        return server in process.cmdline() and parent is not None and server in parent.cmdline()
    except psutil.NoSuchProcess:  # or a zombie
        return False


def is_over(process: psutil.Process) -> bool:
    """Whether it has ended; its parent may not have waited for it yet, or does so just now."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def gone(processes: Sequence[psutil.Process], timeout_secs: float = 20.0) -> bool:
    """Whether all have ended before so many seconds are over."""
    until = time.monotonic() + timeout_secs
    while not all(map(is_over, processes)):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
