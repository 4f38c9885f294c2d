"""One depthwise convolution on one CPU: its space and its cost model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.backends.protocol import Domain
from dietcode.cost_model.cpu.depthwise import DepthwiseEstimator, fit_depthwise
from dietcode.cost_model.model import Extents, Fitted
from dietcode.measure.records import Records
from dietcode.search_space.candidate import AnyMicroKernel, Candidate
from dietcode.search_space.cpu.depthwise.micro_kernel import DepthwiseKernel
from dietcode.search_space.cpu.depthwise.space import allows, around, neighbours, seeds
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.depthwise import DepthwiseProblem
from dietcode.search_space.forms import cpu_micro_kernel
from dietcode.search_space.seed import Seed
from dietcode.target.cpu import CpuTarget


@dataclass(frozen=True)
class CpuDepthwiseDomain(Domain):
    """`dietcode.backends.protocol.Domain` of a depthwise convolution on a CPU."""

    problem: DepthwiseProblem
    target: CpuTarget

    @property
    def limits(self) -> Limits:
        """Hardware limits of a core."""
        return Limits.of(self.target)

    def hardware_seeds(self) -> list[Seed]:
        return [Seed(k.rows, k.columns, "hardware") for k in seeds(self.problem, self.limits)]

    def seed_of(self, facts: Mapping[str, Any], source: str) -> Seed:
        rows, columns = facts["tile"]
        return Seed(int(rows), int(columns), source)

    def starting(self, seeds_: Sequence[Seed], extents: Extents, mutate: bool) -> list[Candidate]:
        """As `Domain` has it: the seeds, then every other tile."""
        first = seeds(self.problem, self.limits)
        more = around(self.problem, self.limits) if mutate else []
        return [Candidate(kernel, "hardware") for kernel in dict.fromkeys((*first, *more))]

    def allows(self, micro_kernel: AnyMicroKernel) -> bool:
        return allows(self.problem, micro_kernel, self.limits)

    def micro_kernel(self, facts: Mapping[str, Any]) -> AnyMicroKernel:
        """As `Domain` has it; records from before this form hold those of contractions, not allowed here."""
        return cpu_micro_kernel(facts)

    def tails(self, micro_kernel: DepthwiseKernel) -> list[DepthwiseKernel]:
        """Return none: tiles at an edge mask their loads, and vectors are cut off."""
        return []

    def neighbours(self, micro_kernel: DepthwiseKernel, longest: int) -> list[DepthwiseKernel]:
        return neighbours(self.problem, micro_kernel, self.limits)

    def fitting_tiles(self, rows: int, columns: int) -> list[DepthwiseKernel]:
        """Return none: every tile is in the space from the beginning."""
        return []

    def ways(self, micro_kernel: DepthwiseKernel) -> frozenset[str]:
        axes = {"strips": micro_kernel.strips, "serial": micro_kernel.serial, "stream": micro_kernel.stream}
        return frozenset(name for name, is_on in axes.items() if is_on)

    def estimator(self, records: Records) -> DepthwiseEstimator | None:
        if records.calibration is None:
            return None
        return DepthwiseEstimator.of(self.limits, records.calibration)

    def fit(self, records: Records, extents: Extents) -> Fitted:
        return fit_depthwise(self.problem, self.target, records, extents)
