"""Compiling and measuring one batch of micro-kernels on a GPU; each is on record as soon as it is known."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from dietcode.errors import CandidateError, TuningError
from dietcode.measure.gpu_children import GpuChildren
from dietcode.measure.records import Measurement, RecordsStore
from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cuda.launches import call_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text, facts_of
from dietcode.search_space.problem import Problem
from dietcode.target.cubin import KernelFacts
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin

_TIMEOUT_SECS = 120.0  # of one micro-kernel; the first one of a process waits for float64 on the CPU
_MAX_CHECKED_FLOPS = 1e10
Point = Mapping[str, int]


@dataclass(frozen=True)
class Built:
    """A micro-kernel's machine code, and what it takes; or why there is none."""

    cubin: bytes = b""
    kernels: dict[str, KernelFacts] = field(default_factory=dict)
    error: str | None = None


def build(problem: Problem, tile: CudaMicroKernel, text: str, target: CudaTarget) -> Built:
    """Compile the text of one micro-kernel; what does not fit in registers is an error too."""
    try:
        cubin = compile_cubin(text, target)
        kernels = facts_of(cubin, problem, [tile], tile.name)
    except (CandidateError, TuningError) as error:
        return Built(error=str(error))
    spilled = max(facts.stack_bytes for facts in kernels.values())
    return Built(cubin, kernels, f"spills {spilled} bytes a thread" if spilled else None)


def request_of(
    problem: Problem,
    tile: CudaMicroKernel,
    cubin: bytes,
    points: Sequence[Point],
    *,
    is_timed: bool = True,
    keeps: bool = True,
    max_checked_flops: float = _MAX_CHECKED_FLOPS,
) -> dict[str, Any]:
    """What `dietcode.measure.gpu_worker.measure_kernel` takes."""
    return {
        "problem": problem,
        "cubin": cubin,
        "calls": [call_of(problem, tile, point) for point in points],
        "is_timed": is_timed,
        "keeps": keeps,
        "max_checked_flops": max_checked_flops,
    }


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
    children: GpuChildren

    def measure(self, batch: Sequence[Candidate], out_of_time: Callable[[], bool]) -> Iterator[Measurement]:
        """Measure in order, while those that come next are compiled."""
        with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:  # what launches needs a core
            builds: list[Future[Built]] = []
            for candidate in batch:
                tile = candidate.micro_kernel
                text = cuda_text(self.problem, [tile], self.target)
                builds.append(pool.submit(build, self.problem, tile, text, self.target))
            try:
                for candidate, built in zip(batch, builds, strict=True):
                    measurement, more = self._measure_one(candidate, built.result())
                    self.store.append(measurement.to_json() | more)
                    yield measurement
                    if out_of_time():
                        return
            finally:
                for future in builds:
                    future.cancel()

    def _measure_one(self, candidate: Candidate, built: Built) -> tuple[Measurement, dict[str, Any]]:
        """A measurement, and what its line says beside it."""
        tile = candidate.micro_kernel
        failed = Measurement(tile, candidate.provenance)
        if built.error is not None:
            return replace(failed, error=built.error), {}
        smallest = float(self.problem.flops(dict(self.points[0])))
        checked = max(_MAX_CHECKED_FLOPS, smallest)
        request = request_of(self.problem, tile, built.cubin, self.points, max_checked_flops=checked)
        found = self.children.run("measure_kernel", request, _TIMEOUT_SECS)
        if isinstance(found, str):
            return replace(failed, error=found), {}
        facts = KernelFacts(
            found["registers"],
            built.kernels[tile.symbol].shared_bytes,
            found["stack_bytes"],
            sum(kernel.code_bytes for kernel in built.kernels.values()),
        )
        points = tuple(dict(call.extents) for call in request["calls"])
        measured = replace(failed, points=points, secs=tuple(found["secs"]), facts=facts)
        return measured, {"max_error": found["max_error"], "resident_blocks": found["resident_blocks"]}
