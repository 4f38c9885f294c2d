"""Times libraries and single micro-kernels in turns, in the same child process that tuning measures in."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dietcode.backends.cpu.measuring import MeasuringCpu
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.disturbance import Watched, machine_of, spread_of_readings, undisturbed
from dietcode.measure.local import LocalChildren
from dietcode.measure.points import choose_anchors, wave_points
from dietcode.measure.requests import TimeRequest
from dietcode.measure.turns import FEWEST_ROUNDS, Timings
from dietcode.runtime.manifest import CODE, REPORT, read_json, read_manifest
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.forms import problem_from_json
from dietcode.search_space.problem import extents_of, instance_extents
from dietcode.target.cpu import CpuTarget
from dietcode.tuner.report import records_of
from dietcode.workload.instances import make_instances
from dietcode.workload.parse import spec_of

_TIMEOUT_SECS = 120.0
T = TypeVar("T")


class Stand:
    """A library folder, its problem, and a process to time in.

    Attributes
    ----------
    report : dict
        As it was written, predictions included.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.report: dict[str, Any] = read_json(folder / REPORT)
        self.spec = spec_of(read_manifest(folder))
        self.problem = problem_from_json(self.report["problem"])
        self.target = CpuTarget.from_json(self.report["target"])
        self.children = LocalChildren(CpuWorker(self.target.num_cores))
        self._temporary = tempfile.TemporaryDirectory(prefix="dietcode-")
        folder = Path(self._temporary.name)
        self._measuring = MeasuringCpu(self.children, self.problem, self.spec.variables, self.target, folder)

    def __enter__(self) -> Stand:
        return self

    def __exit__(self, *_: object) -> None:
        self.children.close()
        self._temporary.cleanup()

    def extents(self, binding: dict[str, int]) -> dict[str, int]:
        """Extents of every letter of one instance."""
        return extents_of(self.spec, binding)

    def instances(self, wanted: int) -> list[dict[str, Any]]:
        """Rows of the report, evenly over it."""
        rows: list[dict[str, Any]] = self.report["instances"]
        picked = np.unique(np.linspace(0, len(rows) - 1, min(wanted, len(rows))).round().astype(int))
        return [rows[i] for i in picked]

    def seen(self) -> list[bool]:
        """Whether tuning measured anything at each row of the report."""
        measured = {_key(p) for k in self.report["micro_kernels"] for p in k["points"]}
        return [_key(self.extents(row["shape_vars"])) in measured for row in self.report["instances"]]

    def slower(self) -> float:
        """The reference kernel's reading now over its usual one at the calibration."""
        measuring = self._measuring
        measuring.attach(self.report["calibration"])
        return measuring.measurer.read_reference() / float(self.report["calibration"]["reference_secs"])

    def calibrate(self) -> dict[str, Any]:
        """The machine's calibration, now."""
        return self._measuring.calibrate()

    def full_wave(self, kernel: AnyMicroKernel, anchor: dict[str, int]) -> dict[str, int]:
        """The anchor grown to a full wave."""
        return dict(self._measuring.full_wave(kernel, None, anchor))

    def build(self, kernels: Sequence[AnyMicroKernel], folder: Path | None = None) -> dict[str, str]:
        """Libraries of one micro-kernel each, by its name; what does not build is left out."""
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._measuring.folder = folder
        results = self._measuring.build(kernels, "one")
        return {k.name: r.path for k, r in zip(kernels, results, strict=True) if r.path is not None}

    def waves_left_out(self) -> float:
        """Seconds that timing takes of the waves that early pruning left out, as tuning times them."""
        pruned = [m for m in records_of(self.report).measurements.values() if m.pruned]
        extents = instance_extents(self.spec, make_instances(self.spec).columns())
        anchors, secs = choose_anchors(self.problem, extents), 0.0
        self._measuring.attach(self.report["calibration"])
        built = self._measuring.build([m.micro_kernel for m in pruned], "pruned")
        for measurement, result in zip(pruned, built, strict=True):
            grow = partial(self.full_wave, measurement.micro_kernel)
            rest = [p for p in wave_points(grow, anchors) if p not in measurement.points]
            began = time.monotonic()
            timed = self._measuring.time(measurement.micro_kernel, result, rest)
            secs += time.monotonic() - began
            if timed.error is not None:
                raise SystemExit(f"{measurement.micro_kernel.name}: {timed.error}")
        return secs

    def read(self, path: str | None, binding: dict[str, int]) -> float:
        """Seconds of one call of a library, or of this stand's own, at one instance, read as tuning reads."""
        measurer = self._measuring.measurer
        values = tuple(binding[name] for name in self.spec.variables)
        request = TimeRequest(
            self.problem,
            path or str(self.folder / CODE),
            Limits.of(self.target),
            (self.extents(binding),),
            (values,),
            measurer.min_secs,
            measurer.repeats,
            keeps=True,
        )
        (secs,) = self._time(request)
        return secs

    def watched(
        self, measure: Callable[[], T], spread_of: Callable[[T], float] = lambda _: 1.0, repeats: bool = True
    ) -> Watched[T]:
        """As `dietcode.measure.disturbance.undisturbed`, of what this stand's process measures."""
        machine = machine_of(self.target.num_cores, in_children=True)
        return undisturbed(measure, spread_of, machine, repeats)

    def in_turns(self, paths: Mapping[str, str | None], binding: dict[str, int], rounds: int) -> Timings:
        """Median seconds of some libraries at one instance, in turns; measured again where disturbed.

        Parameters
        ----------
        paths : mapping of str to str or None
            As of `read`.
        rounds : int
            Of which the median counts; of fewer than 3 nothing is measured again.
        """

        def measure() -> dict[str, list[float]]:
            readings: dict[str, list[float]] = {name: [] for name in paths}
            for _ in range(rounds):
                for name, path in paths.items():
                    readings[name].append(self.read(path, binding))
            return readings

        watched = self.watched(measure, spread_of_readings, repeats=rounds >= FEWEST_ROUNDS)
        timings = Timings.of(watched.value)
        timings.disturbed = watched.disturbed
        return timings

    def read_points(
        self, path: str, points: Sequence[dict[str, int]], min_secs: float, repeats: int
    ) -> list[float]:
        """Seconds of one call of a library of one micro-kernel at each point, extents of every index."""
        values = ((0,) * len(self.spec.variables),) * len(points)
        limits = Limits.of(self.target)
        return self._time(TimeRequest(self.problem, path, limits, tuple(points), values, min_secs, repeats))

    def _time(self, request: TimeRequest) -> list[float]:
        result = self.children.time(request, _TIMEOUT_SECS)
        if result.error is not None:
            raise SystemExit(f"{request.path}: {result.error}")
        return list(result.secs)


def _key(extents: dict[str, int]) -> str:
    return json.dumps(extents, sort_keys=True)
