"""Measuring what a workload's records of a GPU lack: the device's sweep, seeds, rounds around the best."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest

import numpy as np

from dietcode.cost_model.cuda.fitting import fit_cuda
from dietcode.cost_model.model import Fitted, FloatArray
from dietcode.errors import TargetError, TuningError
from dietcode.measure.children import Children
from dietcode.measure.gpu import Gpu
from dietcode.measure.gpu_device import gpu_device
from dietcode.measure.local import LocalMachine
from dietcode.measure.points import choose_anchors
from dietcode.measure.records import Measurement, Records, RecordsStore
from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cuda.candidates import starting_candidates
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.lowering import device_problem
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.seeds import SOURCE, search_seed
from dietcode.search_space.cuda.space import CudaSeed, hardware_seeds, neighbours
from dietcode.search_space.problem import Problem
from dietcode.search_space.task import Task
from dietcode.target.cuda import CudaTarget, resolve_cuda
from dietcode.target.nvrtc import check_compiler
from dietcode.tuner.cuda_calibration import calibrate_gpu
from dietcode.tuner.cuda_trials import CudaTrials
from dietcode.tuner.decisions import ENDS, EXHAUSTED, SECONDS, STALLED, TRIALS, describe_round
from dietcode.tuner.events import Event, Listener, silent
from dietcode.tuner.exploration import peak_gflops
from dietcode.tuner.measuring import Keeper
from dietcode.tuner.search import Search
from dietcode.workload.instances import Instances
from dietcode.workload.spec import Spec

_NUM_POINTS = 6
_BATCH = 16
_PATIENCE = 2  # rounds
_SEED_PART = 4  # of trials and seconds, one part for MetaSchedule's search
_MIN_SEED_TRIALS = 8
_MAX_SEED_SECS = 600.0
_RESERVED_SECS = 10.0  # kept for selecting, building and verifying


def measure_cuda(
    spec: Spec,
    gpu: Gpu,
    keeper: Keeper,
    *,
    force: bool = False,
    listener: Listener = silent,
    children: Children | None = None,
) -> Records:
    """Measure on a GPU what the records of a workload lack, within the budget of its spec.

    Each line is kept as soon as it is known: a run that was killed goes on from there.

    Parameters
    ----------
    keeper : Keeper
        Where records are kept.
    force : bool
        Forget what was measured before.
    children : Children, optional
        What builds and runs kernels; processes on this machine by default, alone on the GPU.

    Returns
    -------
    Records
        All that is known; synthetic where the GPU is.

    Raises
    ------
    TargetError
        The compiler is missing, or the GPU is of another architecture than the spec asks for.
    TuningError
        Nothing can be measured, or no micro-kernel worked.
    RecordsError
        The records cannot be kept.
    """
    asked = resolve_cuda(spec.target)
    if asked.number != gpu.capability:
        raise TargetError(f"target.arch: {asked.arch}; the GPU here is {gpu}")
    check_compiler()
    task = Task.of(spec, device_problem)
    store = keeper.open(task.digest, gpu.record)
    if force:
        store.clear()
    with contextlib.ExitStack() as stack:
        if children is None:
            device = gpu_device(gpu)
            children = stack.enter_context(
                LocalMachine().children(device, lambda m: listener(Event("calibrate", m)))
            )
        deadline = time.monotonic() + spec.budget.seconds
        CudaExploration(task, gpu, store, children, deadline, listener).run()
    return store.records


@dataclass
class CudaExploration:
    """One run of the search.

    Attributes
    ----------
    deadline : float
        Monotonic time at which measuring stops.
    """

    task: Task
    gpu: Gpu
    store: RecordsStore
    children: Children
    deadline: float
    listener: Listener
    least: float = Search.min_promise
    _job: str = field(init=False)
    _first_round: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        facts = self.task.instances.bindings.tobytes() + self.task.instances.weights.tobytes()
        self._job = hashlib.sha256(facts).hexdigest()[:16]

    @property
    def records(self) -> Records:
        """What is known so far."""
        return self.store.records

    @property
    def target(self) -> CudaTarget:
        """What is measured for."""
        return CudaTarget.from_json(self.records.device["target"])

    def run(self) -> None:
        """Do what the records lack, within the budget.

        Raises
        ------
        TuningError
            Not one micro-kernel worked.
        """
        self._first_round = len(self.records.rounds)
        if self._is_done():
            known = len(self.records.measurements)
            message = f"{known} micro-kernels from the records; nothing is left to measure"
            self.listener(Event("measure", message, known, known, self._best_gflops()))
        else:
            self._calibrate()
            self._search()
        if not any(m.usable for m in self.records.measurements.values()):
            failures = [m.error for m in self.records.measurements.values() if m.error]
            if not failures:
                secs = self.task.spec.budget.seconds
                raise TuningError(f"no micro-kernel was measured in {secs:g} s; allow more in budget.seconds")
            raise TuningError(f"no micro-kernel worked; the first said: {failures[0]}")

    def _is_done(self) -> bool:
        """Whether an earlier run left nothing to gain, or used up the trials of this one."""
        if self.records.calibration is None:
            return False
        own = [decision for decision in self.records.rounds if decision.get("job") == self._job]
        return (bool(own) and own[-1]["stop"] in ENDS) or self._num_trials_left() <= 0

    def _num_trials_left(self) -> int:
        return max(0, self.task.spec.budget.trials - len(self.records.measurements))

    def _out_of_time(self) -> bool:
        return time.monotonic() > self.deadline - _RESERVED_SECS

    def _calibrate(self) -> None:
        if self.records.calibration is not None:
            return
        self.listener(Event("calibrate", "sweep of 1 to 4 waves"))
        self.store.append(calibrate_gpu(self.gpu, self.target, self.children))
        assert self.records.calibration is not None
        points, wave = len(self.records.calibration["secs"]), self.records.calibration["wave_blocks"]
        self.listener(Event("calibrate", f"{points} grids on {self.gpu}, waves of {wave} blocks", 1, 1))

    def _search(self) -> None:
        """Rounds until nothing more is gained, or the budget is used up."""
        limits, largest = CudaLimits.of(self.target), self.task.largest
        trials = CudaTrials(
            self.task.problem,
            self.target,
            choose_anchors(self.task.problem, self.task.extents, _NUM_POINTS),
            self.store,
            self.children,
        )
        seeds = [*hardware_seeds(self.task.problem, limits), *self._searched_seed(trials, largest)]
        space = starting_candidates(self.task.problem, seeds, limits, largest)
        _, _, _, longest = self.task.problem.sizes(dict(largest))
        stop = None
        while stop is None:
            fitted = self._fitted()
            batch = self._batch(space, fitted, limits, longest)
            stop = self._reason_to_stop(batch)
            if stop is None:
                stop = self._round(trials, batch, None if fitted is None else _served(fitted))
            else:
                self._decide([], None, len(batch), stop)

    def _searched_seed(self, trials: CudaTrials, largest: dict[str, int]) -> list[CudaSeed]:
        """T0 by MetaSchedule on the largest instance, for a part of the budget; none where that fails."""
        num_trials = self.task.spec.budget.trials // _SEED_PART
        if num_trials < _MIN_SEED_TRIALS or self._num_trials_left() <= 0:
            return []
        known = self.records.measurements

        def measure(tiles: list[CudaMicroKernel]) -> list[float | None]:
            new = [Candidate(tile, SOURCE) for tile in tiles if tile not in known]
            for measurement in trials.measure(new[: self._num_trials_left()], self._out_of_time):
                self._say_measured(measurement, num_trials)
            return [_longest_secs(self.task.problem, known.get(tile)) for tile in tiles]

        self.listener(Event("seed", f"MetaSchedule proposes {num_trials} micro-kernels"))
        secs = min(_MAX_SEED_SECS, max(0.0, self.deadline - time.monotonic()) / _SEED_PART)
        try:
            seed = search_seed(self.task.problem, self.target, largest, measure, num_trials, max_secs=secs)
        except TuningError as error:
            self.listener(Event("seed", f"none from MetaSchedule: {error}"))
            return []
        self.listener(Event("seed", f"T0 {seed.tile.name}"))
        return [seed]

    def _fitted(self) -> Fitted | None:
        """Every instance predicted; None where nothing worked yet."""
        with contextlib.suppress(TuningError):
            return fit_cuda(self.task.problem, self.records, self.task.extents)
        return None

    def _batch(
        self,
        space: Sequence[Candidate],
        fitted: Fitted | None,
        limits: CudaLimits,
        longest: int,
    ) -> list[Candidate]:
        """What to measure next: neighbours of what serves best, and the next of the space, in turns.

        Before anything worked the space alone, which begins with the seeds and their paddings.
        """
        around = (
            () if fitted is None else _around(self.task.problem, fitted, self.task.instances, limits, longest)
        )
        known = self.records.measurements
        new = [c for c in space if c.micro_kernel not in known]
        found: dict[CudaMicroKernel, Candidate] = {}
        near = (c for c in around if c.micro_kernel not in known)
        for candidate in chain.from_iterable(zip_longest(near, new)):
            if candidate is not None and len(found) < _BATCH:
                found.setdefault(candidate.micro_kernel, candidate)
        return list(found.values())

    def _reason_to_stop(self, batch: Sequence[Candidate]) -> str | None:
        if not batch:
            return EXHAUSTED
        if self._num_trials_left() <= 0:
            return TRIALS
        gains = [r["gain"] for r in self.records.rounds[self._first_round :] if r["gain"] is not None]
        if len(gains) >= _PATIENCE and max(gains[-_PATIENCE:]) < self.least:
            return STALLED
        begun = any(m.usable for m in self.records.measurements.values())
        return SECONDS if begun and self._out_of_time() else None

    def _round(self, trials: CudaTrials, batch: Sequence[Candidate], before: FloatArray | None) -> str | None:
        """Measure one batch; why it was the last one, or None."""
        batch = batch[: self._num_trials_left()]
        measured: list[Measurement] = []
        for measurement in trials.measure(batch, self._out_of_time):
            measured.append(measurement)
            self._say_measured(measurement, len(batch) - len(measured))
        fitted, gain = self._fitted(), None
        if before is not None and fitted is not None and any(m.usable for m in measured):
            gain = float(np.expm1(np.sum(self.task.instances.weights * np.log(_served(fitted) / before))))
        stop = SECONDS if self._out_of_time() and len(measured) < len(batch) else None
        self._decide(measured, gain, len(batch) - len(measured), stop)
        return stop

    def _decide(
        self, measured: Sequence[Measurement], gain: float | None, left: int, stop: str | None
    ) -> None:
        """Put a round on record, and say it; one that measured nothing and says nothing new is left out."""
        line = {
            "number": len(self.records.rounds) + 1,
            "job": self._job,
            "measured": [m.micro_kernel.name for m in measured],
            "pruned": [],
            "failed": [m.micro_kernel.name for m in measured if m.error is not None],
            "left": left,
            "promise": None,
            "gain": gain,
            "dropped": [],
            "expansions": [],
            "added": [],
            "model": None,
            "stop": stop,
        }
        line["message"] = describe_round(line, self.least)
        last = self.records.rounds[-1] if self.records.rounds else {}
        if measured or (last.get("job"), last.get("stop")) != (self._job, stop):
            self.store.append({"kind": "round", **line})
        total = len(self.records.measurements)
        self.listener(Event("measure", str(line["message"]), total, total + (0 if stop else left), data=line))

    def _say_measured(self, measurement: Measurement, at_most: int) -> None:
        done, peak = len(self.records.measurements), peak_gflops(self.task.problem, measurement)
        text = f"failed: {measurement.error}" if peak is None else f"{peak:.0f} GFLOP/s"
        self.listener(
            Event(
                "measure",
                f"{measurement.micro_kernel.name}: {text}",
                done,
                done + at_most,
                self._best_gflops(),
                max(0.0, self.deadline - time.monotonic()),
            )
        )

    def _best_gflops(self) -> float | None:
        rates = [r for m in self.records.measurements.values() if (r := peak_gflops(self.task.problem, m))]
        return max(rates, default=None)


def _longest_secs(problem: Problem, measurement: Measurement | None) -> float | None:
    """Seconds at the point with the most FLOPs; None where it was not measured."""
    if measurement is None or not measurement.usable:
        return None
    flops = [float(problem.flops(dict(point))) for point in measurement.points]
    return measurement.secs[int(np.argmax(flops))]


def _served(fitted: Fitted) -> FloatArray:
    """Predicted FLOP/s of each instance's best, [num_instances]."""
    best: FloatArray = fitted.throughput.max(axis=1)
    return best


def _around(
    problem: Problem, fitted: Fitted, instances: Instances, limits: CudaLimits, longest: int
) -> Iterator[Candidate]:
    """Neighbours of each instance's best, those of what serves most first, in turns."""
    weights = np.bincount(
        fitted.throughput.argmax(axis=1), weights=instances.weights, minlength=len(fitted.models)
    )
    order = [int(i) for i in np.argsort(-weights, kind="stable") if weights[i] > 0]
    near = [neighbours(problem, fitted.models[i].micro_kernel, limits, longest) for i in order]
    for tile in chain.from_iterable(zip_longest(*near)):
        if tile is not None:
            yield Candidate(tile, "neighbour")
