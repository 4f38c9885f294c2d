"""A CPU while candidates are measured on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.backends.protocol import SeedFound, SeedSought
from dietcode.measure.calibration import Calibration, attach_reference, calibrate, is_plausible, recalibrate
from dietcode.measure.measurer import Measurer, RunResult
from dietcode.measure.points import full_wave
from dietcode.measure.records import Records
from dietcode.measure.requests import BuildResult, Point
from dietcode.measure.seed_search import SeedRequest
from dietcode.search_space.cpu.limits import MicroKernel
from dietcode.target.cubin import KernelFacts

_SHARE_OF_TRIALS = 4  # one trial in four goes to the seed
_MAX_SEED_TRIALS = 32


@dataclass
class MeasuringCpu:
    """`dietcode.backends.protocol.MeasuringDevice` of a CPU."""

    measurer: Measurer
    seed_trials_are_candidates: bool = False

    def num_seed_trials(self, num_trials: int) -> int:
        """As `MeasuringDevice` has it."""
        return max(1, min(_MAX_SEED_TRIALS, num_trials // _SHARE_OF_TRIALS))

    def find_seed(self, sought: SeedSought) -> SeedFound:
        """As `MeasuringDevice` has it; MetaSchedule measures programs of its own."""
        task, seeds = sought.task, self.measurer.children.seeds
        request = SeedRequest(task.problem, task.largest, sought.target, sought.num_trials, sought.max_secs)
        found = seeds.find(request, sought.work_dir, sought.progress)
        if found.seed is None:  # a busy machine, a short budget: a later run tries again
            return SeedFound(None, f"{found.error}; going on with tiles of the register file")
        return SeedFound(found.facts)

    def calibrate(self) -> dict[str, Any]:
        """As `MeasuringDevice` has it."""
        return calibrate(self.measurer).to_json()

    def recalibrate(self, earlier: Mapping[str, Any]) -> dict[str, Any] | None:
        """As `MeasuringDevice` has it: κ stays, and the reference kernel is read anew."""
        if not is_plausible(float(earlier["kappa"]), self.measurer.target.num_cores):
            return None
        return recalibrate(self.measurer, Calibration.from_json(dict(earlier))).to_json()

    def describe(self, calibration: Mapping[str, Any]) -> str:
        """As `MeasuringDevice` has it."""
        cores, gflops = self.measurer.target.num_cores, max(calibration["tile_gflops"])
        return f"κ = {calibration['kappa']:.2f} on {cores} cores, full waves {gflops:.0f} GFLOP/s"

    def attach(self, calibration: Mapping[str, Any]) -> None:
        """As `MeasuringDevice` has it: the reference kernel is read beside every measurement."""
        if self.measurer.reference is None:
            attach_reference(self.measurer, float(calibration["reference_secs"]))

    def build(self, micro_kernels: Sequence[MicroKernel], prefix: str) -> list[BuildResult]:
        """As `MeasuringDevice` has it."""
        requests = [self.measurer.build_request([k], f"{prefix}_{k.name}") for k in micro_kernels]
        return self.measurer.build(requests)

    def facts(self, micro_kernel: MicroKernel, built: BuildResult) -> KernelFacts | None:
        """None: its object file says all."""
        return None

    def full_wave(self, micro_kernel: MicroKernel, facts: KernelFacts | None, anchor: Point) -> Point:
        """As `MeasuringDevice` has it: rows and columns rounded up to whole tiles, where they vary."""
        return full_wave(self.measurer.problem, micro_kernel, anchor)

    def check(
        self, micro_kernel: MicroKernel, built: BuildResult, points: Sequence[Point], max_flops: float
    ) -> str | None:
        """As `MeasuringDevice` has it."""
        zeros = [0] * len(self.measurer.variables)
        for point in points:
            error = None if built.path is None else self.measurer.check(built.path, point, zeros, max_flops)
            if error is not None:
                return error
        return None

    def time(self, micro_kernel: MicroKernel, built: BuildResult, points: Sequence[Point]) -> RunResult:
        """As `MeasuringDevice` has it."""
        assert built.path is not None
        return self.measurer.time(built.path, points)

    def fixed_bytes(self, records: Records) -> int | None:
        """As `MeasuringDevice` has it: s(a) + s(b) − s(a and b), by building the pair."""
        working = [m for m in records.measurements.values() if m.error is None][:2]
        if len(working) < 2:
            return 0
        variables = self.measurer.variables
        tree = (variables[0] if variables else "", 0, 0, 1)
        request = self.measurer.build_request([m.micro_kernel for m in working], "pair", tree=tree)
        (pair,) = self.measurer.build([request])
        return 0 if pair.error else max(0, sum(m.object_bytes for m in working) - pair.object_bytes)
