"""One problem on one GPU: its space and its cost model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dietcode.backends.protocol import Domain
from dietcode.cost_model.cuda.features import CudaEstimator
from dietcode.cost_model.cuda.fitting import fit_cuda
from dietcode.cost_model.model import Extents, Fitted
from dietcode.measure.records import Records
from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cuda.block_space import block_micro_kernels, block_neighbours, block_seeds
from dietcode.search_space.cuda.candidates import starting_candidates
from dietcode.search_space.cuda.expansion import fitting_tiles
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.space import CudaSeed, hardware_seeds, neighbours
from dietcode.search_space.problem import AnyProblem, Problem
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.problem import RowProblem
from dietcode.search_space.tails import TAILS
from dietcode.target.cuda import CudaTarget


@dataclass(frozen=True)
class CudaDomain(Domain):
    """`dietcode.backends.protocol.Domain` of a GPU.

    Attributes
    ----------
    problem : AnyProblem
        As `dietcode.search_space.cuda.forms.device_problem` gives it.
    num_sms : int
        Multiprocessors of the device that measures.
    """

    problem: AnyProblem
    target: CudaTarget
    num_sms: int

    @property
    def limits(self) -> CudaLimits:
        """Hardware limits of a multiprocessor."""
        return CudaLimits.of(self.target)

    def hardware_seeds(self) -> list[CudaSeed]:
        return hardware_seeds(self.problem, self.limits)

    def seed_of(self, facts: Mapping[str, Any], source: str) -> CudaSeed:
        return CudaSeed(CudaMicroKernel.from_json(facts["micro_kernel"]), source)

    def starting(self, seeds: Sequence[CudaSeed], extents: Extents, mutate: bool) -> list[Candidate]:
        if not mutate:
            held = [seed for seed in seeds if self.limits.holds(self.problem, seed.micro_kernel)]
            return [Candidate(seed.micro_kernel, seed.source) for seed in held]
        largest = {index: int(np.max(values)) for index, values in extents.items()}
        return starting_candidates(self.problem, list(seeds), self.limits, largest)

    def allows(self, micro_kernel: CudaMicroKernel) -> bool:
        return self.limits.holds(self.problem, micro_kernel)

    def micro_kernel(self, facts: Mapping[str, Any]) -> CudaMicroKernel:
        return CudaMicroKernel.from_json(facts)

    def tails(self, micro_kernel: CudaMicroKernel) -> list[CudaMicroKernel]:
        if micro_kernel.tails != TAILS[0]:
            return []
        others = (replace(micro_kernel, tails=tails) for tails in micro_kernel.allowed_tails[1:])
        return [other for other in others if self.allows(other)]

    def neighbours(self, micro_kernel: CudaMicroKernel, longest: int) -> list[CudaMicroKernel]:
        return neighbours(self.problem, micro_kernel, self.limits, longest)

    def fitting_tiles(self, rows: int, columns: int) -> list[CudaMicroKernel]:
        """As `Domain` has it, around the hardware's seeds whose blocks are alone."""
        tiles = [seed.micro_kernel for seed in self.hardware_seeds() if seed.micro_kernel.is_alone]
        return fitting_tiles(self.problem, tiles, rows, columns, self.limits)

    def ways(self, micro_kernel: CudaMicroKernel) -> frozenset[str]:
        axes = {
            micro_kernel.tails: True,
            micro_kernel.unit: True,
            "split": micro_kernel.splits > 1,
            "staged": micro_kernel.stages > 1,
            "cluster": micro_kernel.cluster > 1,
            "persistent": micro_kernel.persistent,
        }
        return frozenset(name for name, is_on in axes.items() if is_on)

    def estimator(self, records: Records) -> CudaEstimator | None:
        if records.calibration is None:
            return None
        return CudaEstimator.of(self.target, self.num_sms, records.calibration)

    def fit(self, records: Records, extents: Extents) -> Fitted:
        return fit_cuda(self.problem, records, extents)


@dataclass(frozen=True)
class CudaBlockDomain(CudaDomain):
    """`CudaDomain` of a block, whose space is listed from the beginning."""

    def hardware_seeds(self) -> list[CudaSeed]:
        return block_seeds(self.problem, self.limits)

    def starting(self, seeds: Sequence[CudaSeed], extents: Extents, mutate: bool) -> list[Candidate]:
        """As `Domain` has it: the seeds, then every other micro-kernel."""
        if not mutate:
            return super().starting(seeds, extents, mutate)
        first = [seed.micro_kernel for seed in seeds if self.allows(seed.micro_kernel)]
        more = block_micro_kernels(self.problem, self.limits)
        return [Candidate(one, "hardware") for one in dict.fromkeys((*first, *more))]

    def tails(self, micro_kernel: CudaMicroKernel) -> list[CudaMicroKernel]:
        """Return none: what reaches past an edge is clamped, and not written."""
        return []

    def neighbours(self, micro_kernel: CudaMicroKernel, longest: int) -> list[CudaMicroKernel]:
        return block_neighbours(self.problem, micro_kernel, self.limits)

    def fitting_tiles(self, rows: int, columns: int) -> list[CudaMicroKernel]:
        """Return none: every tile is in the space from the beginning."""
        return []


CUDA_DOMAINS: dict[str, type[CudaDomain]] = {
    Problem.form: CudaDomain,
    ProductProblem.form: CudaBlockDomain,
    RowProblem.form: CudaBlockDomain,
    AttentionProblem.form: CudaBlockDomain,
}
