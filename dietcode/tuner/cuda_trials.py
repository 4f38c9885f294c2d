"""Compiling and measuring one batch of micro-kernels on a GPU; each is on record as soon as it is known."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dietcode.measure.children import Children
from dietcode.measure.gpu_worker import CudaRecipe, KernelCall
from dietcode.measure.records import Measurement, RecordsStore
from dietcode.measure.requests import BuildRequest, BuildResult, CheckRequest, TimeRequest
from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import Problem
from dietcode.target.cubin import KernelFacts
from dietcode.target.cuda import CudaTarget

MIN_SECS, READINGS = 2e-3, 5  # as the GPU benchmark has them
_TIMEOUT_SECS = 120.0  # of one micro-kernel; the first one of a process waits for float64 on the CPU
_MAX_CHECKED_FLOPS = 1e10  # of a call: larger ones are timed alone, float64 on the CPU would take too long
Point = Mapping[str, int]


@dataclass
class CudaTrials:
    """Measures candidates into a store.

    Parameters
    ----------
    problem : Problem
        As `dietcode.search_space.cuda.lowering.device_problem` gives it.
    points : sequence of dict of str to int
        Extents to time every candidate at, the smallest first.
    """

    problem: Problem
    target: CudaTarget
    points: Sequence[Point]
    store: RecordsStore
    children: Children

    def measure(self, batch: Sequence[Candidate], out_of_time: Callable[[], bool]) -> Iterator[Measurement]:
        """Measure in order, while those that come next are compiled."""
        with tempfile.TemporaryDirectory(prefix="dietcode-") as folder:
            requests = [build_request(self.problem, c.micro_kernel, self.target, folder) for c in batch]
            for candidate, built in zip(batch, self.children.build(requests), strict=True):
                measurement, more = self._measure_one(candidate, built)
                self.store.append(measurement.to_json() | more)
                yield measurement
                if out_of_time():
                    return

    def _measure_one(self, candidate: Candidate, built: BuildResult) -> tuple[Measurement, dict[str, Any]]:
        """A measurement, and what its line says beside it."""
        failed = Measurement(candidate.micro_kernel, candidate.provenance)
        if built.path is None:
            return replace(failed, error=built.error), {}
        call = KernelCall(candidate.micro_kernel)
        points = tuple({index: int(point[index]) for index in self.problem.extents} for point in self.points)
        most = max(_MAX_CHECKED_FLOPS, float(self.problem.flops(dict(points[0]))))
        small = tuple(point for point in points if self.problem.flops(dict(point)) <= most)
        checked = self.children.check(CheckRequest(self.problem, built.path, call, small), _TIMEOUT_SECS)
        if checked.error is not None:
            return replace(failed, error=checked.error), {}
        request = TimeRequest(self.problem, built.path, call, points, (), MIN_SECS, READINGS, keeps=True)
        timed = self.children.time(request, _TIMEOUT_SECS)
        if timed.error is not None:
            return replace(failed, error=timed.error), {}
        facts = KernelFacts(
            timed.facts["registers"],
            built.facts["kernels"][candidate.micro_kernel.symbol].shared_bytes,
            timed.facts["stack_bytes"],
            built.object_bytes,
        )
        measured = replace(failed, points=points, secs=timed.secs, facts=facts)
        return measured, {
            "max_error": checked.max_error,
            "resident_blocks": timed.facts["resident_blocks"],
        }


def build_request(problem: Problem, tile: CudaMicroKernel, target: CudaTarget, folder: str) -> BuildRequest:
    """What compiles one micro-kernel to a cubin in a folder."""
    return BuildRequest(str(Path(folder) / f"{tile.name}.cubin"), CudaRecipe(problem, tile, target))
