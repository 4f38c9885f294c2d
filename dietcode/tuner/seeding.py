"""Where the space starts: MetaSchedule on the largest instance, the register file, earlier workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.measure.records import Records, RecordsStore
from dietcode.measure.seed_search import SeedRequest, SeedSearch
from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cpu.axes import allows
from dietcode.search_space.cpu.expansion import fitting_tiles
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cpu.space import Seed, build_space, hardware_seeds
from dietcode.search_space.problem import IntArray, Problem
from dietcode.search_space.task import Task
from dietcode.target.cpu import CpuTarget
from dietcode.tuner.events import Event, Listener
from dietcode.tuner.search import Search

_SHARE_OF_TRIALS = 4  # one trial in four goes to the seed
_MAX_TRIALS = 32
_SHARE_OF_SECS = 0.4
_TRUSTED_ERROR = 0.1  # of the learned f_local on the first batch of a new workload

Known = Sequence[tuple[Problem, Records]]


@dataclass
class Seeding:
    """The seed of one workload on one device, found once.

    Parameters
    ----------
    known : sequence of (Problem, Records)
        Other workloads of this device.
    secs_left : callable
        Seconds of the budget that are left.
    """

    task: Task
    target: CpuTarget
    store: RecordsStore
    work_dir: Path
    search: Search
    known: Known
    secs_left: Callable[[], float]
    listener: Listener
    seeds: SeedSearch
    _tried: bool = False

    @property
    def is_missing(self) -> bool:
        """Whether MetaSchedule is wanted and gave nothing yet."""
        return self.search.metaschedule and self.store.records.seed is None

    @property
    def may_wait(self) -> bool:
        """Whether the first round may show that earlier workloads know enough to do without."""
        usable = self.search.learning and bool(earlier_seeds(self.known))
        return self.is_missing and usable and not self._tried

    @property
    def num_trials(self) -> int:
        """Trials of the budget that the seed took, or is to take."""
        seed = self.store.records.seed
        if seed is not None:
            return int(seed["trials"])
        return self._num_wanted if self.is_missing else 0

    @property
    def _num_wanted(self) -> int:
        return max(1, min(_MAX_TRIALS, self.task.spec.budget.trials // _SHARE_OF_TRIALS))

    def after_first_round(self, decision: Mapping[str, Any]) -> None:
        """Take an earlier workload's seed where the learned f_local foretold the first round, else run."""
        missed = decision["model"]["missed"] if decision["model"] else None
        if missed is None or missed > _TRUSTED_ERROR:
            self.run()
            return
        seed, workload = earlier_seeds(self.known)[-1]
        reason = (
            f"the learned f_local of earlier workloads missed the first round by {missed:.1%}, "
            "so MetaSchedule was not run"
        )
        self.store.append(
            {
                "kind": "seed",
                "tile": [seed.rows, seed.columns],
                "trials": 0,
                "secs": 0.0,
                "best_gflops": None,
                "decisions": [],
                "from_workload": workload,
                "reason": reason,
            }
        )
        self.listener(
            Event("seed", f"T0 = {seed.rows}x{seed.columns} of an earlier workload: {reason}", 1, 1)
        )

    def run(self) -> None:
        """MetaSchedule on the largest instance, once for a workload and device."""
        if not self.search.metaschedule:
            return
        seed = self.store.records.seed
        if seed is not None:
            self.listener(Event("seed", f"T0 = {seed['tile'][0]}x{seed['tile'][1]}, from the records", 1, 1))
            return
        self._tried = True
        trials = self._num_wanted
        started = self.secs_left()
        allowed = _SHARE_OF_SECS * max(1.0, started)

        def progress(done: int, gflops: float | None) -> None:
            spent = started - self.secs_left()
            left = min(allowed - spent, spent / done * (trials - done)) if done else None
            message = "MetaSchedule on the largest instance"
            self.listener(Event("seed", message, done, trials, gflops, left))

        request = SeedRequest(self.task.problem, self.task.largest, self.target, trials, allowed)
        found = self.seeds.find(request, self.work_dir, progress)
        if found.seed is None:  # a busy machine, a short budget: a later run tries again
            self.listener(Event("seed", f"{found.error}; going on with tiles of the register file", 1, 1))
            return
        self.store.append({"kind": "seed", **found.facts})
        best, num_done = found.facts["best_gflops"], found.facts["trials"]
        message = f"T0 = {found.seed.rows}x{found.seed.columns}, {best} GFLOP/s after {num_done} trials"
        self.listener(Event("seed", message, trials, trials, best))


def earlier_seeds(known: Known) -> list[tuple[Seed, str]]:
    """Tiles that MetaSchedule found for other workloads of this device, with the workload, each tile once."""
    found: dict[tuple[int, int], str] = {}
    for _, records in known:
        if records.seed is not None and not records.seed.get("from_workload"):
            rows, columns = records.seed["tile"]
            found.pop((int(rows), int(columns)), None)  # the newest comes last
            found[int(rows), int(columns)] = records.workload
    return [(Seed(rows, columns, "earlier"), workload) for (rows, columns), workload in found.items()]


def starting_space(
    problem: Problem,
    limits: Limits,
    extents: dict[str, IntArray],
    records: Records,
    known: Known,
    search: Search,
) -> list[Candidate]:
    """The space around every seed, and what earlier rounds of this workload added to it."""
    seeds = hardware_seeds(limits)
    if search.metaschedule and records.seed is not None:
        rows, columns = records.seed["tile"]
        source = "earlier" if records.seed.get("from_workload") else "metaschedule"
        seeds.insert(0, Seed(int(rows), int(columns), source))
    if search.learning:
        seeds += [seed for seed, _ in earlier_seeds(known)]
    _, row_extents, column_extents, _ = problem.sizes(extents)
    largest = (int(np.max(row_extents)), int(np.max(column_extents)))
    space = build_space(seeds, limits, *largest, mutate=search.mutation)
    if not space:  # every tile around every seed only pads
        space = [Candidate(tile, "hardware") for tile in fitting_tiles(problem, *largest, limits)]
    added = [
        Candidate(MicroKernel.from_json(entry), str(entry["provenance"]))
        for decision in records.rounds
        for entry in decision["added"]
    ]
    return [*space, *(candidate for candidate in added if allows(problem, candidate.micro_kernel, limits))]
