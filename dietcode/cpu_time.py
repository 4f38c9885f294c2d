"""CPU time of this process's children and of all that these start, those included that nobody waits for.

The kernel adds a process's time to that of the one that waits for it, and forgets it where none does, as of
all that ends with a namespace of processes.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

_FORGOTTEN: list[float] = []  # seconds


def secs_of_ended_children() -> float:
    """Return the CPU seconds of children that have ended and were waited for, and of what they waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def secs_of_descendants() -> float:
    """Return the CPU seconds of all that descends from this process, ended or not; see `ending`."""
    return secs_of_ended_children() + _ticks_of_living() / os.sysconf("SC_CLK_TCK") + sum(_FORGOTTEN)


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Within it processes are ended; what the kernel forgets of their time stays in `secs_of_descendants`."""
    before = secs_of_descendants()
    yield
    _FORGOTTEN.append(max(0.0, before - secs_of_descendants()))


def _ticks_of_living() -> int:
    """Return the ticks of descendants that nobody has waited for yet, and of those that they waited for."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):  # it has just ended
            # After the name, which may hold anything: state, parent, …, user, system, and its children's.
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            pid = int(path.parent.name)
            parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    known = {os.getpid()}
    while found := {pid for pid, parent in parents.items() if parent in known} - known:
        known |= found
    return sum(ticks.get(pid, 0) for pid in known - {os.getpid()})
