"""One block of rows on one CPU: its space and its cost model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.backends.protocol import Domain
from dietcode.cost_model.cpu.rows import RowEstimator, fit_rows
from dietcode.cost_model.model import Extents, Fitted
from dietcode.measure.records import Records
from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.rows.micro_kernel import KEEPS, RowKernel
from dietcode.search_space.cpu.rows.space import allows, around, neighbours, seeds
from dietcode.search_space.rows.problem import RowProblem
from dietcode.search_space.seed import Seed
from dietcode.target.cpu import CpuTarget


@dataclass(frozen=True)
class CpuRowDomain(Domain):
    """`dietcode.backends.protocol.Domain` of a block of rows on a CPU."""

    problem: RowProblem
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
        """As `Domain` has it: the seeds, then every other step."""
        first = seeds(self.problem, self.limits)
        more = around(self.problem, self.limits) if mutate else []
        return [Candidate(kernel, "hardware") for kernel in dict.fromkeys((*first, *more))]

    def allows(self, micro_kernel: RowKernel) -> bool:
        return allows(self.problem, micro_kernel, self.limits)

    def micro_kernel(self, facts: Mapping[str, Any]) -> RowKernel:
        return RowKernel.from_json(facts)

    def tails(self, micro_kernel: RowKernel) -> list[RowKernel]:
        """Return none: rows that are left over are computed one by one, and vectors are cut off."""
        return []

    def neighbours(self, micro_kernel: RowKernel, longest: int) -> list[RowKernel]:
        return neighbours(self.problem, micro_kernel, self.limits)

    def fitting_tiles(self, rows: int, columns: int) -> list[RowKernel]:
        """Return none: every step is in the space from the beginning."""
        return []

    def ways(self, micro_kernel: RowKernel) -> frozenset[str]:
        axes = {
            micro_kernel.keep: micro_kernel.keep != KEEPS[0],
            "serial": micro_kernel.serial,
            "stream": micro_kernel.stream,
        }
        return frozenset(name for name, is_on in axes.items() if is_on)

    def estimator(self, records: Records) -> RowEstimator | None:
        return None if records.calibration is None else RowEstimator.of(self.limits, records.calibration)

    def fit(self, records: Records, extents: Extents) -> Fitted:
        return fit_rows(self.problem, self.target, records, extents)
