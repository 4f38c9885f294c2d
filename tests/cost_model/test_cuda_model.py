"""The cost model of GPUs, on devices whose law is known."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dietcode.cost_model.cuda.features import CudaEstimator, step_cost
from dietcode.cost_model.cuda.fitting import fit_cuda
from dietcode.cost_model.cuda.model import count, fit_local, num_bytes, wave_blocks
from dietcode.cost_model.cuda.waves import Spread, fit_sweep
from dietcode.errors import CandidateError, TuningError
from dietcode.measure.records import Measurement, Records
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.target.cubin import KernelFacts
from dietcode.target.cuda import CudaTarget

sys.path.append(str(Path(__file__).parents[1] / "search_space"))
from compiled import make_problem

DENSE = make_problem("mk,nk->mn", {"n": 2304}, constant=False)
TILE = CudaMicroKernel(128, 128, 8, 8, 16, 2, 2, stages=2)
SPLIT = CudaMicroKernel(16, 64, 4, 4, 16, splits=4)
WAVE, KAPPA = 264, 0.6
SPREAD = Spread(KAPPA)


def extents(rows: Any, reduction: Any = 768) -> dict[str, Any]:
    m = np.asarray(rows, dtype=np.int64)
    return {
        "m": m,
        "n": np.full(m.shape, 2304),
        "k": np.broadcast_to(np.asarray(reduction, dtype=np.int64), m.shape),
    }


def law(
    tile: CudaMicroKernel, given: dict[str, Any], launch: float, alpha: float, beta: float, gamma: float
) -> Any:
    """Seconds of a device that is exactly as the model says, written out anew."""
    blocks = -(-given["m"] // tile.rows) * -(-given["n"] // tile.columns) * tile.splits
    k_tiles = np.ceil(np.ceil(given["k"] / tile.k_tile) / tile.splits)
    full = np.ceil(blocks / WAVE)
    wave = alpha + beta * k_tiles * tile.k_tile
    adding = gamma * given["m"] * given["n"] * (tile.splits + 1) if tile.splits > 1 else 0.0
    return launch + wave * (KAPPA * full + (1 - KAPPA) * blocks / WAVE) + adding


def as_points(given: dict[str, Any]) -> list[dict[str, int]]:
    return [{k: int(v[i]) for k, v in given.items()} for i in range(len(given["m"]))]


def test_a_wave_is_what_the_multiprocessors_hold() -> None:
    facts = KernelFacts(registers=128, shared_bytes=TILE.shared_bytes, stack_bytes=0, code_bytes=1)
    assert wave_blocks(CudaTarget("sm_90"), 132, TILE, facts) == 264  # two of 256 threads, by registers
    assert wave_blocks(CudaTarget("sm_75"), 40, TILE, facts) == 40  # one, by shared memory
    with pytest.raises(CandidateError, match="no multiprocessor of sm_90 holds that"):
        wave_blocks(CudaTarget("sm_90"), 132, TILE, KernelFacts(255, 230 << 10, 0, 1))


def test_waves_are_whole_clusters_and_a_persistent_grid_has_tiles_for_waves() -> None:
    alone = CudaMicroKernel(128, 128, 64, 128, 64, stages=4, unit="tma")
    facts = KernelFacts(registers=168, shared_bytes=alone.shared_bytes, stack_bytes=0, code_bytes=1)
    pairs, persistent = replace(alone, cluster_rows=2), replace(alone, persistent=True)
    target, given = CudaTarget("sm_90a"), extents([128 * 7, 128 * 8], 768)
    waves = [wave_blocks(target, 113, tile, facts) for tile in (alone, pairs, persistent)]
    assert waves == [113, 112, 113]
    problem = replace(DENSE, operand_dtype="float16", output_dtype="float16")
    counts = [count(problem, tile, 36, given) for tile in (alone, pairs, persistent)]
    assert [own.blocks.tolist() for own in counts] == [[126, 144], [144, 144], [126, 144]]
    assert counts[1].f_pad.tolist() == [7 / 8, 1.0]  # of 7 tiles the eighth is multiplied too, for nothing
    whole = Spread(1.0)
    assert [own.stretched(whole).tolist() for own in counts] == [[4, 4]] * 3  # ⌈126 / 36⌉ tiles of a block


def test_counts() -> None:
    counts = count(DENSE, TILE, WAVE, extents([16, 2048], 770))
    assert counts.blocks.tolist() == [18, 288]
    assert counts.num_steps.tolist() == [784, 784]
    assert counts.imbalance.tolist() == [WAVE / 18, 2 * WAVE / 288]
    assert counts.f_pad[0] == pytest.approx(16 * 770 / (128 * 784))
    assert counts.f_pad[1] == pytest.approx(770 / 784)
    assert counts.elements.tolist() == [0, 0]
    split = count(DENSE, SPLIT, WAVE, extents([16], 768))
    assert split.blocks.tolist() == [4 * 36]
    assert split.num_steps.tolist() == [192]
    assert split.elements.tolist() == [16 * 2304 * 5]
    assert split.f_pad.tolist() == [1.0]


def test_what_global_padding_copies_is_counted() -> None:
    padded = replace(TILE, tails="global")
    counts = count(DENSE, padded, WAVE, extents([16, 2048], 770))
    copied = [2 * (m + 2304) * 784 for m in (128, 2048)]  # both: 770 steps are no whole k_tiles
    assert counts.elements.tolist() == [copied[0] + 2 * 16 * 2304, copied[1] + 2 * 2048 * 2304]
    local = count(DENSE, TILE, WAVE, extents([16, 2048], 770))
    assert counts.f_pad.tolist() == local.f_pad.tolist()
    assert counts.blocks.tolist() == local.blocks.tolist()
    seen = extents([128, 512, 1024, 2048, 4096, 300], [768, 768, 3072, 768, 1536, 64])
    secs = law(TILE, seen, 3e-6, 5e-6, 4e-8, 0.0) + 2e-11 * count(DENSE, padded, WAVE, seen).elements
    model = fit_local(DENSE, padded, WAVE, SPREAD, as_points(seen), secs.tolist())
    assert model.fit_error < 1e-9
    assert model.to_json()["secs_per_copied_element"] == pytest.approx(2e-11)


@pytest.mark.parametrize("tile", [TILE, SPLIT], ids=lambda tile: tile.name)
def test_a_device_as_the_model_says_is_predicted_where_it_was_not_measured(tile: CudaMicroKernel) -> None:
    coefficients = (3e-6, 5e-6, 4e-8, 2e-11)
    seen = extents([128, 512, 1024, 2048, 4096, 300], [768, 768, 3072, 768, 1536, 64])
    model = fit_local(DENSE, tile, WAVE, SPREAD, as_points(seen), law(tile, seen, *coefficients).tolist())
    assert model.fit_error < 1e-9
    unseen = extents([1, 16, 777, 1999, 9000], [768, 100, 2000, 768, 4096])
    factors = model.predict(DENSE, unseen)
    flops = 2.0 * unseen["m"] * unseen["n"] * unseen["k"]
    assert np.allclose(factors.throughput, flops / law(tile, unseen, *coefficients), rtol=1e-6)
    assert np.all(factors.f_pad <= 1)
    assert np.all(factors.f_spatial <= 1)
    assert set(model.to_json()) >= {"launch_secs", "secs_per_wave_step", "wave_blocks"}


def on_sms(tile: CudaMicroKernel, given: dict[str, Any], num_sms: int, resident: int) -> tuple[Any, Any]:
    """Whole waves, and the blocks of the most loaded multiprocessor in the last one, written out anew."""
    blocks = -(-given["m"] // tile.rows) * -(-given["n"] // tile.columns)
    full, rest = np.divmod(blocks, num_sms * resident)
    return full, -(-rest // num_sms)


@pytest.mark.parametrize("busy", [1, 4])
@pytest.mark.parametrize(("by_wave", "by_block"), [(9e-6, 1e-6), (1e-6, 6e-6), (5e-6, 5e-6)])
def test_each_micro_kernel_has_its_own_shares(by_wave: float, by_block: float, busy: int) -> None:
    """Whatever the sweep of the device said: what a block waits for, another one computes through."""
    num_sms, resident = 33, 8
    wave, spread = num_sms * resident, Spread(0.8, None, num_sms)

    def secs(given: dict[str, Any]) -> Any:
        full, rest = on_sms(TILE, given, num_sms, resident)
        last = np.where(rest > 0, by_wave + by_block * np.maximum(rest, busy), 0.0)
        return 3e-6 + full * (by_wave + by_block * resident) + last

    seen = extents([128, 256, 512, 768, 1400, 2048, 4096], 768)
    model = fit_local(DENSE, TILE, wave, spread, as_points(seen), secs(seen).tolist())
    unseen = extents([300, 900, 1100, 1800, 3000, 6000], 768)
    flops = 2.0 * unseen["m"] * unseen["n"] * unseen["k"]
    factors = model.predict(DENSE, unseen)
    gaps = np.abs(factors.throughput / (flops / secs(unseen)) - 1.0)
    assert gaps.mean() < 0.03 and gaps.max() < 0.08
    assert np.all(factors.f_spatial < 1.0 + 1e-9)
    product = factors.f_local * factors.f_spatial * factors.f_pad
    facts = model.to_json()
    others = facts["launch_secs"] + facts["secs_per_byte"] * num_bytes(DENSE, unseen)
    assert np.allclose(flops / factors.throughput, others + flops / product)


def test_products_of_a_few_rows_are_as_long_as_what_they_read_and_write_takes() -> None:
    """One tile for each of many products: the blocks are as many, whatever the rows are."""
    problem = make_problem("bmk,bnk->bmn", {"b": 192, "k": 64}, constant=False)
    tile = CudaMicroKernel(128, 128, 8, 8, 16, 2, 2, stages=2)

    def given(rows: list[int]) -> dict[str, Any]:
        m = np.asarray(rows)
        return {"b": np.full_like(m, 192), "m": m, "n": m, "k": np.full_like(m, 64)}

    def secs(extents: dict[str, Any]) -> Any:
        m = extents["m"]
        return 4e-6 + 4.0 * 192 * (2 * 64 * m + m * m) / 3e12

    seen, unseen = given([8, 24, 40, 64, 96, 128]), given([16, 56, 80, 112])
    model = fit_local(problem, tile, WAVE, SPREAD, as_points(seen), secs(seen).tolist())
    flops = problem.flops(unseen)
    assert np.allclose(model.predict(problem, unseen).throughput, flops / secs(unseen), rtol=0.02)


def test_a_problem_moves_its_operands_and_outputs_once() -> None:
    given = {"m": 100, "n": 2304, "k": 768}
    assert num_bytes(DENSE, given) == 4.0 * (100 * 768 + 2304 * 768 + 100 * 2304)
    half = replace(DENSE, operand_dtype="float16", output_dtype="float32")
    assert num_bytes(half, given) == 2.0 * (100 * 768 + 2304 * 768) + 4.0 * 100 * 2304


def test_a_sweep_of_blocks_that_are_alone_does_not_tell_their_share() -> None:
    blocks = np.arange(8, 4 * WAVE + 1, 13)
    secs = 4e-6 + 1e-5 * (0.5 * np.ceil(blocks / WAVE) + 0.5 * blocks / WAVE)
    spread = fit_sweep(sweep_of(blocks.tolist(), secs.tolist()), WAVE).spread
    assert spread.sm_share is None and spread.kappa == pytest.approx(0.5)
    assert spread.to_json() == {"kappa": spread.kappa, "sm_share": None}


def test_a_full_wave_of_whole_tiles_is_f_local() -> None:
    """Equation 5: nothing is lost where every wave is full and no tile is padded, but the launch."""
    tile = CudaMicroKernel(128, 128, 8, 8, 16)
    given = extents([1024, 128 * WAVE, 5000], [768, 768, 96])
    model = fit_local(
        DENSE, tile, WAVE, SPREAD, as_points(given), law(tile, given, 0.0, 1e-6, 3e-8, 0.0).tolist()
    )
    whole = extents([128 * WAVE], 768)
    factors = model.predict(DENSE, whole)
    assert factors.f_spatial == pytest.approx(1.0)
    assert factors.throughput == pytest.approx(factors.f_local * factors.f_pad)


def sweep_of(blocks: list[int], secs: list[float]) -> dict[str, Any]:
    return {"num_blocks": blocks, "secs": secs, "wave_blocks": WAVE}


def kappa_of(blocks: list[int], secs: list[float]) -> float:
    return fit_sweep(sweep_of(blocks, secs)).spread.kappa


def test_whole_blocks_on_a_multiprocessor_are_told_from_whole_waves() -> None:
    """Half as many blocks as multiprocessors take nearly as long as one on each."""
    num_sms, blocks = WAVE // 2, np.arange(8, 4 * WAVE + 1, 13)
    waves, by_sm = np.ceil(blocks / WAVE), np.ceil(blocks / num_sms) / 2
    secs = 4e-6 + 1e-5 * (0.3 * waves + 0.5 * by_sm + 0.2 * blocks / WAVE)
    sweep = fit_sweep(sweep_of(blocks.tolist(), secs.tolist()) | {"block_flops": 1000}, num_sms)
    assert (sweep.spread.kappa, sweep.spread.sm_share) == pytest.approx((0.3, 0.5))
    assert sweep.launch_secs == pytest.approx(4e-6)
    assert sweep.flops_per_sec == pytest.approx(1000 * WAVE / 1e-5)
    few = np.asarray([num_sms / 2, num_sms])
    alike = sweep.spread.waves(few, few / WAVE, np.ceil(few / WAVE) * WAVE / few)
    assert alike[1] - alike[0] == pytest.approx(0.2 * num_sms / 2 / WAVE)


@pytest.mark.parametrize("kappa", [0.0, 0.3, 0.5, 1.0])
def test_kappa_comes_back(kappa: float) -> None:
    blocks = np.arange(8, 4 * WAVE + 1, 13)
    secs = 4e-6 + 1e-5 * (kappa * np.ceil(blocks / WAVE) + (1 - kappa) * blocks / WAVE)
    assert kappa_of(blocks.tolist(), secs.tolist()) == pytest.approx(kappa, abs=1e-9)


def test_a_disturbed_sweep_gives_kappa_nearly() -> None:
    blocks, rng = np.arange(8, 4 * WAVE + 1, 13), np.random.default_rng(0)
    secs = 1e-5 * (0.5 * np.ceil(blocks / WAVE) + 0.5 * blocks / WAVE) * rng.normal(1, 0.02, len(blocks))
    assert kappa_of(blocks.tolist(), secs.tolist()) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("blocks", "secs"),
    [
        ([1, 2, 3], [1.0, 2.0, 3.0]),
        ([WAVE, 2 * WAVE, 3 * WAVE, 4 * WAVE], [1.0, 2.0, 3.0, 4.0]),
        ([1, 2, 3, 4], [1.0, float("nan"), 1.0, 1.0]),
    ],
)
def test_no_kappa_from_too_little(blocks: list[int], secs: list[float]) -> None:
    with pytest.raises(TuningError, match="κ"):
        kappa_of(blocks, secs)


@pytest.mark.parametrize("secs", [[], [0.0], [float("inf")], [1.0, 2.0]])
def test_nothing_is_fitted_on_nothing(secs: list[float]) -> None:
    with pytest.raises(CandidateError, match="no usable measurement"):
        fit_local(DENSE, TILE, WAVE, SPREAD, [{"m": 1, "n": 2304, "k": 768}], secs)


@pytest.mark.parametrize(
    ("timed", "reason"), [(2, None), (1, "timed with 1 alignment class(es), but it has 2")]
)
def test_what_was_timed_before_there_were_alignment_classes_is_left_out(
    timed: int, reason: str | None
) -> None:
    problem, given = make_problem("mk,nk->mn", {"n": 2304}, constant=False), extents([512, 1024, 2048, 4096])
    facts = KernelFacts(120, TILE.shared_bytes, 0, 20000)
    device = {"num_sms": 132, "target": {"kind": "cuda", "arch": "sm_90a"}, "name": "made up", "id": "0"}
    blocks = list(range(18, 4 * 264, 54))
    records = Records("sha256:0", device | {"synthetic": True})
    records.calibration = sweep_of(blocks, [3e-6 + 1e-8 * n for n in blocks])
    secs = law(TILE, given, 3e-6, 5e-6, 4e-8, 0.0).tolist()
    for tile, classes in ((TILE, timed), (replace(TILE, stages=1), 2)):
        own = replace(facts, shared_bytes=tile.shared_bytes, classes=classes)
        records.measurements[tile] = Measurement(
            tile, "hardware", tuple(as_points(given)), tuple(secs), facts=own
        )
    fitted = fit_cuda(problem, records, given)
    assert len(fitted.models) == (1 if reason else 2)
    assert [text.startswith(reason or "") for text in fitted.unused.values()] == [True] * bool(reason)
    lines = [Measurement.from_json(m.to_json(), records.format) for m in records.measurements.values()]
    assert [line.facts.classes for line in lines if line.facts] == [timed, 2]


def test_alignment_classes_have_a_rate_each() -> None:
    """Fewer loads and stores take less time, and that is seen and predicted."""
    problem, tile = make_problem("mk,nk->mn", {"n": 2304}, constant=False), TILE
    wide = (3e-6, 5e-6, 4e-8, 0.0)
    each = 2e-9

    def secs(given: dict[str, Any]) -> Any:
        counts = count(problem, tile, WAVE, given)
        return law(tile, given, *wide) + each * counts.stretched(SPREAD) * counts.vectors / counts.blocks

    seen = extents([128, 512, 1024, 2048, 4096, 300], [768, 769, 3072, 767, 1535, 64])
    model = fit_local(problem, tile, WAVE, SPREAD, as_points(seen), secs(seen).tolist())
    assert model.to_json()["secs_per_wave_vector"] == pytest.approx(each)
    unseen = extents([1, 16, 777, 1999, 9000], [768, 101, 2000, 766, 4095])
    flops = 2.0 * unseen["m"] * unseen["n"] * unseen["k"]
    assert np.allclose(model.predict(problem, unseen).throughput, flops / secs(unseen), rtol=1e-6)
    one, other = (model.predict(problem, extents([4096], k)).throughput[0] / k for k in (1024, 1025))
    assert one > 1.1 * other  # neighbours of another class
    alike = extents([128, 512, 1024, 2048], [768, 64, 3072, 768])
    model = fit_local(problem, tile, WAVE, SPREAD, as_points(alike), secs(alike).tolist())
    assert model.to_json()["secs_per_wave_vector"] == 0.0  # of one class: nothing tells them from steps


def test_warpgroups_multiply_faster_and_wide_ones_wait_for_no_reads() -> None:
    """Before anything is measured: by what their instructions multiply and read."""
    warps = step_cost(CudaMicroKernel(128, 256, 64, 64, 64, stages=4, unit="mma"))
    widths = (256, 128, 64, 32, 16)
    costs = [step_cost(CudaMicroKernel(64, n, 64, n, 64, unit="wgmma")) for n in widths]
    assert costs == sorted(costs)
    assert costs[0] == costs[1] < 0.5 * warps  # as fast as they multiply
    assert costs[3] > 1.4 * costs[2]  # as fast as shared memory is read
    blocks = [8, 16, 32, 64, 128, 256, 528]
    calibration: dict[str, Any] = {"num_blocks": blocks, "wave_blocks": 132, "block_flops": 1 << 24}
    calibration["secs"] = [1e-5 * -(-n // 132) for n in blocks]
    rates = {
        unit: CudaEstimator.of(CudaTarget("sm_90a"), 132, calibration | {"unit": unit}).flops_per_sec
        for unit in ("mma", "wgmma")
    }
    assert rates["wgmma"] / rates["mma"] == pytest.approx(costs[0] / warps)
