"""Building and measuring one batch of candidates; each is on record as soon as it is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dietcode.backends.protocol import MeasuringDevice
from dietcode.cost_model.pruning import Pruning
from dietcode.library.generator import generator_digest
from dietcode.measure.measurer import RunResult
from dietcode.measure.points import choose_anchors, wave_points
from dietcode.measure.records import Measurement, RecordsStore
from dietcode.measure.requests import BuildResult, Point
from dietcode.search_space.candidate import AnyMicroKernel, Candidate
from dietcode.search_space.task import Task
from dietcode.target.cubin import KernelFacts

_MAX_SAMPLED_FLOPS = 3e7  # in float64, for each candidate


@dataclass
class Trials:
    """Measures candidates into a store.

    Parameters
    ----------
    task : Task
        The waves are chosen among its instances.
    pruning : Pruning or None
        Drops hopeless candidates after their first wave; None: all waves are measured.
    """

    task: Task
    store: RecordsStore
    device: MeasuringDevice
    pruning: Pruning | None
    anchors: list[dict[str, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.anchors = choose_anchors(self.task.problem, self.task.extents)
        for measurement in self.store.records.measurements.values():
            self._learn(measurement)

    def measure(self, batch: Sequence[Candidate], out_of_time: Callable[[], bool]) -> Iterator[Measurement]:
        """Build side by side, then time one by one; ends early when time is up."""
        results = self.device.build([candidate.micro_kernel for candidate in batch], "candidate")
        for candidate, built in zip(batch, results, strict=True):
            measurement = self._measure_one(candidate, built)
            if built.path is not None:
                Path(built.path).unlink(missing_ok=True)
            self.store.append(measurement.to_json())
            self._learn(measurement)
            yield measurement
            if out_of_time():
                return

    def _probe(self, micro_kernel: AnyMicroKernel, facts: KernelFacts | None) -> Point:
        """Return the full wave of the middle anchor, by which a micro-kernel may be pruned."""
        return self.device.full_wave(micro_kernel, facts, self.anchors[len(self.anchors) // 2])

    def _measure_one(self, candidate: Candidate, built: BuildResult) -> Measurement:
        kernel, device = candidate.micro_kernel, self.device
        failed = Measurement(kernel, candidate.provenance, code=built.code, generator=generator_digest())
        if built.error is not None or built.path is None:
            return replace(failed, error=built.error or "not built")
        error = self._check(kernel, built)
        if error is not None:
            return replace(failed, error=error)
        facts = device.facts(kernel, built)
        failed = replace(failed, object_bytes=built.object_bytes, facts=facts)
        probe, *rest = wave_points(
            lambda anchor: device.full_wave(kernel, facts, anchor), self.anchors, self._probe(kernel, facts)
        )
        first = device.time(kernel, built, [probe])
        measured = _measured(failed, [probe], [first], built)
        if first.error is None and rest:
            if self._is_hopeless(measured):
                return replace(measured, pruned=True)
            measured = _measured(failed, [probe, *rest], [first, device.time(kernel, built, rest)], built)
        return measured

    def _check(self, micro_kernel: AnyMicroKernel, built: BuildResult) -> str | None:
        """Return why it is wrong on the two smallest anchors, or at a sample of the largest's rows."""
        smallest, largest = self.anchors[:2], [a for a in self.anchors[-1:] if a not in self.anchors[:2]]
        error = self.device.check(micro_kernel, built, smallest, math.inf)
        if error is not None or not largest:
            return error
        return self.device.check(micro_kernel, built, largest, _MAX_SAMPLED_FLOPS)

    def reopened(self) -> set[AnyMicroKernel]:
        """Return micro-kernels that were pruned for another job and could win among these instances."""
        known = self.store.records.measurements.values()
        return {m.micro_kernel for m in known if m.pruned and not self._is_hopeless(m)}

    def _is_hopeless(self, measured: Measurement) -> bool:
        kernel = measured.micro_kernel
        if self.pruning is None or measured.points[0] != self._probe(kernel, measured.facts):
            return False
        return self.pruning.is_hopeless(self.pruning.reached(kernel, measured.points[:1], measured.secs[:1]))

    def _learn(self, measurement: Measurement) -> None:
        """Compare later candidates with this one."""
        if self.pruning is not None and measurement.usable:
            self.pruning.note(
                self.pruning.reached(measurement.micro_kernel, measurement.points, measurement.secs)
            )


def _measured(
    failed: Measurement, points: Sequence[Point], results: Sequence[RunResult], built: BuildResult
) -> Measurement:
    """Return the measurement of all results; that of the first error where there is one."""
    for result in results:
        if result.error is not None:
            return replace(failed, error=result.error)
    return replace(
        failed,
        points=tuple(dict(point) for point in points),
        secs=tuple(secs for result in results for secs in result.secs),
        build_secs=round(built.secs, 4),
        drift=max(result.drift for result in results),
        attempts=max(result.attempts for result in results),
    )
