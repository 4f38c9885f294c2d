"""Counts against brute force, fits against what made the times."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from batched import BATCHED, LIMITS, TARGET
from hypothesis import given, settings
from hypothesis import strategies as st

from dietcode.cost_model.cpu.counts import count
from dietcode.cost_model.cpu.fitting import fit_all
from dietcode.cost_model.cpu.model import (
    EXPOSED,
    CountedWaves,
    LocalModel,
    TermRates,
    _work,
    fit_together,
    terms_of,
)
from dietcode.cost_model.model import cost_array
from dietcode.errors import CandidateError, TuningError
from dietcode.measure.records import Measurement, Records
from dietcode.search_space.cpu.limits import MicroKernel
from dietcode.search_space.problem import Problem

DENSE = Problem(
    **(
        vars(BATCHED)
        | {"batch": (), "indices": {"X": "mk", "W": "nk", "Y": "mn"}, "extents": dict.fromkeys("mnk")}
    )
)
TILE = MicroKernel(6, 16)


def arrays(**extents: Any) -> dict[str, Any]:
    return {letter: np.atleast_1d(np.asarray(value, dtype=np.int64)) for letter, value in extents.items()}


def largest_load(b: int, rows: int, columns: int, num_cores: int, has_batch: bool) -> int:
    return min(
        math.ceil(b / pb) * math.ceil(rows / pr) * math.ceil(columns / pc)
        for pb, pr, pc in itertools.product(range(1, num_cores + 1), repeat=3)
        if pb * pr * pc == num_cores and (has_batch or pb == 1)
    )


@given(st.integers(1, 6), st.integers(1, 50), st.integers(1, 70), st.integers(1, 64))
@settings(deadline=None)
def test_counts(b: int, m: int, n: int, k: int) -> None:
    counts = count(BATCHED, TILE, LIMITS, arrays(b=b, m=m, n=n, k=k))
    tiles = list(itertools.product(range(b), range(0, m, 6), range(0, n, 16)))
    padded = sum(row + 6 > m or column + 16 > n for _, row, column in tiles)
    assert counts.flops[0] == 2 * b * m * n * k
    assert counts.padded_flops[0] == 2 * len(tiles) * 6 * 16 * k
    assert counts.tiles[0] == len(tiles) / 4
    assert counts.padded_tiles[0] == padded / 4
    assert counts.reduction[0] == k
    load = largest_load(b, -(-m // 6), -(-n // 16), 4, True)
    assert counts.imbalance[0] == pytest.approx(load / (len(tiles) / 4))
    assert 0 < counts.f_pad[0] <= 1
    assert counts.imbalance[0] >= 1 - 1e-12
    assert counts.visits[0] > 0


def test_visits_of_whole_blocks() -> None:
    """Half of L2 holds 8192 floats: with K = 128, ten tiles of six rows; columns are split four ways."""
    counts = count(DENSE, TILE, LIMITS, arrays(m=[6, 60, 66, 600], n=64 * 16, k=128))
    assert counts.visits.tolist() == [16, 16, 32, 160]


def test_many_instances_are_counted_as_each_alone() -> None:
    extents = arrays(m=np.arange(1, 40), n=np.full(39, 50), k=np.full(39, 9))
    together = count(DENSE, TILE, LIMITS, extents)
    for i in (0, 5, 38):
        alone = count(DENSE, TILE, LIMITS, {k: v[i : i + 1] for k, v in extents.items()})
        for name in vars(together):
            assert getattr(together, name)[i] == getattr(alone, name)[0]


COEFFICIENTS = np.array([3e-6, 2e-10, 4e-9, 5e-8, 3e-8, 8e-9, 5e-9])  # as of a core at 3 GHz
HZ = 3e9
RNG = np.random.default_rng(0)
POINTS = tuple(
    {"m": int(m), "n": int(n), "k": int(k)}
    for m, n, k in zip(
        RNG.integers(1, 400, 40), RNG.integers(1, 500, 40), RNG.integers(16, 900, 40), strict=True
    )
)


def times_of(points: tuple[dict[str, int], ...], coefficients: Any, kappa: float) -> tuple[float, ...]:
    counts = count(DENSE, TILE, LIMITS, {k: np.array([p[k] for p in points]) for k in points[0]})
    secs = coefficients[0] + (_work(counts, terms_of(DENSE, TILE)) @ coefficients[1:]) * counts.stretch(kappa)
    return tuple(float(s) for s in secs)


def fitted(points: tuple[dict[str, int], ...], secs: tuple[float, ...], kappa: float) -> LocalModel:
    waves = CountedWaves.of(DENSE, TILE, LIMITS, kappa, points, secs)
    return waves.fit(TermRates.of_all([waves]))


def predicted(model: LocalModel, extents: dict[str, Any], kappa: float) -> Any:
    flops = 2.0 * extents["m"] * extents["n"] * extents["k"]
    return flops / model.predict(DENSE, LIMITS, kappa, extents).throughput


@pytest.mark.parametrize("kappa", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("dropped", [None, 0, 1, 4])
def test_a_fit_predicts_what_made_the_times(kappa: float, dropped: int | None) -> None:
    coefficients = COEFFICIENTS.copy()
    if dropped is not None:
        coefficients[dropped] = 0.0
    model = fitted(POINTS, times_of(POINTS, coefficients, kappa), kappa)
    assert model.fit_error < 2e-3
    others = arrays(m=[1, 37, 1000], n=[1, 64, 3000], k=[20, 50, 2048])
    points = tuple({k: int(v[i]) for k, v in others.items()} for i in range(3))
    found = predicted(model, others, kappa)
    np.testing.assert_allclose(found, times_of(points, coefficients, kappa), rtol=0.02)


def test_a_disturbed_wave_spoils_nothing() -> None:
    """One of forty took twice as long; a fit that believes it is off by percents."""
    secs = np.array(times_of(POINTS, COEFFICIENTS, 0.6))
    at = int(secs.argmax())
    secs[at] *= 2.0
    model = fitted(POINTS, tuple(secs.tolist()), 0.6)
    extents = arrays(**{k: [p[k] for p in POINTS] for k in "mnk"})
    gaps = predicted(model, extents, 0.6) / np.array(times_of(POINTS, COEFFICIENTS, 0.6)) - 1.0
    assert abs(gaps[at]) < 0.01 and np.abs(gaps).max() < 0.02


def test_what_few_waves_leave_open_comes_from_other_micro_kernels() -> None:
    """Two waves say nothing of a tile's begin: a fit of them alone is off where tiles are short."""
    kernels = [MicroKernel(rows, 16) for rows in (4, 5, 6, 7, 8)]
    few = tuple({"m": m, "n": 512, "k": 800} for m in (60, 840))

    def times(kernel: MicroKernel, points: tuple[dict[str, int], ...]) -> Any:
        counts = count(DENSE, kernel, LIMITS, {k: np.array([p[k] for p in points]) for k in "mnk"})
        units = CountedWaves.of(DENSE, kernel, LIMITS, 0.6, points, (1.0,) * len(points)).units
        rates = np.array([0.5, 0.5, 1.0, 4.0, 4.0, 4.0, 5.0])  # of cycles, what arithmetic expects
        terms = _work(counts, terms_of(DENSE, kernel)) * counts.stretch(0.6)[:, None]
        return np.column_stack([np.ones(len(points)), terms]) @ (rates * units / HZ)

    waves = [CountedWaves.of(DENSE, k, LIMITS, 0.6, POINTS, times(k, POINTS).tolist()) for k in kernels[1:]]
    poor = CountedWaves.of(DENSE, kernels[0], LIMITS, 0.6, few, times(kernels[0], few).tolist())
    short = arrays(m=[8, 64], n=[512, 512], k=[20, 20])
    truth = times(kernels[0], tuple({k: int(v[i]) for k, v in short.items()} for i in range(2)))
    gaps = [
        np.abs(predicted(poor.fit(TermRates.of_all(known)), short, 0.6) / truth - 1.0).max()
        for known in ([poor], [*waves, poor])
    ]
    assert gaps[1] < 0.1 < gaps[0]


