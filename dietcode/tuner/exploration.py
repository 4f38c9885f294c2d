"""Filling the records of one workload on this device: calibration, seed, rounds of measuring, finals."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from dietcode.cost_model.features import Device
from dietcode.cost_model.fitting import fit_all
from dietcode.cost_model.learned import missed
from dietcode.cost_model.pruning import Pruning
from dietcode.errors import TuningError
from dietcode.measure.calibration import Calibration, attach_reference, calibrate, is_plausible, recalibrate
from dietcode.measure.measurer import Measurer
from dietcode.measure.records import Measurement, Records, RecordsStore
from dietcode.search_space.limits import Limits
from dietcode.search_space.problem import IntArray, Problem, instance_extents
from dietcode.target.cpu import CpuTarget
from dietcode.tuner.decisions import describe_round, round_line
from dietcode.tuner.events import Event, Listener
from dietcode.tuner.planner import Plan, Planner
from dietcode.tuner.search import Search
from dietcode.tuner.seeding import Seeding, starting_space
from dietcode.tuner.trials import Trials
from dietcode.workload.instances import Instances
from dietcode.workload.spec import Spec

_RESERVED_SECS = 10.0  # kept for selecting, building and verifying
_FINAL_READINGS = 3
_FINAL_MARGIN = 0.04
_MAX_FINALISTS = 10
_PATIENCE = 2  # rounds
_CONVERGED, _STALLED, _EXHAUSTED = "converged", "stalled", "exhausted"
_TRIALS, _SECONDS = "trials", "seconds"
_ENDS = (_CONVERGED, _STALLED, _EXHAUSTED)  # a later run has nothing to add


@dataclass
class Exploration:
    """One run of the search.

    Attributes
    ----------
    work_dir : Path
        Where MetaSchedule keeps its database.
    deadline : float
        Monotonic time at which measuring stops.
    others : sequence of Records
        What this device measured for other workloads.
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
    others: Sequence[Records] = ()
    search: Search = field(default_factory=Search)
    clock: Callable[[], float] = time.monotonic
    extents: dict[str, IntArray] = field(init=False)
    _first_round: int = 0

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
        before = len(self.records.measurements)
        if self.records.problem is None:
            self.store.append({"kind": "problem", **self.problem.to_json()})
        known = [(Problem.from_json(r.problem), r) for r in self.others if r.problem is not None]
        seeding = Seeding(
            self.spec,
            self.problem,
            self.target,
            self.store,
            self.work_dir,
            self.search,
            known,
            lambda: self.deadline - self.clock(),
            self.listener,
        )
        if not self._is_done(seeding):
            if not seeding.may_wait:
                seeding.run()
            self._calibrate()
            self._search(seeding, known)
        if not any(m.usable for m in self.records.measurements.values()):
            failures = [m.error for m in self.records.measurements.values() if m.error]
            raise TuningError(
                f"no micro-kernel worked; the first said: {failures[0] if failures else 'none'}"
            )
        measured = len(self.records.measurements) - before
        if measured or all(m.num_readings == 1 for m in self.records.measurements.values()):
            self._finals()

    def _is_done(self, seeding: Seeding) -> bool:
        """Whether an earlier run left nothing to gain, or used up the trials of this one."""
        if seeding.is_missing or self.records.calibration is None:
            return False
        ended = bool(self.records.rounds) and self.records.rounds[-1]["stop"] in _ENDS
        return ended or self._num_trials_left(seeding) <= 0

    def _num_trials_left(self, seeding: Seeding) -> int:
        """Micro-kernels that the budget still allows; one at least where none was measured."""
        spent = len(self.records.measurements)
        return max(0 if spent else 1, self.spec.budget.trials - seeding.num_trials - spent)

    def _out_of_time(self) -> bool:
        return self.clock() > self.deadline - _RESERVED_SECS

    def _search(self, seeding: Seeding, known: Sequence[tuple[Problem, Records]]) -> None:
        """Rounds until nothing more is promised, or the budget is used up."""
        assert self.records.calibration is not None
        planner = Planner(self.problem, self.target, self.extents, self.instances.weights, self.search, known)
        limits = Limits.of(self.target)
        pruning = Pruning(self.problem, limits, float(self.records.calibration["kappa"]), planner.sample)
        trials = Trials(
            self.problem,
            self.extents,
            len(self.spec.variables),
            self.store,
            self.measurer,
            pruning if self.search.pruning else None,
        )
        stop, self._first_round = None, len(self.records.rounds)
        while stop is None:
            planner.add(starting_space(self.problem, limits, self.extents, self.records, known, self.search))
            plan = planner.plan(self.records)
            num_left = self._num_trials_left(seeding)
            stop = self._reason_to_stop(plan, num_left)
            if stop is None:
                stop = self._round(planner, plan, trials, num_left)
            else:
                self._decide(plan, [], None, None, stop)
            if seeding.may_wait:
                seeding.after_first_round(self.records.rounds)

    def _reason_to_stop(self, plan: Plan, num_left: int) -> str | None:
        if not plan.batch:
            return _EXHAUSTED if plan.num_left == 0 else _CONVERGED
        if plan.promise is not None and plan.promise < self.search.min_promise:
            return _CONVERGED
        if self.search.learning and self._has_stalled():
            return _STALLED
        if num_left <= 0:
            return _TRIALS
        return _SECONDS if self._out_of_time() else None

    def _has_stalled(self) -> bool:
        """Whether what was promised did not come, twice in a row."""
        own = self.records.rounds[self._first_round :]
        gains = [r["gain"] for r in own[-_PATIENCE:] if r["gain"] is not None]
        return len(gains) == _PATIENCE and max(gains) < self.search.min_promise

    def _round(self, planner: Planner, plan: Plan, trials: Trials, num_left: int) -> str | None:
        """Measure one batch; why it was the last one, or None."""
        self._attach()
        batch = plan.batch[:num_left]
        before = planner.served(self.records)
        measured: list[Measurement] = []
        for measurement in trials.measure(batch, self._out_of_time):
            measured.append(measurement)
            self._say_measured(measurement, min(plan.num_left, num_left) - len(measured))
        gain = planner.mean_gain(before, planner.served(self.records))
        error = None
        if plan.model is not None and self.records.calibration is not None:
            device = Device.of(Limits.of(self.target), self.records.calibration)
            error = missed(plan.model, self.problem, device, measured)
        stop = _SECONDS if self._out_of_time() and len(measured) < len(batch) else None
        self._decide(plan, measured, gain, error, stop)
        return stop

    def _decide(
        self,
        plan: Plan,
        measured: list[Measurement],
        gain: float | None,
        error: float | None,
        stop: str | None,
    ) -> None:
        """Put a round on record, and say it."""
        line = round_line(len(self.records.rounds) + 1, plan, measured, gain, error, stop)
        line["message"] = describe_round(line, self.search.min_promise)
        self.store.append({"kind": "round", **line})
        total = len(self.records.measurements)
        self.listener(
            Event("measure", line["message"], total, total + (0 if stop else plan.num_left), data=line)
        )

    def _say_measured(self, measurement: Measurement, at_most: int) -> None:
        done = len(self.records.measurements)
        self.listener(
            Event(
                "measure",
                f"{measurement.micro_kernel.name}: {_describe(self.problem, measurement)}",
                done,
                done + at_most,
                self._best_gflops(),
                max(0.0, self.deadline - self.clock()),
            )
        )

    def _calibrate(self) -> None:
        if self.records.calibration is not None:
            return
        for other in reversed(self.others):
            facts = other.calibration
            if facts is not None and is_plausible(float(facts["kappa"]), self.target.num_cores):
                moved = recalibrate(self.measurer, Calibration.from_json(facts))
                self.store.append({"kind": "calibration", **moved.to_json(), "from_workload": other.workload})
                self._say_calibrated("κ of an earlier workload")
                return
        self.listener(Event("calibrate", "sweep of 1…4P tiles"))
        self.store.append({"kind": "calibration", **calibrate(self.measurer).to_json()})
        self._say_calibrated("measured now")

    def _say_calibrated(self, when: str) -> None:
        assert self.records.calibration is not None
        facts = self.records.calibration
        message = (
            f"κ = {facts['kappa']:.2f} on {self.target.num_cores} cores, "
            f"full waves {max(facts['tile_gflops']):.0f} GFLOP/s, {when}"
        )
        self.listener(Event("calibrate", message, 1, 1))

    def _attach(self) -> None:
        """The reference kernel beside every measurement, where it is not there yet."""
        if self.measurer.reference is None:
            assert self.records.calibration is not None
            attach_reference(self.measurer, float(self.records.calibration["reference_secs"]))

    def _finals(self) -> None:
        """Read the candidates that could win somewhere again, in turns; the median of all readings counts.

        One reading of many candidates favours the lucky ones; a few more of the leaders mend that.
        """
        todo = [m for m in self._finalists() if m.num_readings < _FINAL_READINGS]
        if not todo or self._out_of_time():
            return
        self._attach()
        built = self.measurer.build(
            [self.measurer.build_request([m.micro_kernel], f"final_{m.micro_kernel.name}") for m in todo]
        )
        readings = [[m.secs] for m in todo]
        for reading in range(1, _FINAL_READINGS):
            for index, (measurement, library) in enumerate(zip(todo, built, strict=True)):
                if library.path is None or self._out_of_time():
                    continue
                result = self.measurer.time(library.path, measurement.points)
                if result.error is None:
                    readings[index].append(result.secs)
            message = f"{len(todo)} finalists again"
            self.listener(Event("measure", message, reading, _FINAL_READINGS - 1))
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

    def _best_gflops(self) -> float | None:
        rates = [r for m in self.records.measurements.values() if (r := peak_gflops(self.problem, m))]
        return max(rates, default=None)


def peak_gflops(problem: Problem, measurement: Measurement) -> float | None:
    """Best measured GFLOP/s over the points of one micro-kernel; None where it failed."""
    rates = [
        2.0 * float(problem.product(tuple(point), {k: float(v) for k, v in point.items()})) / secs / 1e9
        for point, secs in zip(measurement.points, measurement.secs, strict=True)
    ]
    return max(rates, default=None)


def _describe(problem: Problem, measurement: Measurement) -> str:
    peak = peak_gflops(problem, measurement)
    if peak is None:
        return f"failed: {measurement.error}"
    return f"{peak:.0f} GFLOP/s" + (", pruned after its first wave" if measurement.pruned else "")
