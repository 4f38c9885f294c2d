"""A device whose times follow the fake's formula, times a quirk that arithmetic does not know."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.fake_children import FakeCpu
from dietcode.cost_model.cpu.features import CpuEstimator
from dietcode.measure.calibration import REDUCTION, reference_problem
from dietcode.measure.points import choose_anchors, full_wave, wave_points
from dietcode.measure.records import Measurement, Records
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.problem import Problem

LIMITS = Limits(lanes=16, num_registers=32, l2_bytes=2 << 20, num_cores=2)


def dense(num_columns: int = 512, reduction: int = 256) -> Problem:
    """``Y[m, n] = Σ X[m, k] · W[n, k]`` with dynamic m."""
    problem = reference_problem()
    return Problem(**{**vars(problem), "extents": {"m": None, "n": num_columns, "k": reduction}})


def extents_of(problem: Problem, rows: list[int]) -> dict[str, np.ndarray]:
    fixed = {k: v for k, v in problem.extents.items() if v is not None}
    return {"m": np.asarray(rows)} | {k: np.full(len(rows), v) for k, v in fixed.items()}


def tall_tiles_are_slow(kernel: MicroKernel) -> float:
    return 1.5 if kernel.rows > 5 else 1.0


def secs(
    problem: Problem, kernel: MicroKernel, point: dict[str, int], quirk: Callable[[MicroKernel], float]
) -> float:
    return quirk(kernel) * FakeCpu().secs(problem, kernel, LIMITS, point)


def calibration() -> dict[str, Any]:
    """Measured with the reference kernel, as a real run's."""
    problem, tile = reference_problem(), LIMITS.narrow_tile()
    counts = range(1, 9)
    points = [{"m": tile.rows, "n": n * tile.columns, "k": REDUCTION} for n in counts]
    flops = 2.0 * tile.rows * tile.columns * REDUCTION / 1e9
    gflops = [
        n * flops / FakeCpu().secs(problem, tile, LIMITS, p) for n, p in zip(counts, points, strict=True)
    ]
    return {"kappa": 1.0, "num_tiles": list(counts), "tile_gflops": gflops, "reference_secs": 1e-4}


def device() -> CpuEstimator:
    return CpuEstimator.of(LIMITS, calibration())


def measured(
    problem: Problem,
    kernels: list[MicroKernel],
    rows: list[int],
    quirk: Callable[[MicroKernel], float] = lambda kernel: 1.0,
) -> Records:
    """Records of some micro-kernels, every wave measured."""
    anchors = choose_anchors(problem, extents_of(problem, rows))
    records = Records("sha256:fake", {"id": "fake"}, calibration=calibration())
    for kernel in kernels:
        points = tuple(wave_points(partial(full_wave, problem, kernel), anchors))
        times = tuple(secs(problem, kernel, point, quirk) for point in points)
        records.measurements[kernel] = Measurement(kernel, "hardware", points, times)
    return records


def known_waves(problem: Problem, records: Records) -> tuple[Problem, Records, CpuEstimator]:
    """As `gather` takes a workload."""
    assert records.calibration is not None
    return problem, records, CpuEstimator.of(LIMITS, records.calibration)


def all_tiles() -> list[MicroKernel]:
    tiles = [MicroKernel(r, 16 * v) for r in range(1, 31) for v in range(1, 16)]
    return [tile for tile in tiles if LIMITS.holds(tile)]
