"""A CPU while candidates are measured on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dietcode.backends.cpu.bandwidth import measure_bandwidth
from dietcode.backends.cpu.forms import CPU_FORMS
from dietcode.backends.protocol import MeasuringDevice, SeedSought
from dietcode.cost_model.model import Extents
from dietcode.measure.calibration import (
    ReferenceKernel,
    attach_reference,
    calibrate,
    is_comparable,
    is_plausible,
    recalibrate,
    reference_problem,
)
from dietcode.measure.children import Children
from dietcode.measure.cpu_worker import CpuRecipe
from dietcode.measure.measurer import Measurer, RunResult
from dietcode.measure.points import choose_between, full_wave
from dietcode.measure.records import Records
from dietcode.measure.requests import BuildRequest, BuildResult, Point
from dietcode.measure.seed_search import SeedRequest, SeedResult
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.dispatch_tree import DispatchTree
from dietcode.search_space.problem import AnyProblem
from dietcode.target.cpu import CpuTarget
from dietcode.target.cubin import KernelFacts


@dataclass
class MeasuringCpu(MeasuringDevice):
    """`dietcode.backends.protocol.MeasuringDevice` of a CPU.

    Parameters
    ----------
    folder : Path
        Where built code is kept.
    """

    children: Children
    problem: AnyProblem
    variables: tuple[str, ...]
    target: CpuTarget
    folder: Path
    seed_trials_are_candidates: bool = False
    measurer: Measurer = field(init=False)

    def __post_init__(self) -> None:
        self.measurer = Measurer(self.children, self.problem, Limits.of(self.target), len(self.variables))

    def build_request(
        self,
        micro_kernels: Sequence[AnyMicroKernel],
        name: str,
        problem: AnyProblem | None = None,
        tree: DispatchTree = 0,
    ) -> BuildRequest:
        """Return what builds a library of these micro-kernels; by default it always runs the first one.

        Parameters
        ----------
        name : str
            Of its file.
        problem : AnyProblem, optional
            Another one, without shape variables.
        tree : DispatchTree
            The rule.
        """
        variables, limits = self.variables if problem is None else (), Limits.of(self.target)
        recipe = CpuRecipe(
            problem or self.problem, tuple(micro_kernels), tree, variables, limits, self.target
        )
        return BuildRequest(str(self.folder / f"{name}.so"), recipe)

    @property
    def reference(self) -> ReferenceKernel:
        """The kernel that is read beside all others."""
        limits = Limits.of(self.target)
        tile, problem = limits.narrow_tile(), reference_problem()
        request = self.build_request([tile], "reference", problem)
        chain = self.build_request([MicroKernel(1, limits.lanes)], "reference_chain", problem)
        return ReferenceKernel(request, chain, tile.rows, tile.columns, limits.lanes, self.target.num_cores)

    def num_seed_trials(self, num_trials: int) -> int:
        return CPU_FORMS[self.problem.form].num_seed_trials(num_trials)

    def find_seed(self, sought: SeedSought) -> SeedResult:
        """As `MeasuringDevice` has it; MetaSchedule measures programs of its own."""
        task, seeds = sought.task, self.children.seeds
        request = SeedRequest(task.problem, task.largest, sought.target, sought.num_trials, sought.max_secs)
        found = seeds.find(request, sought.work_dir, sought.progress)
        if found.facts is None:  # a busy machine, a short budget: a later run tries again
            return SeedResult(None, f"{found.error}; going on with tiles of the register file")
        return found

    def calibrate(self, most_secs: float = math.inf) -> dict[str, Any]:
        return calibrate(self.measurer, self.reference, most_secs=most_secs) | self._bandwidth()

    def _bandwidth(self) -> dict[str, Any]:
        if not CPU_FORMS[self.problem.form].measures_bandwidth:
            return {}
        build, measurer = self.build_request, self.measurer
        return measure_bandwidth(build, measurer.build, measurer.time_problem, Limits.of(self.target))

    def recalibrate(self, earlier: Mapping[str, Any]) -> dict[str, Any] | None:
        """As `MeasuringDevice` has it: κ stays, and the reference kernel is read anew."""
        is_right = is_plausible(float(earlier["kappa"]), self.target.num_cores)
        if not is_right or not is_comparable(self.reference, earlier):
            return None
        return recalibrate(self.measurer, self.reference, earlier) | self._bandwidth()

    def full_gflops(self, calibration: Mapping[str, Any]) -> float:
        return float(max(calibration["tile_gflops"]))

    def describe(self, calibration: Mapping[str, Any]) -> str:
        cores, gflops = self.target.num_cores, self.full_gflops(calibration)
        return f"κ = {calibration['kappa']:.2f} on {cores} cores, full waves {gflops:.0f} GFLOP/s"

    def attach(self, calibration: Mapping[str, Any]) -> None:
        """As `MeasuringDevice` has it: the reference kernel is read beside every measurement."""
        if self.measurer.reference is None:
            attach_reference(self.measurer, self.reference, calibration)

    def build(self, micro_kernels: Sequence[AnyMicroKernel], prefix: str) -> list[BuildResult]:
        requests = [self.build_request([k], f"{prefix}_{k.name}") for k in micro_kernels]
        return self.measurer.build(requests)

    def facts(self, micro_kernel: AnyMicroKernel, built: BuildResult) -> KernelFacts | None:
        """Return None: the object file holds all facts."""
        return None

    def full_wave(self, micro_kernel: AnyMicroKernel, facts: KernelFacts | None, anchor: Point) -> Point:
        """As `MeasuringDevice` has it: rows and columns rounded up to whole tiles, where they vary."""
        return full_wave(self.problem, micro_kernel, anchor)

    def finals_between(self, problem: AnyProblem, extents: Extents) -> list[Point]:
        return [*choose_between(problem, extents)]

    def check(
        self, micro_kernel: AnyMicroKernel, built: BuildResult, points: Sequence[Point], max_flops: float
    ) -> str | None:
        assert built.path is not None
        return self.measurer.check(built.path, points, max_flops)

    def time(self, micro_kernel: AnyMicroKernel, built: BuildResult, points: Sequence[Point]) -> RunResult:
        assert built.path is not None
        return self.measurer.time(built.path, points)

    def fixed_bytes(self, records: Records) -> int | None:
        """As `MeasuringDevice` has it: s(a) + s(b) − s(a and b), by building the pair."""
        working = [m for m in records.measurements.values() if m.error is None][:2]
        if len(working) < 2:
            return 0
        tree = (self.variables[0] if self.variables else "", 0, 0, 1)
        request = self.build_request([m.micro_kernel for m in working], "pair", tree=tree)
        (pair,) = self.measurer.build([request])
        return 0 if pair.error else max(0, sum(m.object_bytes for m in working) - pair.object_bytes)