LAYER = {"n": 2304, "k": 768}  # its panels: 7 MB
FEW_ROWS = tuple({"m": m, **LAYER} for m in (1, 7, 17, 45, 304, 2048))


def streamed_times(kernel: MicroKernel, points: tuple[dict[str, int], ...], per_cycle: float) -> Any:
    """Seconds where panels arrive while tiles compute, at so many elements a cycle: the longer of both."""
    counts = count(DENSE, kernel, LIMITS, {k: np.array([p[k] for p in points]) for k in "mnk"})
    cycles = np.maximum(counts.streamed / per_cycle, counts.step_cycles) * counts.reduction
    return (6000.0 + cycles * counts.stretch(0.6)) / HZ


@pytest.mark.parametrize("per_cycle", [1.0, 2.0, 3.0])
def test_panels_that_arrive_more_slowly_than_tiles_compute(per_cycle: float) -> None:
    """Shapes of few rows take as long as the panels; a sum of both terms is twice as far off there."""
    kernels = [MicroKernel(rows, 16) for rows in (3, 4, 5, 6)]
    waves = [
        CountedWaves.of(DENSE, k, LIMITS, 0.6, FEW_ROWS, streamed_times(k, FEW_ROWS, per_cycle).tolist())
        for k in kernels
    ]
    held_out = tuple({"m": m, **LAYER} for m in (2, 5, 11, 23, 100, 900))
    extents = arrays(**{k: [p[k] for p in held_out] for k in "mnk"})
    rates = TermRates.of_all(waves)
    gaps = [
        max(
            np.abs(predicted(model, extents, 0.6) / streamed_times(k, held_out, per_cycle) - 1.0).max()
            for k, model in zip(kernels, models, strict=True)
        )
        for models in (fit_together(waves), [one.fit(rates) for one in waves])
    ]
    assert gaps[0] < 0.05 and gaps[0] < gaps[1] / 2
    facts = fit_together(waves)[0].to_json()
    assert facts["streamed_elements_per_cycle"] == per_cycle


