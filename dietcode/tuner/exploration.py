"""Filling the records of one workload on this device: calibration, seed, measured micro-kernels."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dietcode.cost_model.fitting import fit_all
from dietcode.errors import TuningError
from dietcode.measure.calibration import attach_reference, calibrate
from dietcode.measure.measurer import BuildResult, Measurer
from dietcode.measure.points import choose_anchors, wave_points
from dietcode.measure.records import Measurement, Records, RecordsStore
from dietcode.search_space.limits import Limits
from dietcode.search_space.problem import IntArray, Problem, instance_extents
from dietcode.search_space.seed import NoTrialError, run_seed
from dietcode.search_space.space import Candidate, Seed, build_space, hardware_seeds
from dietcode.target.cpu import CpuTarget
from dietcode.tuner.events import Event, Listener
from dietcode.workload.instances import Instances, largest_instance
from dietcode.workload.spec import Spec

_SEED_SHARE_OF_TRIALS = 4  # one trial in four goes to the seed
_MAX_SEED_TRIALS = 32
_SEED_SHARE_OF_SECS = 0.4
_RESERVED_SECS = 10.0  # kept for selecting, building and verifying
_BATCH = 8
_FINAL_READINGS = 3
_FINAL_MARGIN = 0.04
_MAX_FINALISTS = 10


@dataclass
class Exploration:
    """One run of the search.

    Attributes
    ----------
    work_dir : Path
        Where MetaSchedule keeps its database.
    deadline : float
        Monotonic time at which measuring stops.
    """

    spec: Spec
    problem: Problem
    target: CpuTarget
    instances: Instances
    store: RecordsStore
    measurer: Measurer
    work_dir: Path
    deadline: float
    listener: Listener
    clock: Callable[[], float] = time.monotonic
    extents: dict[str, IntArray] = field(init=False)

    def __post_init__(self) -> None:
        self.extents = instance_extents(self.spec, self.instances.columns())

    @property
    def records(self) -> Records:
        """What is known so far."""
        return self.store.records

    def run(self) -> None:
        """Do what the records lack, within the budget.

        Raises
        ------
        TuningError
            Not one micro-kernel worked.
        """
        self._seed()
        candidates = self._candidates()
        todo = [c for c in candidates if c.micro_kernel not in self.records.measurements]
        budget = max(1, self.spec.budget.trials - self._seed_trials())
        known = len(candidates) - len(todo)
        todo = todo[: max(0, budget - known)]
        if todo:
            self._calibrate()
            self._measure(todo, known)
        if self.records.calibration is None:
            self._calibrate()
        if not any(m.error is None for m in self.records.measurements.values()):
            failures = [m.error for m in self.records.measurements.values() if m.error]
            raise TuningError(
                f"no micro-kernel worked; the first said: {failures[0] if failures else 'none'}"
            )
        if todo or all(m.num_readings == 1 for m in self.records.measurements.values()):
            self._finals()

    def _seed_trials(self) -> int:
        return max(1, min(_MAX_SEED_TRIALS, self.spec.budget.trials // _SEED_SHARE_OF_TRIALS))

    def _seed(self) -> None:
        """MetaSchedule on the largest instance, once for a workload and device."""
        if self.records.seed is not None:
            tile = self.records.seed["tile"]
            self._say("seed", f"T0 = {tile[0]}x{tile[1]}, from the records", 1, 1)
            return
        binding = largest_instance(self.spec)
        extents = {k: int(d.evaluate(binding)) for k, d in self.spec.dims_parsed.items()}
        trials = self._seed_trials()
        started = self.clock()
        allowed = _SEED_SHARE_OF_SECS * max(1.0, self.deadline - started)

        def progress(done: int, gflops: float | None) -> None:
            spent = self.clock() - started
            left = min(allowed - spent, spent / done * (trials - done)) if done else None
            self._say("seed", "MetaSchedule on the largest instance", done, trials, gflops, left)

        try:
            seed, facts = run_seed(
                self.problem, extents, self.target, self.work_dir, trials, allowed, progress
            )
        except NoTrialError as error:  # a busy machine, a short budget: a later run tries again
            self._say("seed", f"{error}; going on with tiles of the register file", 1, 1)
            return
        self.store.append({"kind": "seed", **facts})
        self._say(
            "seed",
            f"T0 = {seed.rows}x{seed.columns}, {facts['best_gflops']} GFLOP/s after {facts['trials']} trials",
            trials,
            trials,
            facts["best_gflops"],
        )

    def _candidates(self) -> list[Candidate]:
        """The space around the MetaSchedule tile, if there is one, and those of the register file."""
        limits = Limits.of(self.target)
        seeds = hardware_seeds(limits)
        if self.records.seed is not None:
            rows, columns = self.records.seed["tile"]
            seeds.insert(0, Seed(int(rows), int(columns), "metaschedule"))
        _, row_extents, column_extents, _ = self.problem.sizes(self.extents)
        return build_space(seeds, limits, _largest(row_extents), _largest(column_extents))

    def _calibrate(self) -> None:
        if self.records.calibration is not None:
            self._attach()
            return
        self._say("calibrate", "sweep of 1…4P tiles")
        calibration = calibrate(self.measurer)
        self.store.append({"kind": "calibration", **calibration.to_json()})
        self._say(
            "calibrate",
            f"κ = {calibration.kappa:.2f} on {self.target.num_cores} cores, "
            f"full waves {max(calibration.tile_gflops):.0f} GFLOP/s",
            1,
            1,
        )

    def _attach(self) -> None:
        """The reference kernel beside every measurement, where it is not there yet."""
        if self.measurer.reference is None:
            assert self.records.calibration is not None
            attach_reference(self.measurer, float(self.records.calibration["reference_secs"]))

    def _measure(self, todo: list[Candidate], known: int) -> None:
        """Build a batch side by side, then time its members one by one; each is on record at once."""
        anchors = choose_anchors(self.problem, self.extents)
        started, done = self.clock(), 0
        for first in range(0, len(todo), _BATCH):
            batch = todo[first : first + _BATCH]
            requests = [
                self.measurer.build_request([c.micro_kernel], f"candidate_{first + i}")
                for i, c in enumerate(batch)
            ]
            for candidate, built in zip(batch, self.measurer.build(requests), strict=True):
                measurement = self._measure_one(candidate, built, anchors)
                self.store.append(measurement.to_json())
                done += 1
                spent = self.clock() - started
                self._say(
                    "measure",
                    f"{candidate.micro_kernel.name}: {_describe(self.problem, measurement)}",
                    known + done,
                    known + len(todo),
                    self._best_gflops(),
                    min(self.deadline - self.clock(), spent / done * (len(todo) - done)),
                )
                if self.clock() > self.deadline - _RESERVED_SECS:
                    self._say("measure", "out of time; going on with what was measured", known + done)
                    return

    def _finals(self) -> None:
        """Read the candidates that could win somewhere again, in turns; the median of all readings counts.

        One reading of many candidates favours the lucky ones; a few more of the leaders mend that.
        """
        todo = [m for m in self._finalists() if m.num_readings < _FINAL_READINGS]
        if not todo or self.clock() > self.deadline - _RESERVED_SECS:
            return
        self._attach()
        built = self.measurer.build(
            [self.measurer.build_request([m.micro_kernel], f"final_{m.micro_kernel.name}") for m in todo]
        )
        readings = [[m.secs] for m in todo]
        for reading in range(1, _FINAL_READINGS):
            for index, (measurement, library) in enumerate(zip(todo, built, strict=True)):
                if library.path is None or self.clock() > self.deadline - _RESERVED_SECS:
                    continue
                result = self.measurer.time(library.path, measurement.points)
                if result.error is None:
                    readings[index].append(result.secs)
            self._say("measure", f"{len(todo)} finalists again", reading, _FINAL_READINGS - 1)
        for measurement, rows in zip(todo, readings, strict=True):
            secs = tuple(float(s) for s in np.median(rows, axis=0))
            self.store.append(replace(measurement, secs=secs, num_readings=len(rows)).to_json())

    def _finalists(self) -> list[Measurement]:
        """Micro-kernels predicted within a few percent of the best for some instance."""
        fitted = fit_all(self.problem, self.target, self.records, self.extents)
        best = fitted.throughput.max(axis=1, keepdims=True)
        shortfall = (1.0 - fitted.throughput / best).min(axis=0)
        order = [int(i) for i in np.argsort(shortfall, kind="stable") if shortfall[i] <= _FINAL_MARGIN]
        kernels = [fitted.models[i].micro_kernel for i in order[:_MAX_FINALISTS]]
        return [self.records.measurements[kernel] for kernel in kernels]

    def _measure_one(
        self, candidate: Candidate, built: BuildResult, anchors: list[dict[str, int]]
    ) -> Measurement:
        points = wave_points(self.problem, candidate.micro_kernel, anchors)
        error = built.error
        if error is None and built.path is not None:
            zeros = [0] * len(self.spec.variables)
            error = self.measurer.check(built.path, anchors[0], zeros) or self.measurer.check(
                built.path, anchors[min(1, len(anchors) - 1)], zeros
            )
        if error is not None or built.path is None:
            return Measurement(candidate.micro_kernel, candidate.provenance, error=error or "not built")
        result = self.measurer.time(built.path, points)
        Path(built.path).unlink(missing_ok=True)
        return Measurement(
            candidate.micro_kernel,
            candidate.provenance,
            tuple(points) if result.error is None else (),
            result.secs,
            built.object_bytes,
            round(built.secs, 4),
            result.drift,
            result.attempts,
            error=result.error,
        )

    def _best_gflops(self) -> float | None:
        rates = [r for m in self.records.measurements.values() if (r := peak_gflops(self.problem, m))]
        return max(rates, default=None)

    def _say(
        self,
        stage: str,
        message: str,
        done: int = 0,
        total: int = 0,
        best_gflops: float | None = None,
        secs_left: float | None = None,
    ) -> None:
        self.listener(Event(stage, message, done, total, best_gflops, secs_left))


def _largest(extent: Any) -> int:
    """Of a flattened extent, which is 1 where a role has no letters."""
    return int(np.max(extent))


def peak_gflops(problem: Problem, measurement: Measurement) -> float | None:
    """Best measured GFLOP/s over the points of one micro-kernel; None where it failed."""
    rates = [
        2.0 * float(problem.product(tuple(point), {k: float(v) for k, v in point.items()})) / secs / 1e9
        for point, secs in zip(measurement.points, measurement.secs, strict=True)
    ]
    return max(rates, default=None)


def _describe(problem: Problem, measurement: Measurement) -> str:
    peak = peak_gflops(problem, measurement)
    return f"failed: {measurement.error}" if peak is None else f"{peak:.0f} GFLOP/s"
