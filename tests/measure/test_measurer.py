"""`Measurer` over fake children: disturbed readings, failures, calibration."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.fake_children import FakeChildren, FakeCpu, Fault
from dietcode.backends.cpu.measuring import MeasuringCpu
from dietcode.cost_model.cpu.counts import count
from dietcode.errors import TuningError
from dietcode.measure import calibration as calibration_module
from dietcode.measure import measurer as measurer_module
from dietcode.measure.calibration import (
    attach_reference,
    fit_kappa,
    fmas_of,
    reference_problem,
)
from dietcode.measure.formats.cpu import CPU
from dietcode.measure.measurer import Measurer
from dietcode.measure.points import choose_anchors, choose_between, choose_of_kinds, full_wave, wave_points
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.target.cpu import CpuTarget
from dietcode.target.fma import FMAS

TARGET = CpuTarget("haswell", (), ("avx2",), 4, 32, 16, 32 << 10, 512 << 10)
PROBLEM = reference_problem()
POINTS = [{"m": 60, "n": 320, "k": 512}, {"m": 61, "n": 320, "k": 512}]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurer_module.time, "sleep", lambda secs: None)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tuple[FakeChildren, MeasuringCpu]]:
    def build(target: CpuTarget = TARGET, **options: Any) -> tuple[FakeChildren, MeasuringCpu]:
        fake = FakeChildren(**options)
        return fake, MeasuringCpu(fake, PROBLEM, ("T",), target, tmp_path)

    return build


def attach(measuring: MeasuringCpu, base_secs: float | None = None) -> tuple[str, Measurer]:
    """The path of the reference kernel, and what reads it; `base_secs` is its reading at a calibration."""
    reference = measuring.reference
    extents = reference.reading
    then = None if base_secs is None else {"reference_secs": base_secs, "reference_extents": extents}
    return attach_reference(measuring.measurer, reference, then), measuring.measurer


def built(measuring: MeasuringCpu, rows: int = 6, columns: int = 16) -> str:
    (result,) = measuring.build([MicroKernel(rows, columns)], "one")
    assert result.path is not None
    return result.path


def test_an_undisturbed_reading_is_taken_as_it_is(make: Any) -> None:
    _, measuring = make()
    _, measurer = attach(measuring)
    result = measurer.time(built(measuring), POINTS)
    assert result.secs == tuple(expected_secs())
    assert (result.drift, result.attempts, result.error) == (1.0, 1, None)


def test_a_disturbed_batch_is_repeated(make: Any) -> None:
    """Readings 7, 8 and 9 are the reference, the kernel and the reference again."""
    fake, measuring = make(disturbed={7: 2.0, 8: 2.0, 9: 2.0})
    _, measurer = attach(measuring)
    result = measurer.time(built(measuring), POINTS)
    assert result.attempts == 2
    assert (result.drift, result.disturbed) == (1.0, pytest.approx(1.0))
    assert fake.timed == ["6x16", "6x16"]


def expected_secs() -> list[float]:
    return [FakeCpu().secs(PROBLEM, MicroKernel(6, 16), Limits.of(TARGET), point) for point in POINTS]


def test_a_slow_drift_is_scaled_away(make: Any) -> None:
    _, measuring = make(disturbed=dict.fromkeys(range(7, 100), 1.08))
    _, measurer = attach(measuring)
    result = measurer.time(built(measuring), POINTS)
    assert (result.attempts, result.drift) == (1, pytest.approx(1.08))
    assert result.secs == pytest.approx(expected_secs())


def test_a_slow_time_that_is_over_scales_nothing(make: Any) -> None:
    """It is usual as long as the readings of it are most of the last ones."""
    _, measuring = make(disturbed=dict.fromkeys(range(7 + 12 * 3), 1.25))
    _, other = make()
    _, other = attach(other)
    _, measurer = attach(measuring, other.usual_reference_secs)
    path = built(measuring)
    drifts = [measurer.time(path, POINTS).drift for _ in range(13)]
    assert drifts[:12] == pytest.approx([1.25] * 12)
    assert measurer.usual_reference_secs == pytest.approx(1.25 * other.usual_reference_secs)
    assert drifts[12] == pytest.approx(1.0)


def test_what_stays_disturbed_is_not_flattered(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rests: list[float] = []
    monkeypatch.setattr(measurer_module.time, "sleep", rests.append)
    _, measuring = make(disturbed=dict.fromkeys(range(7, 100), 1.5))
    _, measurer = attach(measuring)
    usual = measurer.usual_reference_secs
    result = measurer.time(built(measuring), POINTS)
    assert result.attempts == 4
    assert rests == pytest.approx([0.2, 0.4, 0.6]), "nobody waits for the last attempt"
    assert measurer.usual_reference_secs == pytest.approx(usual)
    assert result.disturbed == pytest.approx(1.5)
    assert all(1 <= got / right <= 1.5 for got, right in zip(result.secs, expected_secs(), strict=True))


def test_a_spike_beside_the_batch_does_not_scale_it(make: Any) -> None:
    """Only the reference readings before each batch are slow."""
    _, measuring = make(disturbed={7: 1.5, 10: 1.5, 13: 1.5, 16: 1.5})
    _, measurer = attach(measuring)
    result = measurer.time(built(measuring), POINTS)
    assert result.secs == pytest.approx(expected_secs())


def test_the_least_disturbed_batch_counts(make: Any) -> None:
    factors = [1.6, 1.6, 1.6, 1.2, 1.2, 1.2, 1.8, 1.8, 1.8, 1.9, 1.9, 1.9]
    _, measuring = make(disturbed=dict(enumerate(factors, start=7)))
    _, measurer = attach(measuring)
    result = measurer.time(built(measuring), POINTS)
    assert result.disturbed == pytest.approx(1.2, rel=0.01)
    assert result.secs == pytest.approx([secs * 1.2 / result.drift for secs in expected_secs()])


def test_a_machine_that_flickers_is_read_five_times(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading is slow by chance, the reference kernel's and a batch's alike."""
    rests: list[float] = []
    monkeypatch.setattr(measurer_module.time, "sleep", rests.append)
    factors = np.exp(np.random.default_rng(0).normal(0.4, 0.15, 2000)).tolist()
    _, measuring = make(disturbed=dict(enumerate(factors)))
    _, other = make()
    _, other = attach(other)
    _, measurer = attach(measuring, other.usual_reference_secs)
    assert measurer.flickers
    path = built(measuring)
    results = [measurer.time(path, POINTS) for _ in range(40)]
    assert {result.attempts for result in results} == {5} and not rests
    assert np.median([result.drift for result in results]) == pytest.approx(np.exp(0.4), rel=0.05)
    off = np.log([result.secs[0] for result in results]) - np.log(expected_secs()[0])
    assert abs(off.mean()) < 0.05
    assert off.std() < 0.12  # of one reading beside one of the reference kernel: 0.18