def test_a_tile_past_an_edge_takes_what_it_writes() -> None:
    """Left-over rows go to the output one by one: a tile with five of them is not as fast as with one."""
    rows = tuple({"m": m, "n": 4096, "k": 16} for m in (1, 3, 6, 11, 60, 240))

    def secs(points: tuple[dict[str, int], ...]) -> Any:
        extents = {k: np.array([p[k] for p in points]) for k in "mnk"}
        counts = count(DENSE, MicroKernel(6, 16), LIMITS, extents)
        edge = np.array([p["m"] % 6 * p["n"] / LIMITS.lanes / LIMITS.num_cores for p in points])
        cycles = counts.step_cycles * counts.reduction + 80.0 * counts.tiles + 40.0 * edge
        return (6000.0 + cycles * counts.stretch(0.6)) / HZ

    waves = CountedWaves.of(DENSE, MicroKernel(6, 16), LIMITS, 0.6, rows, secs(rows).tolist())
    [model] = fit_together([waves])
    held_out = tuple({"m": m, "n": 4096, "k": 16} for m in (2, 4, 5, 7, 12, 17, 100))
    extents = arrays(**{k: [p[k] for p in held_out] for k in "mnk"})
    np.testing.assert_allclose(predicted(model, extents, 0.6), secs(held_out), rtol=0.03)


TAILS = tuple({"m": m, "n": n, "k": 64} for m in (1, 3, 7, 12, 33, 140) for n in (16, 32, 48))


@pytest.mark.parametrize("fmas", [1.0, 2.0])
def test_cores_that_begin_one_fma_a_cycle_and_two_are_told_apart(fmas: float) -> None:
    """Bodies of few rows wait for their additions: with half the units they take no longer."""

    def secs(kernel: MicroKernel, points: tuple[dict[str, int], ...]) -> Any:
        extents = {k: np.array([p[k] for p in points]) for k in "mnk"}
        counts = count(DENSE, kernel, LIMITS, extents, fmas)
        bodies = 80.0 * (counts.tiles - counts.padded_tiles + counts.tail_bodies)
        work = counts.step_cycles * counts.reduction + bodies + 4.0 * counts.written
        return (6000.0 + work * counts.stretch(0.6)) / HZ

    kernels = [MicroKernel(rows, 16, "partition") for rows in (6, 7, 12)]
    waves = [CountedWaves.of(DENSE, k, LIMITS, 0.6, TAILS, secs(k, TAILS).tolist()) for k in kernels]
    models = fit_together(waves)
    assert {model.fmas for model in models} == {fmas}
    assert models[0].to_json()["fmas_per_cycle"] == fmas
    assert {model.fmas for model in fit_together(waves, [3.0 - fmas])} == {3.0 - fmas}  # as measured
    held_out = tuple({"m": m, "n": n, "k": 64} for m in (2, 5, 11, 23) for n in (16, 40))
    extents = arrays(**{k: [p[k] for p in held_out] for k in "mnk"})
    others = [one.with_fmas(3.0 - fmas) for one in waves]
    wrong = [one.fit(TermRates.of_all(others)) for one in others]
    gaps = [
        max(
            np.abs(predicted(m, extents, 0.6) / secs(k, held_out) - 1.0).max()
            for k, m in zip(kernels, found, strict=True)
        )
        for found in (models, wrong)
    ]
    assert gaps[0] < 0.03 and gaps[0] < gaps[1] / 2


