"""One problem on one CPU: its space and its cost model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dietcode.backends.protocol import Domain
from dietcode.cost_model.cpu.features import CpuEstimator
from dietcode.cost_model.cpu.fitting import fit_all
from dietcode.cost_model.model import Extents, Fitted
from dietcode.measure.records import Records
from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cpu.axes import allows, neighbours, ways
from dietcode.search_space.cpu.expansion import fitting_tiles
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cpu.space import build_space, hardware_seeds
from dietcode.search_space.problem import Problem
from dietcode.search_space.seed import Seed
from dietcode.search_space.tails import TAILS
from dietcode.target.cpu import CpuTarget


@dataclass(frozen=True)
class CpuDomain(Domain):
    """`dietcode.backends.protocol.Domain` of a CPU."""

    problem: Problem
    target: CpuTarget

    @property
    def limits(self) -> Limits:
        """Hardware limits of a core."""
        return Limits.of(self.target)

    def hardware_seeds(self) -> list[Seed]:
        return hardware_seeds(self.limits)

    def seed_of(self, facts: Mapping[str, Any], source: str) -> Seed:
        rows, columns = facts["tile"]
        return Seed(int(rows), int(columns), source)

    def starting(self, seeds: Sequence[Seed], extents: Extents, mutate: bool) -> list[Candidate]:
        """As `Domain` has it; tiles that fit the largest instance where all around the seeds only pad."""
        _, rows, columns, _ = self.problem.sizes(extents)
        largest = (int(np.max(rows)), int(np.max(columns)))
        space = build_space(list(seeds), self.limits, *largest, mutate=mutate)
        return space or [Candidate(tile, "hardware") for tile in self.fitting_tiles(*largest)]

    def allows(self, micro_kernel: MicroKernel) -> bool:
        return allows(self.problem, micro_kernel, self.limits)

    def micro_kernel(self, facts: Mapping[str, Any]) -> MicroKernel:
        return MicroKernel.from_json(facts)

    def tails(self, micro_kernel: MicroKernel) -> list[MicroKernel]:
        if micro_kernel.tails != TAILS[0]:
            return []
        others = (replace(micro_kernel, tails=tails) for tails in TAILS[1:])
        return [other for other in others if self.allows(other)]

    def neighbours(self, micro_kernel: MicroKernel, longest: int) -> list[MicroKernel]:
        return neighbours(self.problem, micro_kernel, self.limits, longest)

    def fitting_tiles(self, rows: int, columns: int) -> list[MicroKernel]:
        return fitting_tiles(self.problem, rows, columns, self.limits)

    def ways(self, micro_kernel: MicroKernel) -> frozenset[str]:
        return ways(micro_kernel, self.limits)

    def estimator(self, records: Records) -> CpuEstimator | None:
        return None if records.calibration is None else CpuEstimator.of(self.limits, records.calibration)

    def fit(self, records: Records, extents: Extents) -> Fitted:
        return fit_all(self.problem, self.target, records, extents)
