"""The cost model of attention: counts, fit, estimate, features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_libraries import spec_data

from dietcode.cost_model.cpu.attention import (
    FEATURES,
    FORM,
    TERMS,
    AttentionEstimator,
    count_attention,
)
from dietcode.cost_model.cpu.bandwidth import Bandwidth
from dietcode.cost_model.learned import columns_of, gather
from dietcode.measure.records import Measurement, Records
from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cpu.attention.micro_kernel import AttentionKernel
from dietcode.search_space.cpu.limits import Limits
from dietcode.target.cpu import resolve_target
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import TargetSpec

CALIBRATION = {
    "kappa": 0.9,
    "num_tiles": [1, 2, 3, 4],
    "tile_gflops": [50.0, 99.0, 99.0, 120.0],
    "reference_secs": 1e-3,
}
KERNELS = (
    AttentionKernel(1, 64),
    AttentionKernel(4, 64, 16),
    AttentionKernel(1, 64, serial=True),
    AttentionKernel(1, 64, split=True),
)
SHAPES = (
    (1, 1, 1),
    (1, 30, 30),
    (2, 100, 100),
    (1, 1, 2000),
    (8, 1, 700),
    (8, 250, 250),
    (1, 512, 512),
    (8, 512, 512),
)
POINTS = [{"b": b, "h": 3, "q": q, "k": k, "d": 64} for b, q, k in SHAPES]


def problem_of(**attributes: Any) -> AttentionProblem:
    graph = {
        "S": {"einsum": ["Q", "K"], "dims": "bhqk"},
        "P": {"softmax": "S", "axis": "k", **attributes},
        "O": {"einsum": ["P", "V"], "dims": "bhqd"},
    }
    data = spec_data("case", op={"block": {"version": 1, "graph": graph, "outputs": ["O"]}})
    del data["output"]
    data["tensors"] = {n: {"dims": f"bh{i}d", "dtype": "float32"} for n, i in zip("QKV", "qkk", strict=True)}
    data["shape_vars"] = {name: {"min": 1, "max": 4096} for name in "BLC"}
    data["dims"] = {"b": "B", "h": 3, "q": "L", "k": "C", "d": 64}
    return AttentionProblem.of_spec(spec_from_data(data))


@pytest.fixture(scope="module")
def target() -> Any:
    return resolve_target(TargetSpec(kind="llvm", mcpu="skylake-avx512", num_cores=2))


def true_secs(problem: Any, kernel: AttentionKernel, limits: Limits, points: list[dict[str, int]]) -> Any:
    counts = count_attention(problem, kernel, limits, columns_of(points))
    coefficients = np.array([5e-8, 6e-7, 1e-8, 8e-9, 1.2])
    return 1e-6 + counts.work(Bandwidth.of(CALIBRATION)) @ coefficients * counts.stretch(0.9)


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
    limits, point = Limits.of(target), columns_of([{"b": 1, "h": 3, "q": 10, "k": 130, "d": 64}])
    counts = count_attention(problem_of(), AttentionKernel(4, 64, 2), limits, point)
    assert counts.tiles[0] == 3 * 3 / 2  # three tiles of at most four queries, on two cores
    assert counts.blocks[0] == 3 * 3 * 3 / 2  # three blocks of at most 64 keys
    assert counts.keys[0] == 3 * 3 * 130 / 2
    assert counts.copied[0] == 3 * 2 * 130 / 2  # once for each two tiles
    assert counts.imbalance[0] == pytest.approx(5 / 4.5)
    assert counts.padded_flops[0] / counts.flops[0] == pytest.approx(12 / 10 * 192 / 130)
    narrow = count_attention(problem_of(), AttentionKernel(4, 16, 2), limits, point)
    assert narrow.padded_flops[0] / narrow.flops[0] == pytest.approx(12 / 10 * 144 / 130)
    causal = count_attention(problem_of(causal="q"), AttentionKernel(4, 64, 2), limits, point)
    assert causal.keys[0] == pytest.approx(3 * 3 * (130 - 4.5) / 2)
    one = columns_of([{"b": 1, "h": 3, "q": 1, "k": 2048, "d": 64}])
    whole, split = (count_attention(problem_of(), KERNELS[i], limits, one).imbalance[0] for i in (0, 3))
    assert whole == pytest.approx(4 / 3) and split == 1  # 12 segments


def test_the_fit_predicts_what_it_never_saw(target: Any) -> None:
    problem, limits = problem_of(), Limits.of(target)
    fresh = [{"b": 3, "h": 3, "q": 200, "k": 200, "d": 64}, {"b": 1, "h": 3, "q": 1, "k": 900, "d": 64}]
    fitted = FORM.fit(problem, target, records(target, problem), columns_of(fresh))
    assert [model.micro_kernel for model in fitted.models] == sorted(KERNELS, key=lambda k: k.order)
    for index, model in enumerate(fitted.models):
        secs = fitted.flops / fitted.throughput[:, index]
        assert np.allclose(secs, true_secs(problem, model.micro_kernel, limits, fresh), rtol=0.05)
        factors = fitted.factors[index]
        launch = model.to_json()["launch_secs"]
        whole = launch + fitted.flops / (factors.f_local * factors.f_spatial * factors.f_pad)
        assert np.allclose(whole, secs, rtol=1e-3)  # the product of the three, and the launch
        assert set(model.to_json()) == {"launch_secs", *TERMS, "median_fit_error"}
        assert model.fit_error < 0.02


def test_estimates_and_features(target: Any) -> None:
    problem = problem_of()
    estimator = AttentionEstimator.of(Limits.of(target), CALIBRATION)
    points = [{"b": 1, "h": 3, "q": n, "k": n, "d": 64} for n in (1, 16, 128, 512)]
    for kernel in KERNELS:
        table, secs = estimator.features(problem, kernel, columns_of(points))
        assert table.shape == (4, len(FEATURES)) and np.isfinite(table).all()
        assert np.all(np.diff(secs) > 0) and np.all(secs < 1)
        assert np.array_equal(secs, estimator.estimate(problem, kernel, columns_of(points)))
    single, tall = (estimator.estimate(problem, kernel, columns_of(points)) for kernel in KERNELS[:2])
    assert tall[-1] < single[-1] and single[0] < tall[0]
    causal = estimator.estimate(problem_of(causal="q"), KERNELS[1], columns_of(points))
    assert causal[-1] < 0.7 * tall[-1]


def test_rows_to_learn_from(target: Any) -> None:
    problem = problem_of()
    estimator = AttentionEstimator.of(Limits.of(target), CALIBRATION)
    waves = gather([(problem, records(target, problem), estimator)])
    assert waves is not None and waves.num_micro_kernels == len(KERNELS)
    assert waves.features.shape[1] == len(FEATURES)
