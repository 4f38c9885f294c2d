"""The cost model of row blocks: counts, fit, estimate, features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_libraries import block_data

from dietcode.cost_model.cpu.bandwidth import Bandwidth
from dietcode.cost_model.cpu.rows import FEATURES, FORM, TERMS, RowEstimator, count_rows
from dietcode.cost_model.learned import columns_of, gather
from dietcode.errors import TuningError
from dietcode.measure.records import Measurement, Records
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.rows.micro_kernel import RowKernel
from dietcode.search_space.rows.problem import RowProblem
from dietcode.target.cpu import resolve_target
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import TargetSpec

KAPPA = 0.9
NODES = {
    "layernorm": ({"layernorm": ["X", "gamma", "beta"], "axis": "n"}, {"X": "mn", "gamma": "n", "beta": "n"}),
    "softmax": ({"softmax": ["X", "mask"], "axis": "n", "scale": 0.5}, {"X": "mn", "mask": "n"}),
}
CALIBRATION = {
    "kappa": KAPPA,
    "num_tiles": [1, 2, 3, 4],
    "tile_gflops": [50.0, 99.0, 99.0, 120.0],
    "reference_secs": 1e-3,
}
KERNELS = (RowKernel(1, 64), RowKernel(4, 64), RowKernel(1, 64, serial=True))
SHAPES = ((1, 100), (8, 100), (15, 40), (64, 768), (300, 768), (1000, 768), (2000, 1600), (4096, 4096))
POINTS = [{"m": m, "n": n} for m, n in SHAPES]


def problem_of(name: str) -> RowProblem:
    node, tensors = NODES[name]
    data = block_data(
        name,
        {"Y": node},
        ["Y"],
        tensors={tensor: {"dims": dims, "dtype": "float32"} for tensor, dims in tensors.items()},
        shape_vars={"M": {"min": 1, "max": 4096}, "N": {"min": 1, "max": 4096}},
        dims={"m": "M", "n": "N"},
    )
    return RowProblem.of_spec(spec_from_data(data))


@pytest.fixture(scope="module")
def target() -> Any:
    return resolve_target(TargetSpec(kind="llvm", mcpu="skylake-avx512", num_cores=2))


def true_secs(problem: Any, kernel: RowKernel, limits: Limits, points: list[dict[str, int]]) -> Any:
    counts = count_rows(problem, kernel, limits, columns_of(points))
    coefficients = np.array([2e-8, 3e-9, 1e-9, 1.2])
    return 1e-6 + counts.work(Bandwidth.of(CALIBRATION)) @ coefficients * counts.stretch(KAPPA)


def records(target: Any, problem: Any) -> Records:
    limits, found = Limits.of(target), Records("sha256:x", {"target": target.to_json()})
    found.calibration = dict(CALIBRATION)
    for kernel in KERNELS:
        secs = tuple(float(s) for s in true_secs(problem, kernel, limits, POINTS))
        found.measurements[kernel] = Measurement(
            kernel, "hardware", points=tuple(POINTS), secs=secs, object_bytes=1000
        )
    return found


def test_counts(target: Any) -> None:
    problem, limits = problem_of("layernorm"), Limits.of(target)
    counts = count_rows(problem, RowKernel(4, 64), limits, columns_of([{"m": 10, "n": 100}]))
    assert counts.groups[0] == 2  # two of four rows and two single ones, on two cores
    assert counts.vectors[0] == 10 * 7 / 2  # 100 columns in vectors of 16
    assert counts.tails[0] == 10 * 3 / 2  # three vectors past one step of four
    assert counts.left_over[0] == 0.2
    assert counts.flops[0] / counts.padded_flops[0] == pytest.approx(100 / 112)
    assert counts.num_bytes[0] == 4 * (2 * 10 * 100 + 200)
    assert counts.imbalance[0] == pytest.approx(2 / 1.5)  # three groups of at most four rows
    serial = count_rows(problem, RowKernel(4, 64, serial=True), limits, columns_of([{"m": 10, "n": 100}]))
    assert serial.imbalance[0] == 1 and serial.vectors[0] == 70


def test_the_fit_predicts_what_it_never_saw(target: Any) -> None:
    problem, limits = problem_of("layernorm"), Limits.of(target)
    fresh = [{"m": 33, "n": 200}, {"m": 2048, "n": 1024}]
    fitted = FORM.fit(problem, target, records(target, problem), columns_of(fresh))
    assert [model.micro_kernel for model in fitted.models] == sorted(KERNELS, key=lambda k: k.order)
    for index, model in enumerate(fitted.models):
        secs = fitted.flops / fitted.throughput[:, index]
        assert np.allclose(secs, true_secs(problem, model.micro_kernel, limits, fresh), rtol=0.02)
        factors = fitted.factors[index]
        whole = 1e-6 + fitted.flops / (factors.f_local * factors.f_spatial * factors.f_pad)
        assert np.allclose(whole, secs, rtol=1e-3)  # the product of the three, and the launch
        assert set(model.to_json()) == {"launch_secs", *TERMS, "median_fit_error"}
        assert model.fit_error < 0.01


def test_records_without_a_calibration_are_refused(target: Any) -> None:
    problem = problem_of("layernorm")
    known = records(target, problem)
    known.calibration = None
    with pytest.raises(TuningError, match="no calibration"):
        FORM.fit(problem, target, known, columns_of(POINTS))


def test_estimates_and_features(target: Any) -> None:
    problem = problem_of("softmax")
    copies = {"bandwidth": {"bytes": [1 << 16, 1 << 22, 1 << 24], "bytes_per_sec": [1e11, 1e11, 2e9]}}
    estimator = RowEstimator.of(Limits.of(target), CALIBRATION | copies)
    points = [{"m": 24 * q, "n": q} for q in (1, 16, 128, 512)]
    for kernel in KERNELS:
        table, secs = estimator.features(problem, kernel, columns_of(points))
        assert table.shape == (4, len(FEATURES)) and np.isfinite(table).all()
        assert np.all(np.diff(secs) > 0) and np.all(secs < 1)
        assert np.array_equal(secs, estimator.estimate(problem, kernel, columns_of(points)))
    keeps_none = RowKernel(1, 64, "none")
    again = estimator.estimate(problem, keeps_none, columns_of(points))
    usual = estimator.estimate(problem, KERNELS[0], columns_of(points))
    assert again[1] > usual[1]  # exponentials twice
    assert again[-1] == usual[-1]  # memory takes longer than either


def test_rows_to_learn_from(target: Any) -> None:
    problem = problem_of("layernorm")
    estimator = RowEstimator.of(Limits.of(target), CALIBRATION)
    waves = gather([(problem, records(target, problem), estimator)])
    assert waves is not None and waves.num_micro_kernels == 3 and waves.features.shape[1] == len(FEATURES)
