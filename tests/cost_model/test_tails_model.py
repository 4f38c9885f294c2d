"""Counts and fits of the four alternatives for tails."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from batched import BATCHED, LIMITS, TARGET
from hypothesis import given, settings
from hypothesis import strategies as st
from small_libraries import ROOT

from dietcode.cost_model.cpu.counts import Counts, count
from dietcode.cost_model.cpu.fitting import fit_all
from dietcode.cost_model.cpu.model import CountedWaves, LocalModel, TermRates, _work, terms_of
from dietcode.measure.records import Measurement, Records
from dietcode.search_space.cpu.limits import MicroKernel
from dietcode.search_space.problem import Problem, problem_from_spec
from dietcode.search_space.tails import TAILS
from dietcode.workload.parse import load_spec

COEFFICIENTS = {
    "local": [3e-6, 2e-10, 4e-9, 5e-8, 2e-8, 7e-9, 5e-9],
    "checked": [3e-6, 2e-10, 8e-9, 5e-8, 2e-8, 7e-9, 6e-10, 5e-9],
    "partition": [3e-6, 2e-10, 4e-9, 5e-8, 3e-10, 6e-10, 5e-9],
    "global": [3e-6, 2e-10, 4e-9, 5e-8, 4e-11, 5e-9],
}


def counted(tails: str, b: int, m: int, n: int, k: int) -> Counts:
    extents = {"b": np.array([b]), "m": np.array([m]), "n": np.array([n]), "k": np.array([k])}
    return count(BATCHED, MicroKernel(6, 16, tails), LIMITS, extents)


def test_partition_by_hand() -> None:
    """11 × 44 by tiles of 6 × 16, vectors of 8: left are 5 rows, as 4 + 1, and 12 columns, as 2."""
    counts = counted("partition", 3, 11, 44, 7)
    assert counts.tiles[0] == 3 * 2 * 3 / 4
    assert counts.padded_tiles[0] == 3 * (2 * 3 - 2) / 4
    # 4 rows and 1 row beside two whole widths; 6 rows and both heights by what is left, two vectors at once
    assert counts.tail_bodies[0] == 3 * (2 * 2 + 1 + 2) / 4
    assert counts.tail_vectors[0] == 3 * (5 * 2 * 2 + 6 * 2 + 5 * 2) / 4
    # cycles of a step: 4 at least; two vectors of 8 come from L2 in 2; 6 rows by 2 vectors take 6
    assert counts.tail_cycles[0] == 3 * (2 * (4 + 4) + 6 + (4 + 4)) / 4
    assert counts.written[0] == 3 * 11 * 6 / 4
    assert counts.edge_written[0] == counts.tail_vectors[0] == counted("local", 3, 11, 44, 7).edge_written[0]
    assert counts.padded_flops[0] == 2 * 3 * 11 * 48 * 7
    assert counts.copied[0] == 0


def test_global_by_hand() -> None:
    counts = counted("global", 3, 11, 44, 7)
    assert counts.copied[0] == 3 * (12 * 7 + 11 * 44) / 4
    assert counts.padded_flops[0] == 2 * 3 * 12 * 48 * 7
    assert counts.tail_bodies[0] == counts.tail_vectors[0] == 0


@given(st.integers(1, 4), st.integers(1, 40), st.integers(1, 60), st.integers(1, 30))
@settings(deadline=None)
def test_partition_counts_every_body(b: int, m: int, n: int, k: int) -> None:
    pieces = vectors = full_vectors = 0
    for row in range(0, m, 6):
        heights = [6] if row + 6 <= m else [s for s in (4, 2, 1) if (m - row) & s]
        for column in range(0, n, 16):
            widths = [2] if column + 16 <= n else [-(-(n - column) // 8)]
            if heights == [6] and column + 16 <= n:
                full_vectors += 12
                continue
            pieces += len(heights) * len(widths)
            vectors += sum(heights) * sum(widths)
    counts = counted("partition", b, m, n, k)
    assert counts.tail_bodies[0] == b * pieces / 4
    assert counts.tail_vectors[0] == b * vectors / 4
    assert counts.padded_flops[0] == 2 * b * (vectors + full_vectors) * 8 * k
    others = counted("local", b, m, n, k)
    for name in ("imbalance", "tiles", "visits", "padded_tiles", "flops"):
        assert getattr(counts, name)[0] == getattr(others, name)[0]
    assert others.f_pad[0] <= counts.f_pad[0] <= 1


def test_without_tails_all_alternatives_count_the_same_work() -> None:
    found = [counted(tails, 2, 12, 32, 5) for tails in TAILS]
    assert {c.f_pad[0] for c in found} == {1.0}
    assert {c.tail_bodies[0] for c in found} == {0.0}


PACKING_SECS = 7e-11
RNG = np.random.default_rng(0)
POINTS = tuple(
    {"b": 2, "m": int(m), "n": int(n), "k": int(k)}
    for m, n, k in zip(
        RNG.integers(1, 400, 60), RNG.integers(1, 500, 60), RNG.integers(16, 900, 60), strict=True
    )
)


def times_of(kernel: MicroKernel, kappa: float, problem: Problem = BATCHED) -> tuple[float, ...]:
    counts = count(problem, kernel, LIMITS, {k: np.array([p[k] for p in POINTS]) for k in POINTS[0]})
    launch, *terms = COEFFICIENTS[kernel.tails]
    if not problem.column_operand_constant:
        terms.append(PACKING_SECS)
    work = _work(counts, terms_of(problem, kernel)) @ np.array(terms)
    return tuple(float(s) for s in launch + work * counts.stretch(kappa))


def fitted(problem: Problem, kernel: MicroKernel) -> LocalModel:
    waves = CountedWaves.of(problem, kernel, LIMITS, 0.6, POINTS, times_of(kernel, 0.6, problem))
    return waves.fit(TermRates.of_all([waves]))


@pytest.mark.parametrize("tails", TAILS)
def test_a_fit_predicts_what_made_the_times(tails: str) -> None:
    kernel = MicroKernel(6, 16, tails)
    model = fitted(BATCHED, kernel)
    extents = {k: np.array([p[k] for p in POINTS]) for k in POINTS[0]}
    factors = model.predict(BATCHED, LIMITS, 0.6, extents)
    found = 2.0 * np.prod(list(extents.values()), axis=0) / factors.throughput
    np.testing.assert_allclose(found, times_of(kernel, 0.6), rtol=0.01)
    others = {"fmas_per_cycle", "median_fit_error"}
    assert others <= set(model.to_json())
    assert len(model.to_json()) == len(COEFFICIENTS[tails]) + len(others)


@pytest.mark.parametrize("tails", TAILS)
def test_packing_at_each_call_has_a_term_of_its_own(tails: str) -> None:
    kernel, varying = MicroKernel(6, 16, tails), replace(BATCHED, column_operand_constant=False)
    model = fitted(varying, kernel)
    assert model.to_json()["secs_per_packed_element"] == pytest.approx(PACKING_SECS, rel=0.2)
    one = {"b": np.array([3]), "m": np.array([5]), "n": np.array([17]), "k": np.array([10])}
    assert count(varying, kernel, LIMITS, one).packed == 3 * 24 * 10 / 4, "three panels of eight, four cores"
    assert count(BATCHED, kernel, LIMITS, one).packed == 0


@pytest.mark.parametrize(
    ("tails", "names"),
    [
        ("local", {"secs_per_tile_k", "secs_per_padded_tile", "secs_per_edge_vector"}),
        ("checked", {"secs_per_tile_k", "secs_per_padded_tile_k", "secs_per_edge_vector"}),
        ("partition", {"secs_per_full_tile_k", "secs_per_body", "secs_per_tail_cycle_k"}),
        ("global", {"secs_per_tile_k", "secs_per_copied_element"}),
    ],
)
def test_the_report_names_the_terms(tails: str, names: set[str]) -> None:
    model = LocalModel(
        MicroKernel(6, 16, tails),
        np.array(COEFFICIENTS[tails]),
        terms_of(BATCHED, MicroKernel(6, 16, tails)),
        0.0,
    )
    assert set(model.to_json()) >= names | {
        "launch_secs",
        "secs_per_visit_k",
        "secs_per_written_vector",
        "median_fit_error",
    }


def test_fitted_micro_kernels_have_one_order_whatever_the_records() -> None:
    kernels = [MicroKernel(6, 16, tails) for tails in TAILS] + [
        MicroKernel(1, 8),
        MicroKernel(6, 8, "global"),
    ]
    expected = ["1x8", "6x8-global", "6x16", "6x16-partition", "6x16-global", "6x16-checked"]
    for order in (kernels, kernels[::-1]):
        records = Records("w", {"id": "d"}, calibration={"kappa": 0.5})
        for kernel in order:
            secs = times_of(kernel, 0.5)
            records.measurements[kernel] = Measurement(kernel, "hardware", POINTS, secs, 1000)
        fitted = fit_all(BATCHED, TARGET, records, {k: np.array([9]) for k in "bmnk"})
        assert [m.micro_kernel.name for m in fitted.models] == expected


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [(3, 1, 1), (3, 2, 1), (1, 2, 1), (3, 1, 2), (5, 2, 1)]
)
def test_with_a_window_each_line_is_copied_once_while_it_passes(
    kernel: int, stride: int, dilation: int
) -> None:
    spec = load_spec(ROOT / "examples" / "resnet50-conv3x3.yaml")
    problem = problem_from_spec(spec)
    high, wide, images, channels = 14, 9, 3, 64
    reach = (kernel - 1) * dilation + 1
    windows = tuple(
        replace(window, stride=stride, dilation=dilation, padding=0) for window in problem.windows
    )
    sizes = {"n": images, "h": high, "w": wide, "c": channels, "o": 32, "r": kernel, "s": kernel}
    sizes |= {"p": (high - reach) // stride + 1, "q": (wide - reach) // stride + 1}
    problem = replace(problem, windows=windows, extents={k: sizes[k] for k in problem.extents})
    lines, known = 0, set[int]()
    for _ in range(images):
        for position in range(sizes["p"]):
            under = set(range(position * stride, position * stride + reach))
            lines += len(under - known if position else under)
            known = under
    extents = {k: np.asarray([size]) for k, size in sizes.items()}
    found = count(problem, MicroKernel(3, 32, window=True), replace(LIMITS, num_cores=1), extents)
    assert found.gathered == pytest.approx([lines * wide * channels])
