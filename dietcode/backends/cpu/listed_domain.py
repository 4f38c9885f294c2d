"""One problem on one CPU whose space is listed from the beginning: its space and its cost model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.backends.protocol import Domain
from dietcode.cost_model.cpu.estimator import TermEstimator
from dietcode.cost_model.model import Extents, Fitted
from dietcode.measure.records import Records
from dietcode.search_space.candidate import AnyMicroKernel, Candidate
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.spaces import SMALL_SPACES, SmallSpace, cpu_micro_kernel
from dietcode.search_space.problem import AnyProblem
from dietcode.search_space.seed import Seed
from dietcode.target.cpu import CpuTarget


@dataclass(frozen=True)
class ListedDomain(Domain):
    """`dietcode.backends.protocol.Domain` of a block or a depthwise convolution on a CPU.

    Attributes
    ----------
    estimator_type : type
        Estimator of the problem's form, which has the fit as well.
    """

    problem: AnyProblem
    target: CpuTarget
    estimator_type: type[TermEstimator]

    @property
    def limits(self) -> Limits:
        """Hardware limits of a core."""
        return Limits.of(self.target)

    @property
    def space(self) -> SmallSpace:
        """Micro-kernels of the problem's form."""
        return SMALL_SPACES[self.problem.form]

    def hardware_seeds(self) -> list[Seed]:
        return [Seed(k.rows, k.columns, "hardware") for k in self.space.seeds(self.problem, self.limits)]

    def seed_of(self, facts: Mapping[str, Any], source: str) -> Seed:
        rows, columns = facts["tile"]
        return Seed(int(rows), int(columns), source)

    def starting(self, seeds: Sequence[Seed], extents: Extents, mutate: bool) -> list[Candidate]:
        """As `Domain` has it: the form's own seeds, then every other tile."""
        first = self.space.seeds(self.problem, self.limits)
        more = self.space.others(self.problem, self.limits) if mutate else []
        return [Candidate(kernel, "hardware") for kernel in dict.fromkeys((*first, *more))]

    def allows(self, micro_kernel: AnyMicroKernel) -> bool:
        return self.space.allows(self.problem, micro_kernel, self.limits)

    def micro_kernel(self, facts: Mapping[str, Any]) -> AnyMicroKernel:
        """As `Domain` has it; records from before a form hold those of contractions, not allowed here."""
        return cpu_micro_kernel(facts)

    def tails(self, micro_kernel: AnyMicroKernel) -> list[AnyMicroKernel]:
        """Return none: what reaches past an edge is clamped, masked or computed one by one."""
        return []

    def neighbours(self, micro_kernel: AnyMicroKernel, longest: int) -> list[AnyMicroKernel]:
        return self.space.neighbours(self.problem, micro_kernel, self.limits)

    def fitting_tiles(self, rows: int, columns: int) -> list[AnyMicroKernel]:
        """Return none: every tile is in the space from the beginning."""
        return []

    def ways(self, micro_kernel: AnyMicroKernel) -> frozenset[str]:
        found: frozenset[str] = micro_kernel.ways
        return found

    def estimator(self, records: Records) -> TermEstimator | None:
        if records.calibration is None:
            return None
        return self.estimator_type.of(self.limits, records.calibration)

    def fit(self, records: Records, extents: Extents) -> Fitted:
        return self.estimator_type.form.fit(self.problem, self.target, records, extents)
