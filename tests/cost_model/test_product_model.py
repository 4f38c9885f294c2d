"""The cost model of blocks with products: counts, fit, estimate, features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_libraries import block_data

from dietcode.cost_model.cpu.products import FEATURES, FORM, TERMS, ProductEstimator, count_products
from dietcode.cost_model.learned import columns_of, gather
from dietcode.measure.records import Measurement, Records
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.products.loops import loops_of
from dietcode.search_space.cpu.products.micro_kernel import ProductKernel
from dietcode.search_space.cpu.products.space import allows, seeds, tiles
from dietcode.search_space.products.problem import ProductProblem
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
KERNELS = (ProductKernel(1, 32), ProductKernel(6, 32), ProductKernel(2, 16, serial=True))
ROWS = (1, 3, 8, 20, 64, 100, 128, 500)


@pytest.fixture(scope="module")
def problem() -> ProductProblem:
    """SwiGLU and a norm: two sets of accumulators, 100 columns over 40 of a reduction."""
    graph = {
        "A": {"einsum": ["X", "W"], "dims": "mn"},
        "B": {"einsum": ["X", "V"], "dims": "mn"},
        "G": {"silu": "A"},
        "S": {"mul": ["G", "B"]},
        "Y": {"rmsnorm": "S", "axis": "n"},
    }
    tensors = {
        "X": {"dims": "mk", "dtype": "float32"},
        "W": {"dims": "nk", "dtype": "float32", "constant": True},
        "V": {"dims": "nk", "dtype": "float32"},
    }
    dims = {"m": "M", "n": 100, "k": 40}
    data = block_data("case", graph, ["Y"], tensors=tensors, dims=dims)
    return ProductProblem.of_spec(spec_from_data(data))


@pytest.fixture(scope="module")
def target() -> Any:
    return resolve_target(TargetSpec(kind="llvm", mcpu="skylake-avx512", num_cores=2))


def points(*rows: int) -> list[dict[str, int]]:
    return [{"m": m, "n": 100, "k": 40} for m in rows]


def true_secs(problem: Any, kernel: ProductKernel, limits: Limits, where: list[dict[str, int]]) -> Any:
    counts = count_products(problem, kernel, limits, columns_of(where))
    coefficients = np.array([2e-10, 1e-11, 3e-8, 1e-10, 2e-9])
    return 1e-6 + counts.work() @ coefficients * counts.stretch(KAPPA)


def records(target: Any, problem: Any) -> Records:
    limits, found = Limits.of(target), Records("sha256:x", {"target": target.to_json()})
    found.calibration = dict(CALIBRATION)
    for kernel in KERNELS:
        secs = tuple(float(s) for s in true_secs(problem, kernel, limits, points(*ROWS)))
        found.measurements[kernel] = Measurement(
            kernel, "hardware", points=tuple(points(*ROWS)), secs=secs, object_bytes=1000
        )
    return found


def test_counts(problem: Any, target: Any) -> None:
    counts = count_products(problem, ProductKernel(6, 32), Limits.of(target), columns_of(points(10)))
    assert counts.tiles[0] == 2 * 4 / 2  # two tiles of rows, four of columns, on two cores
    assert counts.depth[0] == 80  # both products
    assert counts.multiply_adds[0] == 4 * 6 * 2 * 80
    assert counts.flops[0] / counts.padded_flops[0] == pytest.approx(1000 / (12 * 128))
    assert counts.packed[0] == 40 * 100 / 2  # V alone
    assert counts.after[0] == 10 * 7 / 2  # 100 columns in vectors of 16
    # mul and silu of each element, and rmsnorm: square, mean, mul of each; add and rsqrt of each row
    assert counts.flops[0] == 1000 * (2 * 80 + 2 + 3) + 10 * 2


def test_the_fit_predicts_what_it_never_saw(problem: Any, target: Any) -> None:
    limits, fresh = Limits.of(target), points(5, 77, 900)
    fitted = FORM.fit(problem, target, records(target, problem), columns_of(fresh))
    assert [model.micro_kernel for model in fitted.models] == sorted(KERNELS, key=lambda k: k.order)
    for index, model in enumerate(fitted.models):
        secs = fitted.flops / fitted.throughput[:, index]
        assert np.allclose(secs, true_secs(problem, model.micro_kernel, limits, fresh), rtol=0.02)
        factors = fitted.factors[index]
        whole = model.coefficients[0] + fitted.flops / (factors.f_local * factors.f_spatial * factors.f_pad)
        assert np.allclose(whole, secs, rtol=0.02)
        assert set(model.to_json()) == {"launch_secs", *TERMS, "median_fit_error"}


def test_estimates_and_features(problem: Any, target: Any) -> None:
    estimator = ProductEstimator.of(Limits.of(target), CALIBRATION)
    for kernel in KERNELS:
        where = columns_of(points(12, 120, 1200))
        table, secs = estimator.features(problem, kernel, where)
        assert table.shape == (3, len(FEATURES)) and np.isfinite(table).all()
        assert np.all(np.diff(secs) > 0) and np.all(secs < 1)
        assert np.array_equal(secs, estimator.estimate(problem, kernel, where))
    waves = gather([(problem, records(target, problem), estimator)])
    assert waves is not None and waves.num_micro_kernels == 3 and waves.features.shape[1] == len(FEATURES)


def test_the_space_fits_the_registers(problem: Any, target: Any) -> None:
    limits = Limits.of(target)
    kernels = tiles(problem, limits)
    assert kernels and set(seeds(problem, limits)) <= set(kernels)
    for kernel in kernels:
        vectors = kernel.columns // 16
        for loop in loops_of(problem, kernel.rows, vectors, limits.num_registers):
            sums = kernel.rows * vectors * loop.num_accumulators
            assert sums + vectors + 1 <= limits.num_registers, kernel.name
    assert not allows(problem, ProductKernel(1, 20), limits)
