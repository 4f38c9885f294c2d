"""The learned f_local on a device with a known law."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_device import (
    LIMITS,
    all_tiles,
    dense,
    device,
    extents_of,
    known_waves,
    measured,
    tall_tiles_are_slow,
)

from dietcode.cost_model.cpu import features as features_module
from dietcode.cost_model.cpu.features import FEATURES, VERSION, CpuEstimator
from dietcode.cost_model.cuda.features import FEATURES as GPU_FEATURES
from dietcode.cost_model.cuda.features import VERSION as GPU_VERSION
from dietcode.cost_model.learned import gather, joined, learn, missed
from dietcode.cost_model.model import Feature
from dietcode.measure.records import Records
from dietcode.search_space.cpu.limits import MicroKernel
from dietcode.search_space.problem import Problem

ROWS = list(range(1, 513))


@pytest.mark.parametrize(
    ("features", "version", "page"),
    [(FEATURES, VERSION, "method.md"), (GPU_FEATURES, GPU_VERSION, "cuda.md")],
    ids=["cpu", "gpu"],
)
def test_each_feature_has_a_meaning_a_unit_and_a_rule(
    features: tuple[Feature, ...], version: int, page: str
) -> None:
    names = [feature.name for feature in features]
    assert len(set(names)) == len(names)
    assert all(feature.unit and feature.rule for feature in features)
    docs = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    assert f"(version {version})" in docs
    for feature in features:
        assert f"| `{feature.name}` | {feature.unit} | {feature.rule} |" in docs


def test_features_counted_by_hand() -> None:
    """12x32 on m = 25, n = 512, k = 256: three rows of sixteen tiles, one of them past the edge."""
    problem, kernel = dense(), MicroKernel(12, 32)
    estimator = CpuEstimator(LIMITS, 1.0, 4e11, 0.0)
    table, estimate = estimator.features(problem, kernel, extents_of(problem, [25]))
    found = dict(zip([feature.name for feature in FEATURES], table[0].tolist(), strict=True))
    assert found["rows"] == 12
    assert found["vectors"] == 2
    assert found["accumulators"] == 24
    assert found["register_share"] == pytest.approx(27 / 32)
    assert found["loads_per_fma"] == pytest.approx(14 / 24)
    assert found["cycles_per_fma"] == pytest.approx(0.5)
    assert found["log_reduction"] == 8
    assert found["log_tiles"] == pytest.approx(np.log2(3 * 16 / 2))
    assert found["tail_share"] == pytest.approx(1 / 3)
    assert found["log_batch"] == found["packed_per_flop"] == found["stages"] == 0
    assert found["reduction_is_last"] == 1
    assert found["row_stride_aliases"] == 0
    assert [found[f"is_{tails}"] for tails in ("partition", "global", "checked")] == [0, 0, 0]
    cycles_per_sec = 4e11 / (2 * 64)  # as many FMAs a cycle as the reference kernel, on two cores
    assert estimate[0] == pytest.approx(24 * (256 * 12 + 80) / cycles_per_sec)
    assert found["log_estimate"] == pytest.approx(np.log2(estimate[0]), rel=1e-5)


def test_the_launch_is_found_in_the_calibration() -> None:
    assert device().launch_secs == pytest.approx(2e-6, rel=0.05), (
        "what the fake device takes for an empty call"
    )


def test_a_small_tile_is_estimated_by_the_latency_of_its_chains() -> None:
    problem, extents = dense(), extents_of(dense(), [64])
    some = CpuEstimator(LIMITS, 1.0, 4e11, 0.0)
    _, one = some.features(problem, MicroKernel(1, 16), extents)
    _, eight = some.features(problem, MicroKernel(8, 16), extents)
    assert features_module.step_cycles(MicroKernel(1, 16), 16) == 4
    assert features_module.step_cycles(MicroKernel(8, 16), 16) == 4.5, "eight FMAs and nine loads"
    assert one[0] / eight[0] == pytest.approx(8 * (4 * 256 + 80) / (4.5 * 256 + 80))


def test_what_tasks_pack_and_the_bodies_of_tails_are_estimated() -> None:
    some, extents = CpuEstimator(LIMITS, 1.0, 4e11, 0.0), extents_of(dense(), [3])
    _, ahead = some.features(dense(), MicroKernel(8, 32, "partition"), extents)
    varying = replace(dense(), column_operand_constant=False)
    _, packs = some.features(varying, MicroKernel(8, 32, "partition"), extents)
    cycles_per_sec = 4e11 / (2 * 64)
    assert packs[0] - ahead[0] == pytest.approx(512 * 256 / 2 / 4 / cycles_per_sec), "four elements a cycle"
    bodies = 2 * 8  # of each core: three rows are a body of two and one of one, in eight tiles of columns
    assert ahead[0] == pytest.approx(bodies * (256 * 4 + 80) / cycles_per_sec), "chains of few accumulators"


@pytest.fixture(scope="module")
def tiles() -> tuple[list[MicroKernel], list[MicroKernel]]:
    """Twenty-four to learn from, and the others."""
    order = np.random.default_rng(3).permutation(len(all_tiles()))
    shuffled = [all_tiles()[i] for i in order]
    return shuffled[:24], shuffled[24:]


def alone(workload: Problem, later: Records) -> float:
    """Median error of the estimate without a model, a common factor taken out."""
    waves = gather([known_waves(workload, later)])
    assert waves is not None
    return float(np.expm1(np.median(np.abs(waves.log_ratio - np.median(waves.log_ratio)))))


def test_it_learns_what_arithmetic_does_not_know(tiles: tuple[list[MicroKernel], list[MicroKernel]]) -> None:
    known, unknown = tiles
    problem = dense()
    model = learn(gather([known_waves(problem, measured(problem, known, ROWS, tall_tiles_are_slow))]))
    assert model is not None
    later = measured(problem, unknown, ROWS, tall_tiles_are_slow)
    error = missed(model, problem, device(), list(later.measurements.values()))
    assert error is not None
    assert error < 0.6 * alone(problem, later)
    predicted, spread = model.predict(problem, unknown, device(), extents_of(problem, [300]))
    assert predicted.shape == (1, len(unknown))
    assert spread.shape == (len(unknown),)
    assert (spread >= model.error).all()


def test_its_error_is_what_it_misses_by(tiles: tuple[list[MicroKernel], list[MicroKernel]]) -> None:
    known, unknown = tiles
    problem = dense()
    model = learn(gather([known_waves(problem, measured(problem, known, ROWS, tall_tiles_are_slow))]))
    assert model is not None
    later = list(measured(problem, unknown, ROWS, tall_tiles_are_slow).measurements.values())
    median = missed(model, problem, device(), later)
    assert median is not None
    assert 0 < median < 2 * model.error
    assert missed(model, problem, device(), []) is None


def test_another_workload_of_the_device_is_foretold(
    tiles: tuple[list[MicroKernel], list[MicroKernel]],
) -> None:
    first, second = dense(512, 256), dense(768, 512)
    known = measured(first, [*tiles[0], *tiles[1]], ROWS, tall_tiles_are_slow)
    model = learn(gather([known_waves(first, known)]))
    assert model is not None
    later = measured(second, tiles[1][:8], ROWS, tall_tiles_are_slow)
    error = missed(model, second, device(), list(later.measurements.values()))
    assert error is not None
    assert error < 0.6 * alone(second, later)


def test_the_same_waves_give_the_same_model(tiles: tuple[list[MicroKernel], list[MicroKernel]]) -> None:
    problem = dense()
    waves = gather([known_waves(problem, measured(problem, tiles[0], ROWS))])
    at = extents_of(problem, [1, 100])
    one, two, other = learn(waves, 0), learn(waves, 0), learn(waves, 1)
    assert one is not None and two is not None and other is not None
    results = [m.predict(problem, tiles[1], device(), at)[0] for m in (one, two, other)]
    assert (results[0] == results[1]).all()
    assert (results[0] != results[2]).any()


def test_a_few_micro_kernels_are_too_few_to_learn_from() -> None:
    problem = dense()
    assert gather([]) is None
    assert learn(None) is None
    assert learn(gather([known_waves(problem, measured(problem, all_tiles()[:3], ROWS))])) is None


def test_waves_of_two_workloads_are_counted_apart() -> None:
    first, second = dense(512), dense(768)
    one = gather([known_waves(first, measured(first, all_tiles()[:5], ROWS))])
    two = gather([known_waves(second, measured(second, all_tiles()[:5], ROWS))])
    both = joined(one, two)
    assert both is not None and one is not None
    assert both.num_micro_kernels == 10, "a tile of another workload is another micro-kernel"
    assert both.num_workloads == 2
    assert joined(one, None) is one
