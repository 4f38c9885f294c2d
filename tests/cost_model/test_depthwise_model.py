"""The cost model of depthwise convolutions: counts, fit, estimate, features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dietcode.cost_model.cpu.bandwidth import Bandwidth
from dietcode.cost_model.cpu.depthwise import (
    FEATURES,
    FORM,
    TERMS,
    DepthwiseEstimator,
    count_depthwise,
)
from dietcode.cost_model.learned import columns_of
from dietcode.measure.records import Measurement, Records
from dietcode.search_space.cpu.depthwise.micro_kernel import DepthwiseKernel
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.depthwise import DepthwiseProblem, depthwise_from_spec
from dietcode.target.cpu import resolve_target
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import TargetSpec

KAPPA = 0.9
CALIBRATION = {
    "kappa": KAPPA,
    "num_tiles": [1, 2, 3, 4],
    "tile_gflops": [50.0, 99.0, 99.0, 120.0],
    "reference_secs": 1e-3,
}
KERNELS = (DepthwiseKernel(4, 32), DepthwiseKernel(7, 16, strips=True), DepthwiseKernel(4, 32, serial=True))
SHAPES = ((1, 7), (1, 14), (2, 20), (1, 56), (4, 33), (8, 56), (8, 112), (16, 112))


@pytest.fixture(scope="module")
def problem() -> DepthwiseProblem:
    found = depthwise_from_spec(
        spec_from_data(
            {
                "name": "depthwise",
                "op": {"conv2d": {"padding": 1, "groups": 100}},
                "tensors": {
                    "X": {"dims": "nhwc", "dtype": "float32"},
                    "F": {"dims": "oirs", "dtype": "float32", "constant": True},
                },
                "shape_vars": {"N": {"min": 1, "max": 16}, "P": {"min": 1, "max": 112}},
                "dims": {"n": "N", "h": "P", "w": "P", "c": 100, "o": 100, "i": 1, "r": 3, "s": 3},
            }
        )
    )
    assert isinstance(found, DepthwiseProblem)
    return found


@pytest.fixture(scope="module")
def target() -> Any:
    return resolve_target(TargetSpec(kind="llvm", mcpu="skylake-avx512", num_cores=2))


def point(problem: DepthwiseProblem, images: int, width: int) -> dict[str, int]:
    fixed = {k: v for k, v in problem.extents.items() if v is not None}
    return {"n": images, "h": width, "w": width, "p": width, "q": width} | fixed


def edges_by_hand(width: int, tile: int) -> float:
    """Tiles of a 3×3 window with padding 1 that are not inside, counted one by one."""
    begins = range(0, width, tile)
    inside = [
        0 < y < width - 1 and b > 0 and b + tile <= width and b + tile + 1 <= width
        for y in range(width)
        for b in begins
    ]
    return 1.0 - sum(inside) / len(inside)


@pytest.mark.parametrize("width", [1, 3, 4, 7, 8, 9, 14, 16, 57])
def test_counts(problem: DepthwiseProblem, target: Any, width: int) -> None:
    limits, tile = Limits.of(target), 4
    counts = count_depthwise(
        problem, DepthwiseKernel(tile, 32), limits, columns_of([point(problem, 2, width)])
    )
    row_tiles, lines = -(-width // tile), 2 * width
    assert counts.tiles[0] == lines * row_tiles * 4 / 2  # 7 vectors of 100 channels in tiles of two
    assert counts.products[0] == lines * row_tiles * tile * 7 * 9 / 2
    assert counts.at_edges[0] == pytest.approx(edges_by_hand(width, tile))
    assert counts.flops[0] == 2 * 9 * 100 * lines * width
    assert counts.padded_flops[0] == pytest.approx(2 * 9 * 112 * lines * row_tiles * tile)
    assert counts.num_bytes[0] == 4 * (2 * lines * width * 100 + 9 * 100)


def true_secs(problem: Any, kernel: DepthwiseKernel, limits: Limits, points: list[dict[str, int]]) -> Any:
    counts = count_depthwise(problem, kernel, limits, columns_of(points))
    coefficients = np.array([4e-9, 3e-10, 1e-10, 1.2])
    assert len(coefficients) == len(TERMS)
    return 1e-6 + counts.work(Bandwidth.of(CALIBRATION)) @ coefficients * counts.stretch(KAPPA)


def test_fit_finds_what_it_was_given(problem: DepthwiseProblem, target: Any) -> None:
    limits, found = Limits.of(target), Records("sha256:x", {"target": target.to_json()})
    points = [point(problem, *shape) for shape in SHAPES]
    found.calibration = dict(CALIBRATION)
    old = MicroKernel(4, 32)  # of records from before this form
    for kernel in (*KERNELS, old):
        like = KERNELS[0] if kernel is old else kernel
        secs = tuple(float(s) for s in true_secs(problem, like, limits, points))
        found.measurements[kernel] = Measurement(
            kernel, "hardware", points=tuple(points), secs=secs, object_bytes=1000
        )
    others = [point(problem, *shape) for shape in ((1, 9), (3, 40), (12, 100))]
    fitted = FORM.fit(problem, target, found, columns_of(others))
    kernels = [model.micro_kernel for model in fitted.models]
    assert set(kernels) == set(KERNELS)
    for column, kernel in enumerate(kernels):
        expected = fitted.flops / true_secs(problem, kernel, limits, others)
        assert fitted.throughput[:, column] == pytest.approx(expected, rel=1e-3)


def test_estimate_and_features(problem: DepthwiseProblem, target: Any) -> None:
    estimator = DepthwiseEstimator.of(Limits.of(target), CALIBRATION)
    extents = columns_of([point(problem, *shape) for shape in SHAPES])
    plain, strips, serial = (estimator.estimate(problem, kernel, extents) for kernel in KERNELS)
    assert (np.diff(plain) > 0).all() and (strips > 0).all()
    assert serial[0] < plain[0] and serial[-1] > plain[-1]
    table, estimate = estimator.features(problem, KERNELS[1], extents)
    assert table.shape == (len(SHAPES), len(FEATURES)) and np.isfinite(table).all()
    assert np.array_equal(estimate, strips)
    by_name = dict(zip((feature.name for feature in FEATURES), table.T, strict=True))
    assert by_name["has_strips"].all() and (by_name["rows"] == 7).all()
    assert not estimator.allows(problem, MicroKernel(4, 32))
