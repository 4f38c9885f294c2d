"""A GPU while candidates are measured on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.backends.cuda.calibration import calibrate_gpu, swept_micro_kernel
from dietcode.backends.protocol import MeasuringDevice, SeedSought
from dietcode.cost_model.model import Extents
from dietcode.errors import TuningError
from dietcode.measure.children import Children
from dietcode.measure.gpu_worker import CudaRecipe, LaunchedKernel
from dietcode.measure.measurer import RunResult
from dietcode.measure.points import can_grow, choose_of_kinds, full_wave
from dietcode.measure.records import Records
from dietcode.measure.requests import BuildRequest, BuildResult, CheckRequest, Point, TimeRequest, TimeResult
from dietcode.measure.seed_search import SeedResult
from dietcode.search_space.cuda.forms import call_shape, classes_of
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.seeds import search_seed
from dietcode.search_space.cuda.space import hardware_seeds
from dietcode.search_space.problem import AnyProblem, Problem
from dietcode.target.cubin import KernelFacts
from dietcode.target.cuda import CudaTarget

MIN_SECS, READINGS = 2e-3, 5  # as the GPU benchmark has them
_TIMEOUT_SECS = 120.0  # of one micro-kernel; the first one of a process waits for float64 on the CPU
_SWEEP_TIMEOUT_SECS = 300.0
_MAX_CHECKED_FLOPS = 4e9  # in float64 at each point, while the first micro-kernel waits
_SHARE_OF_TRIALS = 4  # one trial in four goes to the seed
_MIN_SEED_TRIALS = 8
_MAX_SEED_SECS = 600.0


@dataclass
class MeasuringGpu(MeasuringDevice):
    """`dietcode.backends.protocol.MeasuringDevice` of a GPU.

    Parameters
    ----------
    problem : AnyProblem
        As `dietcode.search_space.cuda.forms.device_problem` gives it.
    folder : Path
        Where machine code is kept.
    """

    problem: AnyProblem
    target: CudaTarget
    num_sms: int
    children: Children
    folder: Path
    seed_trials_are_candidates: bool = True

    def num_seed_trials(self, num_trials: int) -> int:
        if self.problem.form != Problem.form:
            return 0  # MetaSchedule has no rules for several sums and outputs
        wanted = num_trials // _SHARE_OF_TRIALS
        return wanted if wanted >= _MIN_SEED_TRIALS else 0

    def find_seed(self, sought: SeedSought) -> SeedResult:
        """As `MeasuringDevice` has it: what MetaSchedule proposes is measured as any other candidate."""

        def progress(done: int, secs: float | None) -> None:
            flops = float(self.problem.flops(dict(sought.task.largest)))
            sought.progress(done, None if secs is None else flops / secs / 1e9)

        try:
            seed = search_seed(
                self.problem,
                self.target,
                sought.task.largest,
                sought.measure,
                sought.num_trials,
                max_secs=min(_MAX_SEED_SECS, sought.max_secs),
                progress=progress,
            )
        except TuningError as error:
            return SeedResult(None, f"none from MetaSchedule: {error}")
        tile = seed.micro_kernel
        facts = {"tile": [tile.rows, tile.columns], "micro_kernel": tile.to_json(), "decisions": []}
        (secs,) = sought.measure([tile])
        flops = float(self.problem.flops(dict(sought.task.largest)))
        best = None if secs is None else round(flops / secs / 1e9, 3)
        return SeedResult(facts | {"trials": sought.num_trials, "secs": 0.0, "best_gflops": best})

    def calibrate(self, most_secs: float = math.inf) -> dict[str, Any]:
        return calibrate_gpu(self.target, self.num_sms, self.problem.operand_dtype, self._time_sweep)

    def _time_sweep(
        self, problem: Problem, tile: CudaMicroKernel, points: list[dict[str, int]], checked: Point
    ) -> TimeResult:
        path = str(self.folder / "sweep.cubin")
        (built,) = self.children.build([BuildRequest(path, CudaRecipe(problem, tile, self.target))])
        call, error = LaunchedKernel(tile), built.error
        if error is None and points:
            check = CheckRequest(problem, path, call, (checked,))
            error = self.children.check(check, _SWEEP_TIMEOUT_SECS).error
        if error is None:
            asked = TimeRequest(problem, path, call, tuple(points), (), MIN_SECS, READINGS)
            found = self.children.time(asked, _SWEEP_TIMEOUT_SECS)
            error = found.error
        if error is not None:
            raise TuningError(f"the sweep of the device does not run: {tile.name}: {error}")
        return found

    def recalibrate(self, earlier: Mapping[str, Any]) -> dict[str, Any] | None:
        """As `MeasuringDevice` has it: readings are of the GPU's clock, so that a unit's sweep holds."""
        own = swept_micro_kernel(self.target, self.problem.operand_dtype).unit
        return dict(earlier) if earlier.get("unit", "simt") == own else None

    def describe(self, calibration: Mapping[str, Any]) -> str:
        return f"{len(calibration['secs'])} grids, waves of {calibration['wave_blocks']} blocks"

    def full_gflops(self, calibration: Mapping[str, Any]) -> None:
        """Return None: what MetaSchedule measures are candidates, so that none of its trials is lost."""

    def attach(self, calibration: Mapping[str, Any]) -> None:
        """Do nothing: readings are of the GPU's own clock."""

    def build(self, micro_kernels: Sequence[CudaMicroKernel], prefix: str) -> list[BuildResult]:
        requests = [
            BuildRequest(
                str(self.folder / f"{prefix}_{tile.name}.cubin"), CudaRecipe(self.problem, tile, self.target)
            )
            for tile in micro_kernels
        ]
        return list(self.children.build(requests))

    def facts(self, micro_kernel: CudaMicroKernel, built: BuildResult) -> KernelFacts | None:
        """As `MeasuringDevice` has it: of the block function of the class that takes most, and all code."""
        known, classes = built.facts["kernels"], classes_of(self.problem, micro_kernel)
        own: list[KernelFacts] = [known[one.symbol(micro_kernel)] for one in classes]
        registers, stack = max(f.registers for f in own), max(f.stack_bytes for f in own)
        return KernelFacts(registers, own[0].shared_bytes, stack, built.object_bytes, len(classes))

    def finals_between(self, problem: AnyProblem, extents: Extents) -> list[Point]:
        """As `MeasuringDevice` has it: two of each alignment class that the anchors have fewer of."""
        if problem.form != Problem.form:
            return []
        seed = hardware_seeds(problem, CudaLimits.of(self.target))[0].micro_kernel
        classes, one_extent = classes_of(problem, seed), next(iter(extents.values()))
        kinds = np.zeros(one_extent.shape, dtype=np.int64)
        for own in classes[:-1]:
            kinds = np.maximum(kinds, np.where(own.serves(extents), own.multiple, 0))
        return [*choose_of_kinds(problem, extents, kinds)] if len(classes) > 1 else []

    def full_wave(self, micro_kernel: CudaMicroKernel, facts: KernelFacts | None, anchor: Point) -> Point:
        """As `MeasuringDevice` has it (paper, section 5.3): whole tiles, and rows for whole waves of blocks.

        Where one row of tiles is not a whole part of a wave, the last wave lacks less than one such row.
        """
        problem = self.problem
        full = full_wave(problem, micro_kernel, anchor)
        rows = problem.rows
        if facts is None or not can_grow(problem, rows, anchor):
            return full
        threads, shared = micro_kernel.threads, facts.shared_bytes
        wave = self.num_sms * max(1, self.target.sm.resident_blocks(threads, facts.registers, shared))
        grid = call_shape(problem, micro_kernel, full).grid
        down = micro_kernel.cluster_rows
        row_tiles = -(-full[rows[-1]] // (micro_kernel.rows * down)) * down
        per_row = int(grid.blocks) * micro_kernel.splits // row_tiles
        waves = -(-row_tiles * per_row // wave)
        return full | {rows[-1]: max(row_tiles, waves * wave // per_row) * micro_kernel.rows}

    def check(
        self, micro_kernel: CudaMicroKernel, built: BuildResult, points: Sequence[Point], max_flops: float
    ) -> str | None:
        assert built.path is not None
        call, most = LaunchedKernel(micro_kernel), min(max_flops, _MAX_CHECKED_FLOPS)
        request = CheckRequest(self.problem, built.path, call, tuple(points), max_flops=most)
        return self.children.check(request, _TIMEOUT_SECS).error

    def time(self, micro_kernel: CudaMicroKernel, built: BuildResult, points: Sequence[Point]) -> RunResult:
        assert built.path is not None
        call = LaunchedKernel(micro_kernel)
        given = tuple(points), (), MIN_SECS, READINGS
        request = TimeRequest(self.problem, built.path, call, *given, keeps=True)
        found = self.children.time(request, _TIMEOUT_SECS)
        return RunResult(found.secs, error=found.error)

    def fixed_bytes(self, records: Records) -> int | None:
        return None
