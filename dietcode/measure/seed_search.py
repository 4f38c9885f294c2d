"""The search for a seed: MetaSchedule on the machine that measures, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dietcode.search_space.problem import AnyProblem
from dietcode.target.base import Target

Progress = Callable[[int, float | None], None]
"""Called with the number of finished trials and the best GFLOP/s so far."""


@dataclass(frozen=True)
class SeedRequest:
    """A run of MetaSchedule.

    Attributes
    ----------
    extents : dict of str to int
        Of the largest instance.
    target : Target
        Of the kind that the search is for.
    num_trials, max_secs
        Bounds on the run.
    """

    problem: AnyProblem
    extents: Mapping[str, int]
    target: Target
    num_trials: int
    max_secs: float


@dataclass(frozen=True)
class SeedResult:
    """T0, or why there is none.

    Attributes
    ----------
    facts : mapping or None
        The seed as a line of records holds it: tile, trials, seconds, best GFLOP/s, decisions.
    """

    facts: Mapping[str, Any] | None
    error: str | None = None


class SeedSearch(Protocol):
    """Runs MetaSchedule while nothing else is measured."""

    def find(self, request: SeedRequest, work_dir: Path, progress: Progress) -> SeedResult:
        """Search for T0.

        Parameters
        ----------
        work_dir : Path
            Folder of MetaSchedule's database; a later search goes on from it.
        progress : callable
            As `Progress`.

        Raises
        ------
        TuningError
            The device is gone.
        """


@dataclass(frozen=True)
class NoSeedSearch:
    """`SeedSearch` where MetaSchedule cannot run.

    Parameters
    ----------
    reason : str
        Why not.
    """

    reason: str

    def find(self, request: SeedRequest, work_dir: Path, progress: Progress) -> SeedResult:
        """Return the reason alone."""
        return SeedResult(None, self.reason)
