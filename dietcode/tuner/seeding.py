"""Where the space starts: MetaSchedule on the largest instance, the hardware's limits, earlier workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dietcode.backends.protocol import Domain, MeasureSecs, MeasuringDevice, SeedSought
from dietcode.measure.records import Measurement, Records, RecordsStore
from dietcode.search_space.candidate import AnyMicroKernel, Candidate
from dietcode.search_space.problem import AnyProblem
from dietcode.search_space.task import Task
from dietcode.tuner.events import Event, OnEvent
from dietcode.tuner.search import Search

_SHARE_OF_SECS = 0.4
_TRUSTED_ERROR = 0.1  # of the learned f_local on the first batch of a new workload

Known = Sequence[tuple[Domain, Records]]


@dataclass
class Seeding:
    """The search for a seed of one workload on one device, run once.

    Parameters
    ----------
    work_dir : Path
        Where MetaSchedule keeps its database.
    known : sequence of (Domain, Records)
        Other workloads of this device.
    secs_left : callable
        Seconds of the budget that are left.
    measure : callable
        As `dietcode.backends.protocol.SeedSought` has it.
    """

    task: Task
    target: Any
    store: RecordsStore
    work_dir: Path
    search: Search
    known: Known
    secs_left: Callable[[], float]
    on_event: OnEvent
    device: MeasuringDevice
    measure: MeasureSecs
    _tried: bool = False

    @property
    def is_missing(self) -> bool:
        """Whether MetaSchedule is on and has given nothing yet."""
        return self.search.metaschedule and self.store.records.seed is None and self._num_wanted > 0

    @property
    def may_wait(self) -> bool:
        """Whether the first round may show that MetaSchedule has nothing to add."""
        return self.is_missing and not self._tried and (self._may_learn or self._full_gflops is not None)

    @property
    def _may_learn(self) -> bool:
        return self.search.learning and bool(earlier_seeds(self.known))

    @property
    def _full_gflops(self) -> float | None:
        calibration = self.store.records.calibration
        return None if calibration is None else self.device.full_gflops(calibration)

    @property
    def num_trials(self) -> int:
        """Trials of the budget that the seed takes or took, beside those of candidates."""
        if self.device.seed_trials_are_candidates:
            return 0
        seed = self.store.records.seed
        if seed is not None:
            return int(seed["trials"])
        return self._num_wanted if self.is_missing else 0

    @property
    def _num_wanted(self) -> int:
        return self.device.num_seed_trials(self.task.spec.budget.trials)

    def after_first_round(self, decision: Mapping[str, Any]) -> None:
        """Run MetaSchedule, unless the first round shows that it has nothing to add.

        It has none where the learned f_local predicted the round, so that an earlier workload's seed serves,
        and where a micro-kernel reaches the reference kernel's rate at the largest instance (`Search`).
        """
        missed = decision["model"]["missed"] if decision["model"] else None
        if self._may_learn and missed is not None and missed <= _TRUSTED_ERROR:
            facts, workload = list(earlier_seeds(self.known).values())[-1]
            reason = (
                f"the learned f_local of earlier workloads missed the first round by {missed:.1%}, "
                "so MetaSchedule was not run"
            )
            own: dict[str, Any] = {key: facts[key] for key in ("tile", "micro_kernel") if key in facts}
            self._skip({**own, "from_workload": workload}, reason)
            return
        fastest, full = fastest_at_largest(self.task.problem, self.store.records), self._full_gflops
        if fastest is None or full is None or fastest[1] < self.search.well_served * full:
            self.run()
            return
        micro_kernel, gflops = fastest
        reason = (
            f"{micro_kernel.name} reached {gflops:.0f} GFLOP/s at the largest instance, the reference kernel "
            f"{full:.0f}, so MetaSchedule was not run"
        )
        self._skip({"tile": [micro_kernel.rows, micro_kernel.columns]}, reason)

    def _skip(self, own: Mapping[str, Any], reason: str) -> None:
        """Put on record that MetaSchedule is not run."""
        line = {"kind": "seed", **own, "trials": 0, "secs": 0.0, "best_gflops": None, "decisions": []}
        self.store.append({**line, "reason": reason})
        self.on_event(Event("seed", f"{_tile(own)} {_origin(own)}: {reason}", 1, 1))

    def run(self) -> None:
        """Run MetaSchedule on the largest instance, once for a workload and device."""
        seed = self.store.records.seed
        if not self.search.metaschedule or (seed is None and not self._num_wanted):
            return
        if seed is not None:
            self.on_event(Event("seed", f"{_tile(seed)}, from the records", 1, 1))
            return
        self._tried = True
        trials = self._num_wanted
        started = self.secs_left()
        allowed = _SHARE_OF_SECS * max(1.0, started)

        def progress(done: int, gflops: float | None) -> None:
            spent = started - self.secs_left()
            left = min(allowed - spent, spent / done * (trials - done)) if done else None
            message = "MetaSchedule on the largest instance"
            self.on_event(Event("seed", message, done, trials, gflops, left))

        found = self.device.find_seed(
            SeedSought(self.task, self.target, self.work_dir, trials, allowed, progress, self.measure)
        )
        if found.facts is None:  # a later run tries again
            self.on_event(Event("seed", str(found.error), 1, 1))
            return
        self.store.append({"kind": "seed", **found.facts})
        best, num_done = found.facts["best_gflops"], found.facts["trials"]
        message = f"{_tile(found.facts)}, {best} GFLOP/s after {num_done} trials"
        self.on_event(Event("seed", message, trials, trials, best))


def _tile(facts: Mapping[str, Any]) -> str:
    return f"T0 = {facts['tile'][0]}x{facts['tile'][1]}"


def _origin(facts: Mapping[str, Any]) -> str:
    return "of an earlier workload" if facts.get("from_workload") else "of the space"


def _brings_tile(seed: Mapping[str, Any]) -> bool:
    """Whether its tile is none that the space had before."""
    return bool(seed["trials"]) or bool(seed.get("from_workload"))


def secs_at_largest(problem: AnyProblem, measurement: Measurement | None) -> float | None:
    """Return the seconds at the point with the most FLOPs; None where it was not measured."""
    if measurement is None or not measurement.usable:
        return None
    flops = [float(problem.flops(dict(point))) for point in measurement.points]
    return measurement.secs[flops.index(max(flops))]


def fastest_at_largest(problem: AnyProblem, records: Records) -> tuple[AnyMicroKernel, float] | None:
    """Return the fastest micro-kernel at the point with the most FLOPs, and its GFLOP/s there.

    Those that were pruned after a wave have not been there. None where no other has worked.
    """
    rates = [
        (float(problem.flops(dict(max(m.points, key=lambda p: problem.flops(dict(p)))))) / secs / 1e9, m)
        for m in records.measurements.values()
        if not m.pruned and (secs := secs_at_largest(problem, m)) is not None
    ]
    if not rates:
        return None
    gflops, fastest = max(rates, key=lambda pair: pair[0])
    return fastest.micro_kernel, gflops


def earlier_seeds(known: Known) -> dict[Any, tuple[dict[str, Any], str]]:
    """Return the seeds that MetaSchedule found for other workloads of this device, the newest last.

    Returns
    -------
    dict of seed to (dict, str)
        Its line of records, and the workload.
    """
    found: dict[Any, tuple[dict[str, Any], str]] = {}
    for domain, records in known:
        if records.seed is not None and records.seed["trials"]:
            seed = domain.seed_of(records.seed, "earlier")
            found.pop(seed, None)
            found[seed] = (records.seed, records.workload)
    return found


def starting_space(
    domain: Domain, task: Task, records: Records, known: Known, search: Search
) -> list[Candidate]:
    """Return the space around every seed, and what earlier rounds of this workload added to it.

    Parameters
    ----------
    records : Records
        Those of the workload.
    known : sequence of (Domain, Records)
        Other workloads of the device.
    search : Search
        Which parts of the search are on.
    """
    seeds = domain.hardware_seeds()
    if search.metaschedule and records.seed is not None and _brings_tile(records.seed):
        source = "earlier" if records.seed.get("from_workload") else "metaschedule"
        seeds.insert(0, domain.seed_of(records.seed, source))
    if search.learning:
        seeds += earlier_seeds(known)
    space = domain.starting(seeds, task.extents, search.mutation)
    added = [
        Candidate(domain.micro_kernel(entry), str(entry["provenance"]))
        for decision in records.rounds
        for entry in decision["added"]
    ]
    return [*space, *(candidate for candidate in added if domain.allows(candidate.micro_kernel))]
