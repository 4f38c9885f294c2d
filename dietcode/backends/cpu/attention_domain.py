"""One attention on one CPU: its space and its cost model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.backends.protocol import Domain
from dietcode.cost_model.cpu.attention import AttentionEstimator, fit_attention
from dietcode.cost_model.model import Extents, Fitted
from dietcode.measure.records import Records
from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cpu.attention.micro_kernel import AttentionKernel
from dietcode.search_space.cpu.attention.space import allows, around, neighbours, seeds
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.seed import Seed
from dietcode.target.cpu import CpuTarget


@dataclass(frozen=True)
class CpuAttentionDomain(Domain):
    """`dietcode.backends.protocol.Domain` of an attention on a CPU."""

    problem: AttentionProblem
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

    def allows(self, micro_kernel: AttentionKernel) -> bool:
        return allows(self.problem, micro_kernel, self.limits)

    def micro_kernel(self, facts: Mapping[str, Any]) -> AttentionKernel:
        return AttentionKernel.from_json(facts)

    def tails(self, micro_kernel: AttentionKernel) -> list[AttentionKernel]:
        """Return none: the last query is computed again where a tile has fewer."""
        return []

    def neighbours(self, micro_kernel: AttentionKernel, longest: int) -> list[AttentionKernel]:
        return neighbours(self.problem, micro_kernel, self.limits)

    def fitting_tiles(self, rows: int, columns: int) -> list[AttentionKernel]:
        """Return none: every tile is in the space from the beginning."""
        return []

    def ways(self, micro_kernel: AttentionKernel) -> frozenset[str]:
        axes = {"shared": micro_kernel.tiles > 1, "serial": micro_kernel.serial, "split": micro_kernel.split}
        return frozenset(name for name, is_on in axes.items() if is_on)

    def estimator(self, records: Records) -> AttentionEstimator | None:
        return (
            None if records.calibration is None else AttentionEstimator.of(self.limits, records.calibration)
        )

    def fit(self, records: Records, extents: Extents) -> Fitted:
        return fit_attention(self.problem, self.target, records, extents)
