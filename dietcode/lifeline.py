"""Child processes that do not outlive their parent, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 36, 37
_POLL_SECS = 0.5


def die_with_parent(parent_pid: int | None = None) -> None:
    """Have this process killed when the one that started it ends, also by ``kill -9``.

    On Linux the kernel does it, when the *thread* that started this process ends; elsewhere a thread here
    looks twice a second.

    Parameters
    ----------
    parent_pid : int, optional
        Who started this process, so that a parent that is gone already is noticed.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        watcher = threading.Thread(target=_watch, args=(os.getppid(),), name="lifeline", daemon=True)
        watcher.start()
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(1)


def adopt_orphans() -> None:
    """Have processes that lose their parent become this one's, on Linux: no child gets away by another."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """As `adopt_orphans`, within it alone; those that nobody waits for stay until this process ends."""
    before = ctypes.c_int()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    adopt_orphans()
    try:
        yield
    finally:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def _watch(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_POLL_SECS)
    os._exit(1)
