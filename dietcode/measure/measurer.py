"""Drives the child processes: builds side by side, measures one at a time, notices disturbed readings.

The builder and the runner are injected, so that tests can use `dietcode.measure.fake` and a later engine can
spread them over machines. A crash, a hang or a wrong result costs one candidate: it comes back as an error
text in its result, never as an exception.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dietcode.search_space.limits import Limits, MicroKernel
from dietcode.search_space.problem import Problem
from dietcode.target.cpu import CpuTarget

_DISTURBED = 0.06  # relative rise of the reference reading above the session's best that is not trusted
_MAX_ATTEMPTS = 3


@dataclass(frozen=True)
class BuildResult:
    """One built library, or why there is none."""

    path: str | None
    object_bytes: int
    secs: float
    error: str | None = None


@dataclass(frozen=True)
class RunResult:
    """Seconds of one call at each point, or why there are none.

    Attributes
    ----------
    secs : tuple of float
        Median seconds at each point, scaled to the session's undisturbed reference reading.
    reference_ratio : float
        Reference reading beside this measurement over the session's best, ≥ 1; what `secs` was divided by.
    attempts : int
        How often the batch was repeated because it was disturbed.
    """

    secs: tuple[float, ...]
    reference_ratio: float = 1.0
    attempts: int = 1
    error: str | None = None


class Children(Protocol):
    """Runs a function of `dietcode.measure.worker` elsewhere, with a timeout."""

    def map_builds(self, requests: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any] | str]:
        """Results in order; a text instead of a result is an error."""

    def run(self, function: str, request: dict[str, Any], timeout_secs: float) -> dict[str, Any] | str:
        """One call in the measuring process; a text instead of a result is an error."""

    def close(self) -> None:
        """End all children."""


@dataclass
class Measurer:
    """Builds and times micro-kernels of one problem on this machine.

    Parameters
    ----------
    min_secs, repeats
        A reading is the median of `repeats` batches of at least `min_secs` seconds.
    """

    children: Children
    problem: Problem
    variables: tuple[str, ...]
    target: CpuTarget
    min_secs: float = 2e-3
    repeats: int = 5
    timeout_secs: float = 30.0
    reference: tuple[Problem, str, dict[str, int]] | None = None
    best_reference_secs: float = float("inf")
    _folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="dietcode-")
    )

    @property
    def limits(self) -> Limits:
        """Hardware limits of the target."""
        return Limits.of(self.target)

    def build_request(
        self, micro_kernels: Sequence[MicroKernel], name: str, problem: Problem | None = None
    ) -> dict[str, Any]:
        """What `worker.build` needs for a library that always runs the first micro-kernel."""
        return {
            "problem": problem or self.problem,
            "micro_kernels": tuple(micro_kernels),
            "tree": 0,
            "variables": self.variables if problem is None else (),
            "limits": self.limits,
            "target": self.target,
            "path": str(Path(self._folder.name) / f"{name}.so"),
        }

    def build(self, requests: Sequence[dict[str, Any]]) -> list[BuildResult]:
        """Build all, side by side."""
        results = []
        for outcome in self.children.map_builds(requests):
            if isinstance(outcome, str):
                results.append(BuildResult(None, 0, 0.0, outcome))
            else:
                results.append(BuildResult(outcome["path"], outcome["object_bytes"], outcome["secs"]))
        return results

    def check(self, path: str, extents: dict[str, int], values: Sequence[int]) -> str | None:
        """Why the library gives wrong numbers at one instance; None where it is right."""
        request = {
            "problem": self.problem,
            "limits": self.limits,
            "path": path,
            "extents": extents,
            "values": list(values),
        }
        outcome = self.children.run("check_library", request, self.timeout_secs)
        return outcome if isinstance(outcome, str) else None

    def time(self, path: str, points: Sequence[dict[str, int]]) -> RunResult:
        """Time one library; repeats the batch while the reference kernel beside it is slow."""
        request = self._time_request(self.problem, path, points, self.variables)
        result = RunResult((), error="not measured")
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            before = self.read_reference()
            outcome = self.children.run("time_library", request, self.timeout_secs)
            if isinstance(outcome, str):
                return RunResult((), attempts=attempt, error=outcome)
            after = self.read_reference()
            ratio = max(1.0, float(np.mean([before, after])) / self.best_reference_secs)
            candidate = RunResult(tuple(s / ratio for s in outcome["secs"]), ratio, attempt)
            if result.error is not None or candidate.reference_ratio < result.reference_ratio:
                result = candidate
            if max(before, after) <= self.best_reference_secs * (1 + _DISTURBED):
                break
            time.sleep(0.05 * attempt)
        return result

    def read_reference(self) -> float:
        """Seconds of the reference kernel now; 1.0 where none is set."""
        if self.reference is None:
            self.best_reference_secs = 1.0
            return 1.0
        problem, path, extents = self.reference
        request = self._time_request(problem, path, [extents], ()) | {"keep": True}
        outcome = self.children.run("time_library", request, self.timeout_secs)
        if isinstance(outcome, str):
            return self.best_reference_secs
        self.best_reference_secs = min(self.best_reference_secs, outcome["secs"][0])
        return float(outcome["secs"][0])

    def time_problem(self, problem: Problem, path: str, points: Sequence[dict[str, int]]) -> list[float] | str:
        """Seconds of another problem's library at each point, unscaled; a text is an error."""
        outcome = self.children.run(
            "time_library", self._time_request(problem, path, points, ()) | {"keep": True}, self.timeout_secs
        )
        return outcome if isinstance(outcome, str) else [float(s) for s in outcome["secs"]]

    def _time_request(
        self, problem: Problem, path: str, points: Sequence[dict[str, int]], variables: tuple[str, ...]
    ) -> dict[str, Any]:
        return {
            "problem": problem,
            "limits": self.limits,
            "path": path,
            "points": list(points),
            "variables": variables,
            "min_secs": self.min_secs,
            "repeats": self.repeats,
        }

    def close(self) -> None:
        """End the children and delete what was built."""
        self.children.close()
        self._folder.cleanup()

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

