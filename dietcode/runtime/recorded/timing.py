"""Where the time of a call of a recorded program goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from dietcode.runtime.recorded.fibers import Job, Scheduler


@dataclass
class Clock:
    """What one call took, in nanoseconds.

    Attributes
    ----------
    python : int
        The user's code, with what it records and computes eagerly.
    instances : int
        From the first instance's begin to the last one's end; what is not `python` are waits, with flushes.
    flushed : int
        Flushes until then.
    num_waits : int
    """

    python: int = 0
    instances: int = 0
    flushed: int = 0
    num_waits: int = 0
    _entered: int | None = None

    def enter(self) -> None:
        """The user's code goes on."""
        if self._entered is None:
            self._entered = perf_counter_ns()

    def leave(self) -> None:
        """The user's code waits, or has ended."""
        if self._entered is not None:
            self.python += perf_counter_ns() - self._entered
            self._entered = None


class TimedScheduler(Scheduler):
    """A scheduler that says when the user's code runs.

    Parameters
    ----------
    clock : Clock
    *given, **named
        As `Scheduler` takes them.
    """

    def __init__(self, clock: Clock, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._clock = clock

    def results(self) -> list[Any]:
        """Run all instances, as `Scheduler` does."""
        begin = perf_counter_ns()
        found = super().results()
        self._clock.instances = perf_counter_ns() - begin
        self._clock.flushed = self._run.flush_nsecs
        return found

    def wait(self, handle: Any) -> None:
        """Return when a handle is computed."""
        self._clock.leave()
        self._clock.num_waits += 1
        try:
            super().wait(handle)
        finally:
            self._clock.enter()

    def call_all(self, jobs: Sequence[Job]) -> list[Any]:
        """Return the results of jobs."""
        self._clock.leave()
        try:
            return super().call_all(jobs)
        finally:
            self._clock.enter()

    def _do(self, job: Job) -> None:
        self._clock.enter()
        try:
            super()._do(job)
        finally:
            self._clock.leave()
