"""Drives the child processes: builds side by side, measures one at a time, notices disturbed readings.

A crash, a hang or a wrong result costs one candidate: it comes back as the error of its result, never as an
exception.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dietcode.errors import TuningError
from dietcode.measure.children import Children
from dietcode.measure.requests import (
    BuildRequest,
    BuildResult,
    CheckRequest,
    Point,
    TimeRequest,
    TimeResult,
)
from dietcode.search_space.problem import AnyProblem

_DISTURBED = 1.10  # a reference reading above this multiple of its usual one is not trusted
_USUAL_PERCENTILE = 25
_WINDOW = 24  # reference readings that say what is usual now; two go with each batch
_SLOWEST = 1.3  # of the calibration: what is slower is no drift, but something else that runs
_MAX_ATTEMPTS = 4
_REST_SECS = 0.2
_FLICKERS = 1.05  # from one reference reading to the next: slow moments are shorter than a batch
_FEWEST_CHANGES = 6  # from one reading to the next: the first ones of a process are slow
_FLICKERING_ATTEMPTS = 5  # whose median counts then; no wait between them would help
_TRIES = 2  # of the reference kernel: the machine that measures may have been lost, and another taken


@dataclass(frozen=True)
class RunResult:
    """Seconds of one call at each point, or why there are none.

    Attributes
    ----------
    secs : tuple of float
        Seconds at each point, scaled to the usual reference reading.
    drift : float
        What `secs` was divided by: the smaller of the two readings of the reference kernel around the batch,
        at most 1.1 of its usual one, over that of the calibration; where there is none, over the usual one.
        On a machine that flickers, the median of their means.
    disturbed : float
        The larger of the two over the usual one, of the least disturbed attempt.
    attempts : int
        How often the batch was read: again where it was disturbed, five times where the machine flickers.
    """

    secs: tuple[float, ...]
    drift: float = 1.0
    disturbed: float = 1.0
    attempts: int = 1
    error: str | None = None


@dataclass
class Measurer:
    """Builds, checks and times code of one problem; what a kind of device has of its own passes through.

    Parameters
    ----------
    call : object
        How the code is called, as `dietcode.measure.requests.CallRequest` has it.
    num_variables : int
        Shape variables that the code takes.
    min_secs, repeats
        A reading takes ``repeats · min_secs`` seconds, in batches of calls, of which a fast one counts: on a
        shared machine disturbances only ever add time.
    base_secs : float, optional
        The reference kernel's usual reading at the calibration: the speed that all times are scaled to.
    reference : tuple of (AnyProblem, path, point), optional
        The kernel that is read before and after each batch.

    Attributes
    ----------
    flickers : bool
        Whether one reading of it was mostly more than 5 % from the next, now or at some time before: what is
        read in two ways is not comparable, since slow moments that are steady are scaled by less.
    """

    children: Children
    problem: AnyProblem
    call: Any
    num_variables: int = 0
    min_secs: float = 2e-3
    repeats: int = 7
    timeout_secs: float = 30.0
    base_secs: float | None = None
    reference: tuple[AnyProblem, str, Point] | None = None
    reference_readings: list[float] = field(default_factory=list)
    flickers: bool = field(default=False, init=False)

    def build(self, requests: Sequence[BuildRequest]) -> list[BuildResult]:
        """Build all side by side."""
        return list(self.children.build(requests))

    def check(self, path: str, points: Sequence[Point], max_flops: float = math.inf) -> str | None:
        """Return why the code gives wrong numbers at some point; None where it is right.

        Parameters
        ----------
        max_flops : float
            As `CheckRequest` has it.
        """
        request = CheckRequest(
            self.problem, path, self.call, tuple(points), self._values(points), max_flops=max_flops
        )
        return self.children.check(request, self.timeout_secs).error

    def _values(self, points: Sequence[Point]) -> tuple[tuple[int, ...], ...]:
        """Return zeros for the shape variables: there is one micro-kernel, which every value runs."""
        return ((0,) * self.num_variables,) * len(points)

    def time(self, path: str, points: Sequence[Point]) -> RunResult:
        """Time one library at some points, again while the reference kernel beside it is slow.

        Where it is slow for moments shorter than a batch, readings before and after say little of one batch:
        calm ones would be a matter of luck, and are too slow for it. Then the median of five counts, each
        scaled by the mean of its two.
        """
        request = TimeRequest(
            self.problem, path, self.call, tuple(points), self._values(points), self.min_secs, self.repeats
        )
        if self.flickers:
            return self._time_flickering(request)
        result = RunResult((), error="not measured")
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            outcome, before, after = self._between_references(request)
            if outcome.error is not None:
                return RunResult((), attempts=attempt, error=outcome.error)
            usual = self.usual_reference_secs
            disturbed = max(before, after) / usual
            if result.error is not None or disturbed < result.disturbed:
                # Drift shows on both sides of the batch; a spike on one side must not flatter the batch, nor
                # a slow time that is over and still usual.
                drift = self._trend(usual) * min(before / usual, after / usual, _DISTURBED)
                result = RunResult(tuple(s / drift for s in outcome.secs), drift, disturbed, attempt)
            if disturbed <= _DISTURBED or attempt == _MAX_ATTEMPTS:
                break
            time.sleep(_REST_SECS * attempt)
        return replace(result, attempts=attempt)

    def _time_flickering(self, request: TimeRequest) -> RunResult:
        """Return the median of scaled readings."""
        secs, drifts, disturbed = [], [], []
        for attempt in range(1, _FLICKERING_ATTEMPTS + 1):
            outcome, before, after = self._between_references(request)
            if outcome.error is not None:
                return RunResult((), attempts=attempt, error=outcome.error)
            usual = self.usual_reference_secs
            drifts.append((before + after) / 2 / (usual if self.base_secs is None else self.base_secs))
            secs.append([one / drifts[-1] for one in outcome.secs])
            disturbed.append(max(before, after) / usual)
        medians = tuple(float(one) for one in np.median(secs, axis=0))
        return RunResult(medians, float(np.median(drifts)), min(disturbed), attempt)

    def _between_references(self, request: TimeRequest) -> tuple[TimeResult, float, float]:
        """Time once; return the readings of the reference kernel before and after it as well."""
        before = self.read_reference()
        outcome = self.children.time(request, self.timeout_secs)
        return outcome, before, self.read_reference() if outcome.error is None else before

    def _trend(self, usual: float) -> float:
        """Return how much slower the machine is than at the calibration; machines drift over minutes."""
        return 1.0 if self.base_secs is None else usual / self.base_secs

    @property
    def usual_reference_secs(self) -> float:
        """Lower quartile of the latest reference readings, at most 1.3 of the calibration's; else 1.0."""
        recent = self.reference_readings[-_WINDOW:]
        usual = float(np.percentile(recent, _USUAL_PERCENTILE)) if recent else 1.0
        return usual if self.base_secs is None else min(usual, _SLOWEST * self.base_secs)

    def read_reference(self) -> float:
        """Return the seconds of the reference kernel now; 1.0 where none is set."""
        if self.reference is None:
            return 1.0
        problem, path, extents = self.reference
        (secs,) = self.time_problem(problem, path, [extents])
        self.reference_readings.append(secs)
        changes = np.abs(np.diff(np.log(self.reference_readings[-_WINDOW:])))
        self.flickers |= len(changes) >= _FEWEST_CHANGES and bool(np.median(changes) > np.log(_FLICKERS))
        return secs

    def time_problem(self, problem: AnyProblem, path: str, points: Sequence[Point]) -> list[float]:
        """Return the seconds of another problem's library at each point, unscaled.

        Raises
        ------
        TuningError
            It does not run, so that measurements cannot be compared with it.
        """
        request = TimeRequest(
            problem, path, self.call, tuple(points), (), self.min_secs, self.repeats, keeps=True
        )
        outcome = TimeResult.failed("not timed")
        for _ in range(_TRIES):
            outcome = self.children.time(request, self.timeout_secs)
            if outcome.error is None:
                return list(outcome.secs)
        raise TuningError(f"the reference kernel does not run on the machine that measures: {outcome.error}")
