"""One block with products on one CPU: its space and its cost model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.backends.protocol import Domain
from dietcode.cost_model.cpu.products import ProductEstimator, fit_products
from dietcode.cost_model.model import Extents, Fitted
from dietcode.measure.records import Records
from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.products.micro_kernel import ProductKernel
from dietcode.search_space.cpu.products.space import allows, neighbours, seeds, tiles
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.seed import Seed
from dietcode.target.cpu import CpuTarget


@dataclass(frozen=True)
class CpuProductDomain(Domain):
    """`dietcode.backends.protocol.Domain` of a block with products on a CPU."""

    problem: ProductProblem
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
        more = tiles(self.problem, self.limits) if mutate else []
        return [Candidate(kernel, "hardware") for kernel in dict.fromkeys((*first, *more))]

    def allows(self, micro_kernel: ProductKernel) -> bool:
        return allows(self.problem, micro_kernel, self.limits)

    def micro_kernel(self, facts: Mapping[str, Any]) -> ProductKernel:
        return ProductKernel.from_json(facts)

    def tails(self, micro_kernel: ProductKernel) -> list[ProductKernel]:
        """Return none: tiles at an edge are clamped and masked."""
        return []

    def neighbours(self, micro_kernel: ProductKernel, longest: int) -> list[ProductKernel]:
        return neighbours(self.problem, micro_kernel, self.limits)

    def fitting_tiles(self, rows: int, columns: int) -> list[ProductKernel]:
        """Return none: every tile is in the space from the beginning."""
        return []

    def ways(self, micro_kernel: ProductKernel) -> frozenset[str]:
        return frozenset({"serial"} if micro_kernel.serial else ())

    def estimator(self, records: Records) -> ProductEstimator | None:
        return None if records.calibration is None else ProductEstimator.of(self.limits, records.calibration)

    def fit(self, records: Records, extents: Extents) -> Fitted:
        return fit_products(self.problem, self.target, records, extents)
