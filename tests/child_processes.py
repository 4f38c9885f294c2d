"""Which processes are the children of a tuning run."""

from __future__ import annotations

import psutil


def is_child(process: psutil.Process) -> bool:
    """Whether it builds or measures: a process that a fork server has forked."""
    server = "dietcode.measure.fork_server"
    try:
        parent = process.parent()
        return server in process.cmdline() and parent is not None and server in parent.cmdline()
    except psutil.NoSuchProcess:  # or a zombie
        return False