def test_a_machine_that_has_flickered_is_read_so_from_then_on(make: Any) -> None:
    """It is steady again, and half as fast: this is scaled as it is, not as far as is believed elsewhere."""
    factors = np.exp(np.random.default_rng(0).normal(0.0, 0.15, 30)).tolist()
    _, measuring = make(disturbed=dict(enumerate([*factors, *[2.0] * 2000])))
    _, other = make()
    _, other = attach(other)
    _, measurer = attach(measuring, other.usual_reference_secs)
    path = built(measuring)
    for _ in range(10):
        result = measurer.time(path, POINTS)
    assert (result.attempts, result.drift) == (5, pytest.approx(2.0))
    assert result.secs == pytest.approx(expected_secs())


def test_a_process_that_begins_slowly_does_not_flicker(make: Any) -> None:
    _, measuring = make(disturbed={0: 2.0, 1: 1.2})
    _, measurer = attach(measuring)
    assert not measurer.flickers
    assert measurer.time(built(measuring), POINTS).attempts == 1


def test_spells_longer_than_a_batch_are_no_flickering(make: Any) -> None:
    slow = {reading: 1.5 for reading in range(1000) if reading // 12 % 2}
    _, measuring = make(disturbed=slow)
    _, measurer = attach(measuring)
    path = built(measuring)
    for _ in range(20):
        assert measurer.time(path, POINTS).secs == pytest.approx(expected_secs())
        assert not measurer.flickers


@pytest.mark.parametrize("stage", ["crash", "error"])
def test_an_error_on_a_machine_that_flickers_is_the_candidates(make: Any, stage: Any) -> None:
    factors = np.exp(np.random.default_rng(0).normal(0.0, 0.15, 200)).tolist()
    _, measuring = make(disturbed=dict(enumerate(factors)), faults={"6x16": Fault("time", stage)})
    _, measurer = attach(measuring)
    assert measurer.flickers
    result = measurer.time(built(measuring), POINTS)
    assert result.error and result.secs == () and result.attempts == 1


@pytest.mark.parametrize("kind", ["crash", "hang", "error"])
@pytest.mark.parametrize("stage", ["build", "check", "time"])
def test_an_error_costs_one_candidate(stage: Any, kind: Any, make: Any) -> None:
    _, measuring = make(faults={"6x16": Fault(stage, kind)})
    _, measurer = attach(measuring)
    bad, good = measuring.build([MicroKernel(6, 16), MicroKernel(4, 24)], "candidate")
    assert good.error is None
    if stage == "build":
        assert bad.path is None
        assert bad.error
    else:
        checked = measurer.check(bad.path, POINTS)
        timed = measurer.time(bad.path, POINTS)
        assert bool(checked) == (stage == "check")
        assert bool(timed.error) == (stage == "time")
        assert (timed.secs == ()) == (stage == "time")
    assert measurer.check(good.path, POINTS) is None
    assert measurer.time(good.path, POINTS).error is None


def test_without_a_working_reference_nothing_is_measured(make: Any) -> None:
    _, measuring = make()
    path, measurer = attach(measuring)
    measurer.children._kernels.pop(path)
    with pytest.raises(TuningError, match="reference kernel does not run"):
        measurer.time(built(measuring), POINTS)


@pytest.mark.parametrize("factor", [0.8, 1.2])
def test_times_are_scaled_to_the_speed_of_the_calibration(make: Any, factor: float) -> None:
    """The machine runs at another speed than when it was calibrated, and stays there."""
    _, measuring = make(disturbed=dict.fromkeys(range(100), factor))
    _, other = make()
    _, other = attach(other)
    _, measurer = attach(measuring, other.usual_reference_secs)
    result = measurer.time(built(measuring), POINTS)
    assert (result.attempts, result.drift) == (1, pytest.approx(factor))
    assert result.secs == pytest.approx(expected_secs())


def test_a_machine_that_is_busy_from_the_start_is_told_from_a_slow_one(make: Any) -> None:
    _, measuring = make(disturbed=dict.fromkeys(range(100), 3.0))
    _, other = make()
    _, other = attach(other)
    _, measurer = attach(measuring, other.usual_reference_secs)
    assert measurer.usual_reference_secs == pytest.approx(1.3 * other.usual_reference_secs)
    assert measurer.time(built(measuring), POINTS).disturbed == pytest.approx(3.0 / 1.3)


@pytest.mark.parametrize("fmas", [1.0, 2.0])
@pytest.mark.parametrize("noise", [0.8, 1.0, 1.25])
def test_the_fmas_of_a_cycle_follow_from_a_tile_of_one_accumulator(
    make: Any, fmas: float, noise: float
) -> None:
    """Its steps take the latency, whatever the core has; those of a whole tile do not."""
    _, measuring = make()
    kernel = measuring.reference
    step = kernel.rows * kernel.columns / kernel.lanes / fmas * 1e-9
    many = kernel.many["m"] / kernel.rows * kernel.many["k"] * step
    chain = noise * kernel.chain["m"] * kernel.chain["k"] * 4e-9
    assert fmas_of(kernel, many, chain) == fmas


def test_the_fmas_of_a_cycle_are_kept_with_a_calibration(make: Any) -> None:
    _, measuring = make()
    facts = measuring.calibrate()
    assert facts["fmas_per_cycle"] == FMAS[0]  # of the fake's cores
    _, resumed = make()
    assert resumed.recalibrate(facts | {"fmas_per_cycle": 1.0})["fmas_per_cycle"] == 1.0
    _, resumed = make()
    earlier = {key: value for key, value in facts.items() if key != "fmas_per_cycle"}
    assert "fmas_per_cycle" not in resumed.recalibrate(earlier)


@pytest.mark.parametrize(("num_slow", "factor"), [(20, 1.0), (100, 1.6)])
def test_a_busy_moment_is_no_calibration(make: Any, num_slow: int, factor: float) -> None:
    """What runs beside the first readings may end; a machine that stays slow is taken as it is."""
    _, other = make()
    earlier = other.calibrate()
    _, measuring = make(disturbed=dict.fromkeys(range(num_slow), 1.6))
    now = measuring.recalibrate(earlier)
    assert now["reference_secs"] == pytest.approx(factor * earlier["reference_secs"])
    assert measuring.measurer.base_secs == now["reference_secs"]
    assert max(now["tile_gflops"]) == pytest.approx(max(earlier["tile_gflops"]) / factor)


@pytest.mark.parametrize(("registers", "vector_bytes"), [(16, 32), (32, 64)])
def test_the_reference_waits_for_no_cache(make: Any, registers: int, vector_bytes: int) -> None:
    """What is read from a cache has the speed that others leave it: each panel is used by several tiles."""
    target = replace(TARGET, num_vector_registers=registers, vector_bytes=vector_bytes)
    _, measuring = make(target)
    facts = measuring.calibrate()
    extents, tile = facts["reference_extents"], Limits.of(target).narrow_tile()
    assert measuring.measurer.reference[2] == extents
    counts = count(PROBLEM, tile, Limits.of(target), {k: np.array([v]) for k, v in extents.items()})
    assert counts.imbalance[0] == 1 and counts.f_pad[0] == 1 and counts.tiles[0] == 16 * counts.visits[0]
    assert 4 * extents["k"] * (tile.rows + tile.columns) <= target.l1_bytes
    own = extents["k"] * (extents["m"] + extents["n"] / target.num_cores)
    assert 4 * own <= target.l2_bytes / 2


@pytest.mark.parametrize(("factor", "kept"), [(1.04, 1.04), (1.4, 1.0)])
def test_a_slow_moment_before_the_sweep_is_no_calibration(make: Any, factor: float, kept: float) -> None:
    """All times of a workload would be scaled by it."""
    _, quiet = make()
    usual = quiet.calibrate()["reference_secs"]
    _, measuring = make(disturbed=dict.fromkeys(range(7), factor))
    assert measuring.calibrate()["reference_secs"] == pytest.approx(kept * usual)
    assert measuring.measurer.base_secs == pytest.approx(kept * usual)


def test_a_sweep_whose_cores_did_not_run_side_by_side_is_read_again(make: Any) -> None:
    """All readings of the first seven sweeps have one speed, whatever their grid."""

    class Shared(FakeChildren):
        def time(self, request: Any, timeout_secs: float) -> Any:
            result = super().time(request, timeout_secs)
            if len(request.points) > 1 and self.num_calls["time"] <= 14:
                return replace(result, secs=tuple(1e-6 * point["n"] for point in request.points))
            return result

    fake = Shared()
    _, measuring = make()
    measuring.measurer.children = fake
    assert measuring.calibrate()["kappa"] == pytest.approx(1.0, abs=1e-2)
    assert fake.num_calls["time"] == 7 + 2 * 7 + 2 * 7  # and seven pairs of readings for FMAs


def test_a_machine_that_is_seldom_fast_is_read_for_as_long_as_is_asked(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each grid has its first fast reading in another sweep, the last one in the thirteenth."""

    class Shared(FakeChildren):
        def time(self, request: Any, timeout_secs: float) -> Any:
            result = super().time(request, timeout_secs)
            number = self.num_calls["time"] - 7
            if len(request.points) > 1:
                slow = [1.0 if (number + i) % 13 == 0 else 1.8 for i in range(len(result.secs))]
                return replace(result, secs=tuple(s * f for s, f in zip(result.secs, slow, strict=True)))
            return result

    clock = itertools.count()
    monkeypatch.setattr(calibration_module.time, "monotonic", lambda: float(next(clock)))
    fake = Shared()
    _, measuring = make()
    _, quiet = make()
    wanted = quiet.calibrate()
    measuring.measurer.children = fake
    found = calibration_module.calibrate(measuring.measurer, measuring.reference, least_secs=3.0)
    assert found["kappa"] == pytest.approx(wanted["kappa"], abs=1e-2)
    assert found["tile_gflops"] == pytest.approx(wanted["tile_gflops"])
    assert fake.num_calls["time"] == 7 + 3 * 7 + 3 * 2 * 7


@pytest.mark.parametrize("again", [False, True])
def test_a_machine_that_flickers_is_calibrated_by_medians(make: Any, again: bool) -> None:
    """Each reading is slow by chance; what is measured later is scaled to how slow it is mostly."""

    class Flickering(FakeChildren):
        rng = np.random.default_rng(0)

        def time(self, request: Any, timeout_secs: float) -> Any:
            result = super().time(request, timeout_secs)
            slow = np.exp(self.rng.normal(0.4, 0.15, len(result.secs)))
            return replace(result, secs=tuple(float(s) for s in np.multiply(result.secs, slow)))

    _, quiet = make()
    wanted = quiet.calibrate()
    _, measuring = make()
    measuring.measurer.children = Flickering()
    found = measuring.recalibrate(wanted) if again else measuring.calibrate()
    assert found["kappa"] == pytest.approx(wanted["kappa"], abs=0.1)
    assert found["fmas_per_cycle"] == wanted["fmas_per_cycle"]
    assert found["reference_secs"] == pytest.approx(np.exp(0.4) * wanted["reference_secs"], rel=0.06)
    assert measuring.measurer.base_secs == found["reference_secs"]


def test_a_sweep_that_stays_so_is_taken_after_some_seconds(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota of CPU time, or cores that share their units."""
    _, measuring = make(device=FakeCpu(0.1))
    fake, clock = measuring.children, itertools.count()
    monkeypatch.setattr(calibration_module.time, "monotonic", lambda: float(next(clock)))
    assert measuring.calibrate()["kappa"] == pytest.approx(0.1, abs=1e-2)
    assert fake.num_calls["time"] == 7 + 6 * 7 + 2 * 7


@pytest.mark.parametrize("flickers", [False, True])
def test_a_short_budget_is_not_spent_on_noisy_sweeps(make: Any, flickers: bool) -> None:
    _, measuring = make(device=FakeCpu(0.1))
    measuring.measurer.flickers = flickers
    sweeps = []
    time_problem = measuring.measurer.time_problem
    measuring.measurer.time_problem = lambda *given: sweeps.append(given) or time_problem(*given)
    assert measuring.calibrate(0.0)["kappa"] == pytest.approx(0.1, abs=0.05)
    assert len(sweeps) == 7 + 7 + 2 * 7, "seven of the reference, of the sweep, and of both steps of FMAs"


def test_an_earlier_calibration_is_read_as_it_was_made(make: Any) -> None:
    """Before it told the extents of a reading these were a row of tiles, at first of eight waves."""
    _, measuring = make()
    facts = measuring.calibrate()
    before = {key: value for key, value in facts.items() if key != "reference_extents"}
    row, other = measuring.reference.point, {"m": 12, "n": 64, "k": 256}
    for told, read in (
        ({"reference_tiles": 6}, row(6)),
        ({}, row(TARGET.num_cores * 8)),
        ({"reference_extents": other}, other),
    ):
        _, resumed = make()
        resumed.attach(before | told)
        assert resumed.measurer.reference[2] == read
        assert resumed.recalibrate(before | told) is None, "of another reading"
        assert resumed.recalibrate(facts)["reference_extents"] == facts["reference_extents"]


@pytest.mark.parametrize("kappa", [0.0, 0.3, 0.7, 1.0])
def test_calibration_finds_kappa(kappa: float, make: Any) -> None:
    _, measuring = make(device=FakeCpu(kappa))
    calibration = measuring.calibrate()
    assert calibration["kappa"] == pytest.approx(kappa, abs=1e-3)
    assert calibration["num_tiles"] == list(range(1, 17))
    assert calibration["reference_secs"] == measuring.measurer.usual_reference_secs > 0
    assert CPU.calibration(json.loads(json.dumps(calibration))) == calibration


def test_kappa_is_one_on_one_core(make: Any) -> None:
    _, measuring = make(CpuTarget(**(vars(TARGET) | {"num_cores": 1})))
    assert measuring.calibrate()["kappa"] == 1.0


@pytest.mark.parametrize("num_cores", [2, 3, 8])
@pytest.mark.parametrize("kappa", [0.0, 0.25, 0.9, 1.0])
def test_kappa_of_a_sweep(num_cores: int, kappa: float) -> None:
    n = np.arange(1, 4 * num_cores + 1)
    padded = np.ceil(n / num_cores) * num_cores
    secs = 3e-6 + 5e-6 * ((1 - kappa) * n + kappa * padded)
    assert fit_kappa(tuple(n), list(secs), num_cores) == pytest.approx(kappa, abs=1e-6)


def test_anchors_span_the_work() -> None:
    extents = {"m": np.arange(1, 129), "n": np.full(128, 64), "k": np.full(128, 32)}
    anchors = choose_anchors(PROBLEM, extents)
    assert len(anchors) == 5
    assert sorted(a["m"] for a in anchors)[0] == 1
    assert max(a["m"] for a in anchors) == 128
    one = {index: values[:1] for index, values in extents.items()}
    assert choose_anchors(PROBLEM, one) == [{"m": 1, "n": 64, "k": 32}]


def test_waves_are_full_and_as_they_are() -> None:
    anchors = [{"m": 12, "n": 64, "k": 32}, {"m": 13, "n": 64, "k": 32}]
    points = wave_points(partial(full_wave, PROBLEM, MicroKernel(6, 16)), anchors)
    assert [p["m"] for p in points] == [12, 18, 13]


def test_two_instances_of_each_kind_are_chosen_beside_the_anchors() -> None:
    """Of 1…128 all anchors but the largest are odd or twice an odd number."""
    m = np.arange(1, 129)
    extents = {"m": m, "n": np.full(128, 64), "k": np.full(128, 32)}
    kinds = np.where(m % 8 == 0, 8, np.where(m % 4 == 0, 4, 0))
    anchors = [p["m"] for p in choose_anchors(PROBLEM, extents)]
    more = [p["m"] for p in choose_of_kinds(PROBLEM, extents, kinds)]
    assert not set(more) & set(anchors)
    for kind in (0, 4, 8):
        own = [value for value in (*anchors, *more) if kinds[value - 1] == kind]
        assert len(own) >= 2 and max(own) > 2 * min(own)
    assert len(more) <= 4
    alike = choose_of_kinds(PROBLEM, extents, np.zeros(128, dtype=np.int64))
    assert alike == []
    rare = np.where(m == 77, 1, 0)
    assert [p["m"] for p in choose_of_kinds(PROBLEM, extents, rare)] == [77]


def test_leaders_are_read_between_the_anchors() -> None:
    extents = {"m": np.arange(1, 513), "n": np.full(512, 64), "k": np.full(512, 32)}
    anchors = [p["m"] for p in choose_anchors(PROBLEM, extents)]
    between = [p["m"] for p in choose_between(PROBLEM, extents)]
    in_gaps = [sum(low < m < high for m in between) for low, high in itertools.pairwise(anchors)]
    assert in_gaps == [2, 3, 3, 3] and sum(in_gaps) == len(between), "work of 1 to 5 has fewer instances"
    few = {index: values[:4] for index, values in extents.items()}
    assert choose_between(PROBLEM, few) == [], "all of them are anchors"