def test_no_exposed_cycles_where_tasks_pack_panels_or_waves_fit_without() -> None:
    packed = Problem(**(vars(DENSE) | {"column_operand_constant": False}))
    assert not count(packed, TILE, LIMITS, arrays(m=1, n=2304, k=768)).streamed.any()
    plain = CountedWaves.of(DENSE, TILE, LIMITS, 0.6, POINTS, times_of(POINTS, COEFFICIENTS, 0.6))
    assert EXPOSED not in fit_together([plain])[0].terms
    assert fit_together([]) == []


def test_factors_are_ratios_and_their_product_is_the_cost() -> None:
    no_launch = LocalModel(TILE, COEFFICIENTS * (np.arange(7) > 0), terms_of(DENSE, TILE), 0.0)
    extents = arrays(m=np.arange(1, 65), n=np.full(64, 40), k=np.full(64, 32))
    for kappa in (0.0, 0.5, 1.0):
        factors = no_launch.predict(DENSE, LIMITS, kappa, extents)
        assert (factors.f_spatial <= 1 + 1e-12).all() and (factors.f_spatial > 0).all()
        assert (factors.f_pad <= 1).all() and (factors.f_pad > 0).all()
        product = factors.f_local * factors.f_spatial * factors.f_pad
        np.testing.assert_allclose(factors.throughput, product)
    full = no_launch.predict(DENSE, LIMITS, 1.0, arrays(m=12, n=64, k=32))
    assert full.f_pad[0] == full.f_spatial[0] == 1


def test_few_points_are_fitted_without_negative_terms() -> None:
    model = fitted(POINTS[:2], (1e-3, 1e-6), 0.5)
    assert (model.coefficients >= 0).all()
    assert set(model.to_json()) >= {"launch_secs", "median_fit_error"}


@pytest.mark.parametrize(
    ("points", "secs"),
    [
        ((), ()),
        (POINTS[:1], (0.0,)),
        (POINTS[:1], (math.nan,)),
        (POINTS[:1], (-1.0,)),
        (({"m": 1, "n": 1},), (1.0,)),
        (({"m": 1, "n": 1, "k": 0},), (1.0,)),
        (({"m": 1, "n": 1, "k": 1, "z": 1},), (1.0,)),
    ],
)
def test_no_usable_measurement(points: Any, secs: Any) -> None:
    with pytest.raises(CandidateError, match="no usable measurement"):
        CountedWaves.of(DENSE, TILE, LIMITS, 0.5, points, secs)


def some_records(**kernels: Measurement) -> Records:
    records = Records("w", {"id": "d"}, calibration={"kappa": 0.5})
    records.measurements = {m.micro_kernel: m for m in kernels.values()}
    records.fixed_bytes = 1000
    return records


GOOD = Measurement(TILE, "hardware", POINTS, times_of(POINTS, COEFFICIENTS, 0.5), 5000)
SMALL = Measurement(MicroKernel(1, 8), "hardware", POINTS, times_of(POINTS, COEFFICIENTS * 2, 0.5), 900)


def test_the_array_has_a_column_for_each_usable_micro_kernel() -> None:
    records = some_records(
        good=GOOD,
        small=SMALL,
        failed=Measurement(MicroKernel(2, 8), "hardware", error="ValueError: wrong"),
        unusable=Measurement(MicroKernel(3, 8), "hardware", POINTS[:1], (math.inf,), 1),
        too_large=Measurement(MicroKernel(60, 80), "hardware", POINTS[:1], (1e-9,), 1),
        ragged=Measurement(MicroKernel(2, 12), "hardware", POINTS[:1], (1e-9,), 1),
    )
    found = fit_all(
        DENSE, TARGET, records, arrays(m=[1, 8, 64], n=64, k=[32, 32, 32]) | {"n": np.full(3, 64)}
    )
    assert [m.micro_kernel.name for m in found.models] == ["1x8", "6x16"]
    assert found.throughput.shape == (3, 2)
    assert found.sizes.tolist() == [1, 4000]
    np.testing.assert_array_equal(cost_array(list(found.factors)), found.throughput)
    assert found.flops.tolist() == [2 * 64 * 32 * m for m in (1, 8, 64)]


def test_records_that_are_not_enough() -> None:
    extents = arrays(m=1, n=1, k=1)
    with pytest.raises(TuningError, match="no usable measurement"):
        fit_all(DENSE, TARGET, some_records(), extents)
    records = some_records(good=GOOD)
    records.calibration = None
    with pytest.raises(TuningError, match="no calibration"):
        fit_all(DENSE, TARGET, records, extents)
