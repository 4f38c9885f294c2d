"""Whether something else ran beside a measurement: it is taken again, and marked where that does not help.

A disturbed reading must not become a figure. One that is slow because another program has the cores looks
like any other, and a kernel whose threads wait for each other at barriers may take a hundred times as long.
Three signs tell:

- *others*: CPU time that other processes took on the cores that this one may use, beyond those that it
  leaves free (``/proc/stat``, where there is one);
- *reference*: a kernel that always does the same, on as many threads, before and after, against its own CPU
  time: what it waits for, others had;
- *spread*: the median of repeats over the fastest of them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from dietcode.cpu_time import secs_of_descendants, secs_of_ended_children
from dietcode.lifeline import adopting_orphans
from dietcode.runtime.cpu import available_cores

T = TypeVar("T")

_MOST_OTHERS = 0.25  # cores beyond those that are free; a quiet machine's own work reads as 0.1
_MOST_SLOWER = 1.25  # of the reference over its CPU time, which is 1.08 at most on a quiet machine
_MOST_SPREAD = 1.25  # of a median over the fastest
_RESTS_SECS = (0.2, 1.0)  # before a measurement is taken again
_LEAST_SECS = 0.1  # of a span whose share of CPU time means something: it is counted in steps of 0.01 s
_REFERENCE_BYTES = 1 << 20  # of which SHA-256 is computed, without Python's lock
_REFERENCE_TIMES = 8  # about 5 ms
_PAUSE_SECS, _MAX_PAUSES, _IDLE_SHARE = 0.01, 100, 0.1
_FEWEST_REPEATS = 3  # that have a spread


class Machine:
    """What is asked of the machine.

    Parameters
    ----------
    num_threads : int
        That the measurements use.
    in_children : bool
        Whether they run in children of this process, which are then no others; nor are those that these
        leave behind, which become this process's own while it measures.
    """

    def __init__(self, num_threads: int, in_children: bool = False) -> None:
        self.in_children = in_children
        self.cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self.num_threads = min(num_threads, len(self.cores)) if self.cores else num_threads
        self._data = bytes(_REFERENCE_BYTES)
        self._usual_secs = float("inf")

    def now(self) -> float:
        """Return the time, in seconds."""
        return time.perf_counter()

    def rest(self, secs: float) -> None:
        """Wait."""
        time.sleep(secs)

    def slowdown(self) -> float:
        """Return how many times its usual seconds the reference takes, on its slowest thread."""
        return min(self._slowdown_once(), self._slowdown_once())

    def _slowdown_once(self) -> float:
        barrier = threading.Barrier(self.num_threads)
        found: list[tuple[float, float]] = []

        def hash_data(core: int | None) -> None:
            if core is not None:
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(0, {core})
            barrier.wait()
            cpu, wall = time.thread_time(), time.perf_counter()
            for _ in range(_REFERENCE_TIMES):
                hashlib.sha256(self._data).digest()
            found.append((time.perf_counter() - wall, time.thread_time() - cpu))

        # A thread that another one wakes may be put on that one's core, and stay there while a core is idle:
        # where all cores are asked for, each gets its own.
        own = self.num_threads == len(self.cores)
        cores: Sequence[int | None] = self.cores if own else [None] * self.num_threads
        threads = [threading.Thread(target=hash_data, args=(core,)) for core in cores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._usual_secs = min(self._usual_secs, *(cpu for _, cpu in found if cpu > 0))
        return max(wall for wall, _ in found) / self._usual_secs

    def others_secs(self) -> float | None:
        """Return the CPU seconds that others have taken on these cores since some time; None if not known.

        Children that have ended, and were waited for, are no others.
        """
        try:
            lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
            busy = sum(_busy_ticks(line.split()) for line in lines if _core_of(line) in self.cores)
            children = secs_of_descendants() if self.in_children else secs_of_ended_children()
            return busy / os.sysconf("SC_CLK_TCK") - time.process_time() - children
        except (OSError, ValueError):
            return None


def _core_of(line: str) -> int | None:
    name = line.partition(" ")[0]
    return int(name[3:]) if name.startswith("cpu") and name[3:].isdigit() else None


def _busy_ticks(fields: Sequence[str]) -> int:
    """Return all but idle time and waiting for disks; what the host of a virtual machine took is in it."""
    user, nice, system, _, _, irq, softirq, steal = map(int, fields[1:9])
    return user + nice + system + irq + softirq + steal


@dataclass(frozen=True)
class Signs:
    """What a measurement was beside of.

    Attributes
    ----------
    others : float
        Cores that others kept busy beyond the free ones; 0 where it is not known.
    slowdown : float
        Of the reference; 1 where nothing disturbs it.
    spread : float
        The largest median over its fastest; 1 where there is none.
    """

    others: float = 0.0
    slowdown: float = 1.0
    spread: float = 1.0

    @property
    def severity(self) -> float:
        """The largest of them over what is allowed: above 1 the measurement is disturbed."""
        return max(self.others / _MOST_OTHERS, self.slowdown / _MOST_SLOWER, self.spread / _MOST_SPREAD)

    @property
    def reason(self) -> str | None:
        """What disturbed it, for people; None where nothing did."""
        found = []
        if self.others > _MOST_OTHERS:
            found.append(f"other processes kept {self.others:.1f} of its cores busy")
        if self.slowdown > _MOST_SLOWER:
            found.append(f"a reference kernel took {self.slowdown:.1f} times as long as usual")
        if self.spread > _MOST_SPREAD:
            found.append(f"repeats differ: their median is {self.spread:.1f} times the fastest")
        return "; ".join(found) or None


@dataclass(frozen=True)
class Watched(Generic[T]):
    """A measurement, and the reason why it must not become a figure, None where it may."""

    value: T
    disturbed: str | None


@functools.cache
def machine_of(num_threads: int | None = None, in_children: bool = False) -> Machine:
    """Return this machine for measurements on some threads; by default on all cores; as of `Machine`."""
    return Machine(num_threads or available_cores(), in_children)


def undisturbed(
    measure: Callable[[], T],
    spread_of: Callable[[T], float],
    machine: Machine,
    repeats: bool = True,
    until: float | None = None,
) -> Watched[T]:
    """Measure, again while something disturbs it, and return the least disturbed.

    Parameters
    ----------
    measure : callable
    spread_of : callable
        What `spread_of_readings` says of what was measured.
    machine : Machine
    repeats : bool
        Whether it may be measured again.
    until : float, optional
        By `time.monotonic`; nothing is begun again that would end later.
    """
    best: tuple[Signs, T] | None = None
    for rest_secs in (*_RESTS_SECS, None):
        begun = time.monotonic()
        signs, value = _watch(measure, spread_of, machine)
        if best is None or signs.severity < best[0].severity:
            best = signs, value
        took = time.monotonic() - begun
        is_late = until is not None and rest_secs is not None and begun + 2 * took + rest_secs > until
        if signs.severity <= 1 or not repeats or is_late or rest_secs is None:
            break
        machine.rest(rest_secs)
    assert best is not None  # as it was measured at least once
    return Watched(best[1], best[0].reason)


def _watch(measure: Callable[[], T], spread_of: Callable[[T], float], machine: Machine) -> tuple[Signs, T]:
    settle()  # what was called until here may still spin, and would look like a disturbance
    before = machine.slowdown()
    begun, others = machine.now(), machine.others_secs()
    with adopting_orphans() if machine.in_children else contextlib.nullcontext():
        value = measure()
    settle()
    after_others, span = machine.others_secs(), machine.now() - begun
    busy = 0.0
    if others is not None and after_others is not None and span >= _LEAST_SECS:
        free = len(machine.cores) - machine.num_threads
        busy = max(0.0, (after_others - others) / span - free)
    return Signs(busy, max(before, machine.slowdown()), spread_of(value)), value


def settle() -> None:
    """Sleep until no thread of this process computes, for a second at most."""
    for _ in range(_MAX_PAUSES):
        before = time.process_time()
        time.sleep(_PAUSE_SECS)
        if time.process_time() - before < _PAUSE_SECS * _IDLE_SHARE:
            return


def spread_of_readings(readings: Mapping[str, Sequence[float]]) -> float:
    """Return the largest median over its fastest, of the readings of some paths; 1 where they are few."""
    known = [values for values in readings.values() if len(values) >= _FEWEST_REPEATS and min(values) > 0]
    return max((float(np.median(values)) / min(values) for values in known), default=1.0)


def undisturbed_of(rows: Sequence[T], disturbed: Callable[[T], str | None]) -> list[T]:
    """Return the rows that a mean is of: those that nothing disturbed; none where that was most of them.

    A mean of the few that are left would be of other shapes than those that were asked for.
    """
    calm = [row for row in rows if not disturbed(row)]
    return calm if 2 * len(calm) > len(rows) else []
