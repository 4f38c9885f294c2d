"""Filling the records of one workload on this device: calibration, seed, rounds of measuring, finals."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dietcode.cost_model.features import Device
from dietcode.cost_model.learned import missed
from dietcode.cost_model.pruning import Pruning
from dietcode.errors import TuningError
from dietcode.measure.calibration import Calibration, attach_reference, calibrate, is_plausible, recalibrate
from dietcode.measure.measurer import Measurer
from dietcode.measure.records import Measurement, Records, RecordsStore
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.problem import Problem
from dietcode.search_space.task import Task
from dietcode.target.cpu import CpuTarget
from dietcode.tuner.decisions import (
    CONVERGED,
    ENDS,
    EXHAUSTED,
    SECONDS,
    STALLED,
    TRIALS,
    describe_round,
    round_line,
)
from dietcode.tuner.events import Event, Listener
from dietcode.tuner.finals import finalists, read_again
from dietcode.tuner.planner import Plan, Planner
from dietcode.tuner.search import Search
from dietcode.tuner.seeding import Seeding, starting_space
from dietcode.tuner.trials import Trials

_RESERVED_SECS = 10.0  # kept for selecting, building and verifying
_PATIENCE = 2  # rounds


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

    task: Task
    target: CpuTarget
    store: RecordsStore
    measurer: Measurer
    work_dir: Path
    deadline: float
    listener: Listener
    others: Sequence[Records] = ()
    search: Search = field(default_factory=Search)
    clock: Callable[[], float] = time.monotonic
    _first_round: int = field(default=0, init=False)
    _job: str = field(init=False)

    def __post_init__(self) -> None:
        facts = (
            self.task.instances.bindings.tobytes(),
            self.task.instances.weights.tobytes(),
            repr(self.search).encode(),
        )
        self._job = hashlib.sha256(b"".join(facts)).hexdigest()[:16]

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
            self.store.append({"kind": "problem", **self.task.problem.to_json()})
        known = [(Problem.from_json(r.problem), r) for r in self.others if r.problem is not None]
        seeding = Seeding(
            self.task,
            self.target,
            self.store,
            self.work_dir,
            self.search,
            known,
            lambda: self.deadline - self.clock(),
            self.listener,
            self.measurer.children.seeds,
        )
        if self._is_done(seeding):
            self._say_known(seeding)
        else:
            if not seeding.may_wait:
                seeding.run()
            self._calibrate()
            self._search(seeding, known)
        if not any(m.usable for m in self.records.measurements.values()):
            failures = [m.error for m in self.records.measurements.values() if m.error]
            if not failures:
                secs = self.task.spec.budget.seconds
                raise TuningError(f"no micro-kernel was measured in {secs:g} s; allow more in budget.seconds")
            raise TuningError(f"no micro-kernel worked; the first said: {failures[0]}")
        measured = len(self.records.measurements) - before
        if measured or all(m.num_readings == 1 for m in self.records.measurements.values()):
            todo = finalists(self.task.problem, self.target, self.task.extents, self.records)
            if todo and not self._out_of_time():
                self._attach()
                read_again(todo, self.store, self.measurer, self.listener, self._out_of_time)

    def _is_done(self, seeding: Seeding) -> bool:
        """Whether an earlier run left nothing to gain, or used up the trials of this one."""
        if seeding.is_missing or self.records.calibration is None:
            return False
        own = [decision for decision in self.records.rounds if decision.get("job") == self._job]
        ended = bool(own) and own[-1]["stop"] in ENDS
        return ended or self._num_trials_left(seeding) <= 0

    def _say_known(self, seeding: Seeding) -> None:
        """What is there already, where nothing is measured."""
        seeding.run()
        known = len(self.records.measurements)
        message = f"{known} micro-kernels from the records; nothing is left to measure"
        self.listener(Event("measure", message, known, known, self._best_gflops()))

    def _num_trials_left(self, seeding: Seeding) -> int:
        """Micro-kernels that the budget still allows; one at least where none was measured."""
        spent = len(self.records.measurements)
        return max(0 if spent else 1, self.task.spec.budget.trials - seeding.num_trials - spent)

    def _out_of_time(self) -> bool:
        return self.clock() > self.deadline - _RESERVED_SECS

    def _search(self, seeding: Seeding, known: Sequence[tuple[Problem, Records]]) -> None:
        """Rounds until nothing more is promised, or the budget is used up."""
        assert self.records.calibration is not None
        planner = Planner(
            self.task.problem, self.target, self.task.extents, self.task.instances.weights, self.search, known
        )
        limits = Limits.of(self.target)
        pruning = Pruning(self.task.problem, Device.of(limits, self.records.calibration), planner.sample)
        trials = Trials(
            self.task.problem,
            self.task.extents,
            len(self.task.variables),
            self.store,
            self.measurer,
            pruning if self.search.pruning else None,
        )
        planner.space.update({m.micro_kernel: m.provenance for m in self.records.measurements.values()})
        planner.reopened = trials.reopened()
        stop, self._first_round = None, len(self.records.rounds)
        while stop is None:
            planner.add(
                starting_space(self.task.problem, limits, self.task.extents, self.records, known, self.search)
            )
            plan = planner.plan(self.records)
            num_left = self._num_trials_left(seeding)
            stop = self._reason_to_stop(plan, num_left)
            if stop is None:
                stop = self._round(planner, plan, trials, num_left)
            else:
                self._decide(plan, [], None, None, stop)
            if seeding.may_wait and stop not in {TRIALS, SECONDS}:
                seeding.after_first_round(self.records.rounds[-1])
                stop = None  # the seed may bring other tiles

    def _reason_to_stop(self, plan: Plan, num_left: int) -> str | None:
        if not plan.batch:
            return EXHAUSTED if plan.num_left == 0 else CONVERGED
        if plan.promise is not None and plan.promise < self.search.min_promise:
            return CONVERGED
        if self.search.learning and self._has_stalled():
            return STALLED
        if num_left <= 0:
            return TRIALS
        begun = any(m.usable for m in self.records.measurements.values())
        return SECONDS if begun and self._out_of_time() else None

    def _has_stalled(self) -> bool:
        """Whether what was promised did not come, twice in a row."""
        own = self.records.rounds[self._first_round :]
        gains = [r["gain"] for r in own[-_PATIENCE:] if r["gain"] is not None]
        return len(gains) == _PATIENCE and max(gains) < self.search.min_promise

    def _round(self, planner: Planner, plan: Plan, trials: Trials, num_left: int) -> str | None:
        """Measure one batch; why it was the last one, or None."""
        self._attach()
        batch = plan.batch[:num_left]
        measured: list[Measurement] = []
        for measurement in trials.measure(batch, self._out_of_time):
            measured.append(measurement)
            planner.reopened.discard(measurement.micro_kernel)
            self._say_measured(measurement, min(plan.num_left, num_left) - len(measured))
        gain = planner.mean_gain(plan.served, self.records)
        if all(measurement.error is not None for measurement in measured):
            gain = None  # a full disk says nothing of the space
        error = None
        if plan.model is not None and self.records.calibration is not None:
            device = Device.of(Limits.of(self.target), self.records.calibration)
            error = missed(plan.model, self.task.problem, device, measured)
        stop = SECONDS if self._out_of_time() and len(measured) < len(batch) else None
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
        line = round_line(len(self.records.rounds) + 1, plan, measured, gain, error, stop, self._job)
        line["message"] = describe_round(line, self.search.min_promise)
        if measured or not self._says_nothing_new(line):
            self.store.append({"kind": "round", **line})
        total = len(self.records.measurements)
        self.listener(
            Event("measure", line["message"], total, total + (0 if stop else line["left"]), data=line)
        )

    def _says_nothing_new(self, line: Mapping[str, Any]) -> bool:
        """Whether the last round on record said just that: a run that measures nothing adds nothing."""
        last = self.records.rounds[-1] if self.records.rounds else {}
        return all(last.get(key) == line[key] for key in ("job", "stop", "left", "added"))

    def _say_measured(self, measurement: Measurement, at_most: int) -> None:
        done = len(self.records.measurements)
        self.listener(
            Event(
                "measure",
                f"{measurement.micro_kernel.name}: {_describe(self.task.problem, measurement)}",
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
            own = facts is not None and "from_workload" not in facts  # κ is not handed on and on
            if facts is not None and own and is_plausible(float(facts["kappa"]), self.target.num_cores):
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

    def _best_gflops(self) -> float | None:
        rates = [r for m in self.records.measurements.values() if (r := peak_gflops(self.task.problem, m))]
        return max(rates, default=None)


def peak_gflops(problem: Problem, measurement: Measurement) -> float | None:
    """Best measured GFLOP/s over the points of one micro-kernel; None where it failed."""
    rates = [
        float(problem.flops(point)) / secs / 1e9
        for point, secs in zip(measurement.points, measurement.secs, strict=True)
    ]
    return max(rates, default=None)


def _describe(problem: Problem, measurement: Measurement) -> str:
    peak = peak_gflops(problem, measurement)
    if peak is None:
        return f"failed: {measurement.error}"
    return f"{peak:.0f} GFLOP/s" + (", pruned after its first wave" if measurement.pruned else "")
