"""Calls of several paths timed in turns, so that all of them see the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from dietcode.measure.disturbance import Machine, machine_of, settle, spread_of_readings, undisturbed

# After a call a path's threads spin for a while (OpenBLAS's for 0.1 s); a kernel of another path that starts
# then shares a core with them and takes twice as long. So each path waits until the process is idle, and gets
# warm calls, before its clock starts.
WARM_SECS = 20e-3
BATCH_SECS = 10e-3
FEWEST_ROUNDS = 3  # of a median that means something
COMPANY_SECS = 50e-3  # of each round in which two paths take turns, call by call


class Timings(dict[str, float]):
    """Median seconds of a call of each path.

    Attributes
    ----------
    spread : float
        The largest median over the fastest reading of its path.
    disturbed : str or None
        Why they must not become figures, see `dietcode.measure.disturbance`; None where they may.
    quartiles : dict of str to (float, float)
        Seconds that a quarter of the readings of a path are below, and above.
    """

    spread: float = 1.0
    disturbed: str | None = None
    quartiles: Mapping[str, tuple[float, float]] = MappingProxyType({})

    @classmethod
    def of(cls, readings: Mapping[str, Sequence[float]]) -> Timings:
        """Return the medians of the readings of some paths, in seconds."""
        found = cls({name: float(np.median(values)) for name, values in readings.items()})
        found.spread = spread_of_readings(readings)
        found.quartiles = {
            name: (float(np.quantile(values, 0.25)), float(np.quantile(values, 0.75)))
            for name, values in readings.items()
        }
        return found


def interleave(
    calls: Mapping[str, Callable[[], Any]],
    rounds: int,
    until: float | None = None,
    machine: Machine | None = None,
) -> Timings:
    """Return the median seconds of one call of each path, in turns; measured again where they are disturbed.

    Parameters
    ----------
    calls : mapping of str to callable
    rounds : int
        Of which the median counts; of fewer than 3 nothing is measured again.
    until : float, optional
        By `time.monotonic`; past it there are the fewest rounds, and nothing is measured again.
    machine : Machine, optional
        By default this one, on all of its cores.
    """
    numbers = batch_numbers(calls)

    def measure() -> Timings:
        return time_rounds(calls, numbers, rounds, until)

    repeats, machine = rounds >= FEWEST_ROUNDS, machine or machine_of()
    watched = undisturbed(measure, lambda found: found.spread, machine, repeats, until)
    watched.value.disturbed = watched.disturbed
    return watched.value


def batch_numbers(calls: Mapping[str, Callable[[], Any]]) -> dict[str, int]:
    """Return how many calls of each path one reading is of, after a first call, which may compile."""
    for call in calls.values():
        call()
    return {name: _number(call) for name, call in calls.items()}


def time_rounds(
    calls: Mapping[str, Callable[[], Any]], numbers: Mapping[str, int], rounds: int, until: float | None
) -> Timings:
    """Return the medians of some rounds, however disturbed; past `until` of the fewest."""
    readings: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        if until is not None and number >= FEWEST_ROUNDS and time.monotonic() > until:
            break
        for name, call in calls.items():
            settle()
            _warm(call)
            started = time.perf_counter()
            for _ in range(numbers[name]):
                call()
            readings[name].append((time.perf_counter() - started) / numbers[name])
    return Timings.of(readings)


def take_turns(
    first: Callable[[], Any], second: Callable[[], Any], rounds: int, until: float | None = None
) -> tuple[float, float]:
    """Return the seconds of a call of each where the two alternate, as in a program that uses both.

    A round's figure is the mean: what a path's threads do to the other's shows in some calls alone. Of rounds
    it is the median; past `until` there are the fewest rounds.
    """
    readings: list[tuple[float, float]] = []
    for number in range(rounds):
        if until is not None and number >= FEWEST_ROUNDS and time.monotonic() > until:
            break
        first()
        second()
        totals, count = [0.0, 0.0], 0
        started = before = time.perf_counter()
        while count == 0 or before - started < COMPANY_SECS:
            first()
            middle = time.perf_counter()
            second()
            after = time.perf_counter()
            totals[0] += middle - before
            totals[1] += after - middle
            before, count = after, count + 1
        readings.append((totals[0] / count, totals[1] / count))
    one, other = np.median(readings, axis=0)
    return float(one), float(other)


def _warm(call: Callable[[], Any]) -> None:
    until = time.perf_counter() + WARM_SECS
    call()
    while time.perf_counter() < until:
        call()


def _number(call: Callable[[], Any]) -> int:
    _warm(call)
    started = time.perf_counter()
    call()
    return max(1, int(np.ceil(BATCH_SECS / max(time.perf_counter() - started, 1e-7))))
