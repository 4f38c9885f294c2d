"""Building and measuring one batch of candidates; each is on record as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dietcode.cost_model.pruning import Pruning
from dietcode.measure.measurer import Measurer
from dietcode.measure.points import choose_anchors, wave_points
from dietcode.measure.records import Measurement, RecordsStore
from dietcode.measure.requests import BuildResult
from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cpu.limits import MicroKernel
from dietcode.search_space.problem import IntArray, Problem

Point = dict[str, int]


@dataclass
class Trials:
    """Measures candidates into a store.

    Parameters
    ----------
    extents : dict of str to int64 array [num_instances]
        Of every instance; the waves are chosen among them.
    num_variables : int
        Shape variables of the workload.
    pruning : Pruning or None
        Gives up hopeless candidates after their first wave; None: measure all whole.
    """

    problem: Problem
    extents: dict[str, IntArray]
    num_variables: int
    store: RecordsStore
    measurer: Measurer
    pruning: Pruning | None
    anchors: list[Point] = field(init=False)

    def __post_init__(self) -> None:
        self.anchors = choose_anchors(self.problem, self.extents)
        for measurement in self.store.records.measurements.values():
            self._learn(measurement)

    def measure(self, batch: Sequence[Candidate], out_of_time: Callable[[], bool]) -> Iterator[Measurement]:
        """Build side by side, then time one by one; ends early where time is up."""
        requests = [
            self.measurer.build_request([c.micro_kernel], f"candidate_{c.micro_kernel.name}") for c in batch
        ]
        for candidate, built in zip(batch, self.measurer.build(requests), strict=True):
            measurement = self._measure_one(candidate, built)
            self.store.append(measurement.to_json())
            self._learn(measurement)
            yield measurement
            if out_of_time():
                return

    def _points(self, micro_kernel: MicroKernel) -> list[Point]:
        """Waves of one micro-kernel; first the full wave of the middle anchor, by which it may be pruned."""
        points = wave_points(self.problem, micro_kernel, self.anchors)
        probe = self._probe(micro_kernel)
        return [probe, *(point for point in points if point != probe)]

    def _probe(self, micro_kernel: MicroKernel) -> Point:
        return wave_points(self.problem, micro_kernel, [self.anchors[len(self.anchors) // 2]])[0]

    def _measure_one(self, candidate: Candidate, built: BuildResult) -> Measurement:
        kernel = candidate.micro_kernel
        failed = Measurement(kernel, candidate.provenance)
        error = built.error or self._check(built)
        if error is not None or built.path is None:
            return replace(failed, error=error or "not built")
        probe, *rest = self._points(kernel)
        first = self.measurer.time(built.path, [probe])
        measured = replace(
            failed,
            points=(probe,),
            secs=first.secs,
            object_bytes=built.object_bytes,
            build_secs=round(built.secs, 4),
            drift=first.drift,
            attempts=first.attempts,
        )
        result = first
        if first.error is None and rest:
            if self._is_hopeless(measured):
                Path(built.path).unlink(missing_ok=True)
                return replace(measured, pruned=True)
            result = self.measurer.time(built.path, rest)
        Path(built.path).unlink(missing_ok=True)
        if result.error is not None:
            return replace(failed, object_bytes=built.object_bytes, error=result.error)
        return replace(
            measured,
            points=(probe, *rest),
            secs=(*first.secs, *(result.secs if rest else ())),
            drift=max(first.drift, result.drift),
            attempts=max(first.attempts, result.attempts),
        )

    def _check(self, built: BuildResult) -> str | None:
        """Why it gives wrong numbers on the two smallest anchors; None where it is right."""
        zeros = [0] * self.num_variables
        for anchor in self.anchors[:2]:
            error = None if built.path is None else self.measurer.check(built.path, anchor, zeros)
            if error is not None:
                return error
        return None

    def reopened(self) -> set[MicroKernel]:
        """Pruned micro-kernels that could win somewhere among these instances, unlike another job's."""
        known = self.store.records.measurements.values()
        return {m.micro_kernel for m in known if m.pruned and not self._is_hopeless(m)}

    def _is_hopeless(self, measured: Measurement) -> bool:
        if self.pruning is None or measured.points[0] != self._probe(measured.micro_kernel):
            return False
        return self.pruning.is_hopeless(
            self.pruning.reached(measured.micro_kernel, measured.points[:1], measured.secs[:1])
        )

    def _learn(self, measurement: Measurement) -> None:
        """Later candidates are held against this one."""
        if self.pruning is not None and measurement.usable:
            self.pruning.note(
                self.pruning.reached(measurement.micro_kernel, measurement.points, measurement.secs)
            )
