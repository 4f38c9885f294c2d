"""Filling the records of one workload on one device: calibration, seed, rounds of measuring, finals."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dietcode.backends.protocol import Backend, Domain, MeasuringDevice
from dietcode.cost_model.learned import missed
from dietcode.cost_model.pruning import Pruning
from dietcode.errors import TuningError
from dietcode.measure.records import Measurement, Records, RecordsStore
from dietcode.search_space.candidate import AnyMicroKernel, Candidate
from dietcode.search_space.forms import problem_from_json
from dietcode.search_space.problem import AnyProblem
from dietcode.search_space.task import Task
from dietcode.tuner.decisions import describe_round, round_line
from dietcode.tuner.events import Event, OnEvent
from dietcode.tuner.finals import read_leaders
from dietcode.tuner.planner import Plan, Planner
from dietcode.tuner.search import Search
from dietcode.tuner.seeding import Known, Seeding, secs_at_largest, starting_space
from dietcode.tuner.trials import Trials
from dietcode.workload.stops import CONVERGED, ENDS, EXHAUSTED, SECONDS, STALLED, TRIALS

RESERVED_SECS = 10.0  # kept for selecting, building and verifying
_PATIENCE = 2  # rounds
_CALIBRATION_SHARE = 0.1  # of the budget's seconds, in which noisy sweeps are read again
_MOST_EXTENDED = 0.5  # of the budget's seconds: a device is calibrated once, for all jobs


@dataclass
class Exploration:
    """One run of the search.

    Attributes
    ----------
    others : sequence of Records
        Records of this device for other workloads.
    work_dir : Path
        Where MetaSchedule keeps its database.
    deadline : float
        Monotonic time at which measuring stops.
    """

    task: Task
    backend: Backend
    target: Any
    store: RecordsStore
    others: Sequence[Records]
    device: MeasuringDevice
    work_dir: Path
    deadline: float
    on_event: OnEvent
    search: Search = field(default_factory=Search)
    clock: Callable[[], float] = time.monotonic
    domain: Domain = field(init=False)
    _first_round: int = field(default=0, init=False)
    _job: str = field(init=False)

    def __post_init__(self) -> None:
        facts = (
            self.task.instances.bindings.tobytes(),
            self.task.instances.weights.tobytes(),
            repr(self.search).encode(),
        )
        self._job = hashlib.sha256(b"".join(facts)).hexdigest()[:16]
        self.domain = self.backend.domain(self.task.problem, self.target, self.records.device)

    @property
    def records(self) -> Records:
        """Everything that is known so far."""
        return self.store.records

    def run(self) -> None:
        """Measure what the records lack, within the budget.

        Raises
        ------
        TuningError
            No micro-kernel worked.
        """
        begun = self.clock()
        if self.records.problem is None:
            self.store.append({"kind": "problem", **self.task.problem.to_json()})
        earlier = [(problem_from_json(r.problem), r) for r in self.others if r.problem is not None]
        known = [
            (self.backend.domain(problem, self.target, r.device), r)
            for problem, r in earlier
            if problem.form == self.task.problem.form  # features of another form are others
        ]
        seeding = Seeding(
            self.task,
            self.target,
            self.store,
            self.work_dir,
            self.search,
            known,
            lambda: self.deadline - self.clock(),
            self.on_event,
            self.device,
            self._longest_secs,
        )
        if self._is_done(seeding):
            self._report_known(seeding)
        else:
            self._calibrate()
            if not seeding.may_wait:
                seeding.run()
            elif self.records.rounds:  # an earlier run ended before it sought
                seeding.after_first_round(self.records.rounds[0])
            self._search(seeding, known)
        self._check_any_worked()
        searched = self.clock()
        read_leaders(
            self.domain,
            self.task.extents,
            self.store,
            self.device,
            self.device.finals_between(self.task.problem, self.task.extents),
            on_event=self.on_event,
            out_of_time=self._out_of_time,
            had_enough=lambda: self.clock() - searched > searched - begun,
        )

    def _check_any_worked(self) -> None:
        if not any(m.usable for m in self.records.measurements.values()):
            failures = [m.error for m in self.records.measurements.values() if m.error]
            if not failures:
                secs = self.task.spec.budget.seconds
                raise TuningError(f"no micro-kernel was measured in {secs:g} s; allow more in budget.seconds")
            raise TuningError(f"no micro-kernel worked; the first said: {failures[0]}")

    def _longest_secs(self, kernels: list[AnyMicroKernel]) -> list[float | None]:
        """Measure what a search for T0 proposes; returns seconds at the point with the most FLOPs."""
        known, source = self.records.measurements, "metaschedule"
        left = max(0, self.task.spec.budget.trials - len(known))
        new = [Candidate(kernel, source) for kernel in kernels if kernel not in known][:left]
        trials = Trials(self.task, self.store, self.device, None)
        for number, measurement in enumerate(trials.measure(new, self._out_of_time), 1):
            self._report_measured(measurement, len(new) - number)
        return [secs_at_largest(self.task.problem, known.get(kernel)) for kernel in kernels]

    def _is_done(self, seeding: Seeding) -> bool:
        """Whether an earlier run left nothing to gain or used up the trials of this one."""
        if seeding.is_missing or self.records.calibration is None:
            return False
        own = [decision for decision in self.records.rounds if decision.get("job") == self._job]
        ended = bool(own) and own[-1]["stop"] in ENDS
        return ended or self._num_trials_left(seeding) <= 0

    def _report_known(self, seeding: Seeding) -> None:
        """Report what is known where nothing is measured."""
        seeding.run()
        known = len(self.records.measurements)
        message = f"{known} micro-kernels from the records; nothing is left to measure"
        self.on_event(Event("measure", message, known, known, self._best_gflops()))

    def _num_trials_left(self, seeding: Seeding) -> int:
        """Return how many micro-kernels the budget still allows; one at least where none was measured."""
        spent = len(self.records.measurements)
        return max(0 if spent else 1, self.task.spec.budget.trials - seeding.num_trials - spent)

    def _out_of_time(self) -> bool:
        least = min(self.search.least, self.task.spec.budget.trials)
        is_enough = len(self.records.measurements) >= least
        return is_enough and self.clock() > self.deadline - RESERVED_SECS

    def _search(self, seeding: Seeding, known: Known) -> None:
        """Measure in rounds until nothing more is promised, or the budget is used up."""
        planner = Planner(self.domain, self.task.extents, self.task.instances.weights, self.search, known)
        estimator = self.domain.estimator(self.records)
        assert estimator is not None
        pruning = Pruning(self.task.problem, estimator, planner.sample) if self.search.pruning else None
        trials = Trials(self.task, self.store, self.device, pruning)
        planner.space.update({m.micro_kernel: m.provenance for m in self.records.measurements.values()})
        planner.reopened = trials.reopened()
        stop, self._first_round = None, len(self.records.rounds)
        while stop is None:
            planner.add(starting_space(self.domain, self.task, self.records, known, self.search))
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
        """Whether the last rounds gained too little in spite of what was promised."""
        own = self.records.rounds[self._first_round :]
        gains = [r["gain"] for r in own[-_PATIENCE:] if r["gain"] is not None]
        return len(gains) == _PATIENCE and max(gains) < self.search.min_promise

    def _round(self, planner: Planner, plan: Plan, trials: Trials, num_left: int) -> str | None:
        """Measure one batch; returns why it was the last one, or None."""
        self._attach()
        batch = plan.batch[:num_left]
        measured: list[Measurement] = []
        for measurement in trials.measure(batch, self._out_of_time):
            measured.append(measurement)
            planner.reopened.discard(measurement.micro_kernel)
            self._report_measured(measurement, min(plan.num_left, num_left) - len(measured))
        gain = planner.mean_gain(plan.served, self.records)
        if all(measurement.error is not None for measurement in measured):
            gain = None  # failures such as a full disk tell nothing about the space
        error = None
        estimator = self.domain.estimator(self.records)
        if plan.model is not None and estimator is not None:
            error = missed(plan.model, self.task.problem, estimator, measured)
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
        """Record and report a round."""
        line = round_line(len(self.records.rounds) + 1, plan, measured, gain, error, stop, self._job)
        line["message"] = describe_round(line, self.search.min_promise)
        if measured or not self._is_nothing_new(line):
            self.store.append({"kind": "round", **line})
        total = len(self.records.measurements)
        self.on_event(
            Event("measure", line["message"], total, total + (0 if stop else line["left"]), data=line)
        )

    def _is_nothing_new(self, line: Mapping[str, Any]) -> bool:
        """Whether the last round on record is the same: a run that measures nothing adds nothing."""
        last = self.records.rounds[-1] if self.records.rounds else {}
        return all(last.get(key) == line[key] for key in ("job", "stop", "left", "added"))

    def _report_measured(self, measurement: Measurement, at_most: int) -> None:
        done, peak = len(self.records.measurements), peak_gflops(self.task.problem, measurement)
        self.on_event(
            Event(
                "measure",
                f"{measurement.micro_kernel.name}: {_describe(self.task.problem, measurement)}",
                done,
                done + at_most,
                self._best_gflops(),
                max(0.0, self.deadline - self.clock()),
                {} if peak is None else {"gflops": peak},
            )
        )

    def _calibrate(self) -> None:
        """Have a calibration of the device: an earlier workload's, or a new one, which is not charged."""
        if self.records.calibration is not None:
            return
        for facts, workload in self._earlier_calibrations():
            moved = self.device.recalibrate(facts)
            if moved is not None:
                self.store.append({"kind": "calibration", **moved, "from_workload": workload})
                self._report_calibrated("κ of an earlier workload")
                return
        self.on_event(Event("calibrate", "sweep of up to four waves"))
        begun, budget = self.clock(), self.task.spec.budget.seconds
        self.store.append({"kind": "calibration", **self.device.calibrate(_CALIBRATION_SHARE * budget)})
        self.deadline += min(self.clock() - begun, _MOST_EXTENDED * budget)
        self._report_calibrated("measured now")

    def _earlier_calibrations(self) -> list[tuple[dict[str, Any], str]]:
        """Return those of other workloads with where each was measured; the ones measured there first."""
        known = [
            (facts, str(facts.get("from_workload", other.workload)))
            for other in reversed(self.others)
            if (facts := other.calibration) is not None
        ]
        return sorted(known, key=lambda pair: "from_workload" in pair[0])

    def _report_calibrated(self, when: str) -> None:
        assert self.records.calibration is not None
        message = f"{self.device.describe(self.records.calibration)}, {when}"
        self.on_event(Event("calibrate", message, 1, 1))

    def _attach(self) -> None:
        assert self.records.calibration is not None
        self.device.attach(self.records.calibration)

    def _best_gflops(self) -> float | None:
        rates = [r for m in self.records.measurements.values() if (r := peak_gflops(self.task.problem, m))]
        return max(rates, default=None)


def peak_gflops(problem: AnyProblem, measurement: Measurement) -> float | None:
    """Return the best measured GFLOP/s over the points of one micro-kernel; None where it failed."""
    rates = [
        float(problem.flops(point)) / secs / 1e9
        for point, secs in zip(measurement.points, measurement.secs, strict=True)
    ]
    return max(rates, default=None)


def _describe(problem: AnyProblem, measurement: Measurement) -> str:
    peak = peak_gflops(problem, measurement)
    if peak is None:
        return f"failed: {measurement.error}"
    return f"{peak:.0f} GFLOP/s" + (", pruned after its first wave" if measurement.pruned else "")
