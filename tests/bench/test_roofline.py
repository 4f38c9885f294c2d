"""The two kernels of the roofline do what is counted for them, and what they say is possible."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from benchmarks.cpu import over, ratio, ratio_to_eager, summary, table
from dietcode.bench.compare import bench
from dietcode.bench.roofline import FMA_PEAK, READ_STREAM, Roofline


@pytest.fixture(scope="module")
def roofline() -> Roofline:
    return Roofline(len(os.sched_getaffinity(0)))


def test_the_stream_reads_every_element_on_each_pass(roofline: Roofline) -> None:
    """It writes its sums; of ones they add up to the number of elements read, which is what is counted."""
    num_bytes = 3_000_000
    roofline.probes(num_bytes)[READ_STREAM]()
    secs = {FMA_PEAK: 1.0, READ_STREAM: 1.0}
    counted = roofline.figures(secs, 1.0, num_bytes).read_gbytes_per_sec * 1e9
    assert float(roofline._sums.astype(np.float64).sum()) * 4 == counted
    assert counted >= num_bytes and counted % roofline._data.nbytes == 0


def test_every_chain_is_computed(roofline: Roofline) -> None:
    """``x = 1.9 - x²`` as many times as is said, from another value in each chain.

    Chains that began alike were computed once, and the peak was said to be half as high again.
    """
    steps, lanes = 6, roofline._step_floats // 12
    roofline._sums.fill(0.0)
    roofline._probe(roofline._sums.ctypes.data, 0, roofline.num_threads, steps, 1)
    expected = 0.1 + 0.07 * np.arange(12)
    for _ in range(steps):
        expected = 1.9 - expected * expected
    chains = roofline._sums.reshape(-1, 12, lanes)
    np.testing.assert_allclose(chains, np.broadcast_to(expected[:, None], chains.shape), atol=1e-4)


def test_a_small_working_set_is_read_at_its_own_size(roofline: Roofline) -> None:
    calls: dict[str, Callable[[], Any]] = roofline.probes(100)
    for call in calls.values():
        call()
    figures = roofline.figures({FMA_PEAK: 0.01, READ_STREAM: 0.001}, flops=50.0, num_bytes=100)
    assert figures.peak_gflops > 0 and figures.read_gbytes_per_sec > 0
    bandwidth_roof = figures.read_gbytes_per_sec * 50.0 / 100
    assert figures.roof_gflops == pytest.approx(min(figures.peak_gflops, bandwidth_roof))


def test_probes_are_timed_with_the_paths(roofline: Roofline) -> None:
    from small_libraries import built

    (record,) = bench(built("dense"), [], num_instances=1, rounds=1, probes=roofline.probes)
    assert record["bytes"] == 4 * (16 * 48 + 64 * 48 + 16 * 64)
    assert set(record["probe_secs"]) == {FMA_PEAK, READ_STREAM}
    assert all(secs > 0 for secs in record["probe_secs"].values())
    assert record["vendor"] is None and record["measured_gflops"] > 0


def test_a_buffer_larger_than_caches_is_not_made(roofline: Roofline) -> None:
    """Of tensors that fill memory the bandwidth is that of memory: a part of them tells it."""
    roofline.probes(1 << 40)
    assert roofline._data.nbytes < 300 << 20


def test_the_peak_is_more_than_a_product_of_numpy_reaches() -> None:
    """Of those taken one after the other; a disturbed one says less than there is, and more are taken.

    On one core, since two are seldom free at once where other tests run.
    """
    roofline = Roofline(1)
    a = np.ones((512, 512), np.float32)
    rates, peaks = [0.0], [0.0]
    while max(peaks) <= 0.9 * max(rates) or len(peaks) < 6:
        assert len(peaks) < 200
        with threadpool_limits(1, "blas"):
            begun = time.perf_counter()
            a @ a
            rates.append(2 * 512**3 / (time.perf_counter() - begun) / 1e9)
        peaks.append(roofline.read(2.0 * 512**3, 3 * 4 * 512**2).peak_gflops)


@pytest.mark.thorough
def test_a_roofline_below_what_was_reached_is_read_again(
    roofline: Roofline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was disturbed, or the rate is one that no reading explains: then it ends as well."""
    probe, calls = roofline._probe, 0

    def counted(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        return probe(*given)

    monkeypatch.setattr(roofline, "_probe", counted)
    roofline.read(50.0, 100)
    once = calls
    roofline.read(50.0, 100, reached_gflops=1e9)
    assert calls == once + 4 * once


def test_every_record_says_what_the_machine_allowed() -> None:
    from small_libraries import built

    (record,) = bench(built("dense"), [], num_instances=1, rounds=1)
    assert 0 < record["roof_gflops"] <= record["peak_gflops"] and record["read_gbytes_per_sec"] > 0
    assert "probe_secs" not in record


def row(t: int, measured: float, of_roof: float = 0.5, **vendors: float) -> dict[str, Any]:
    return {
        "shape_vars": {"T": t},
        "measured_gflops": measured,
        "predicted_gflops": measured,
        "vendors": {name.replace("_", "-"): rate for name, rate in vendors.items()},
        "of_roof": of_roof,
        "max_rel_error": 1e-7,
        "peak_gflops": 400.0 + t,
        "read_gbytes_per_sec": 50.0,
    }


def test_the_summary_is_against_the_best_path_and_against_the_best_eager_one() -> None:
    rows = [
        row(1, 100.0, torch_eager=50.0, torch_compile_freezing=200.0),
        row(30, 400.0, torch_eager=50.0, torch_eager_channels_last=100.0, torch_compile_freezing=100.0),
    ]
    assert [ratio(r) for r in rows] == [0.5, 4.0] and [ratio_to_eager(r) for r in rows] == [2.0, 4.0]
    found = summary(rows, ("T", 24))
    assert found["ratio"] == over(rows, ratio)
    assert found["ratio"]["geomean"] == pytest.approx(2**0.5)
    assert found["ratio"]["worst"] == 0.5 and found["ratio"]["worst_at"] == {"T": 1}
    assert found["T<24"]["ratio"]["worst"] == 0.5 and found["T>=24"]["ratio"]["worst"] == 4.0
    assert found["peak_gflops"] == [401.0, 415.5, 430.0]
    result = {"workload": "w", "tuning": {"secs": None}, "num_micro_kernels": 2, "summary": found}
    assert "1.41 / 0.50" in table([result])
