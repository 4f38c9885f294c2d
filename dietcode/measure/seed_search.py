"""The search for a seed: MetaSchedule on the machine that measures, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from dietcode.search_space.cpu.seed import run_seed
from dietcode.search_space.problem import Problem
from dietcode.search_space.seed import NoTrialError, Seed
from dietcode.target.cpu import CpuTarget

Progress = Callable[[int, float | None], None]


@dataclass(frozen=True)
class SeedRequest:
    """A run of MetaSchedule, as `dietcode.search_space.cpu.seed.run_seed` has it.

    Attributes
    ----------
    extents : dict of str to int
        Of the largest instance.
    num_trials, max_secs
        Bounds on the run.
    """

    problem: Problem
    extents: Mapping[str, int]
    target: CpuTarget
    num_trials: int
    max_secs: float


@dataclass(frozen=True)
class SeedResult:
    """T0, or why there is none.

    Attributes
    ----------
    facts : dict
        What a report says of it: trials, seconds, best GFLOP/s, decisions.
    """

    seed: Seed | None
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


class SeedSearch(Protocol):
    """Runs MetaSchedule beside nothing else that measures."""

    def find(self, request: SeedRequest, work_dir: Path, progress: Progress) -> SeedResult:
        """Search for T0.

        Parameters
        ----------
        work_dir : Path
            Folder of MetaSchedule's database; a later search goes on from it.
        progress : callable
            Called with the number of finished trials and the best GFLOP/s so far.

        Raises
        ------
        TuningError
            The device is gone for good.
        """


class LocalSeedSearch:
    """`SeedSearch` in a process of its own on this machine."""

    def find(self, request: SeedRequest, work_dir: Path, progress: Progress) -> SeedResult:
        """As `SeedSearch.find`."""
        try:
            seed, facts = run_seed(
                request.problem,
                dict(request.extents),
                request.target,
                work_dir,
                request.num_trials,
                request.max_secs,
                progress,
            )
        except NoTrialError as error:
            return SeedResult(None, error=str(error))
        return SeedResult(seed, facts)


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
        """The reason alone."""
        return SeedResult(None, error=self.reason)
