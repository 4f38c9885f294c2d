"""The four alternatives for tails: each right on its own, and all the same to the bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, all_tails, make_problem
from hypothesis import given
from hypothesis import strategies as st

from dietcode.search_space.cpu.host import build_module
from dietcode.search_space.cpu.kernel import possible_remainders
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cpu.tails.loop_partitioning import tail_heights
from dietcode.search_space.reference import reference
from dietcode.search_space.stage import Stage
from dietcode.search_space.tails import TAILS
from dietcode.target.cpu import CpuTarget

STAGES = [
    Stage("scale", value=-1.5),
    Stage("bias", tensor="bias"),
    Stage("relu"),
    Stage("residual", tensor="R"),
]
ROWS = 7  # 4 + 2 + 1 have bodies of their own
CATEGORIES = range(len(TAILS))


def check_all(kernel: Compiled, extents: dict[str, int], seed: int = 0) -> None:
    """Each against float64, and all alike; the output is NaN beforehand."""
    extents = {letter: extents[letter] for letter in kernel.problem.extents}
    inputs = kernel.random_inputs(extents, seed)
    first = kernel.run(inputs, extents, (0,))
    for category in CATEGORIES:
        kernel.check(extents, seed, (category,))
        output = kernel.run(inputs, extents, (category,))
        np.testing.assert_array_equal(
            output.view(np.uint32), first.view(np.uint32), err_msg=f"{TAILS[category]} at {extents}"
        )


def columns_of_interest(lanes: int) -> Sequence[int]:
    """For tiles of two vectors: below, at and past vectors and tiles, and primes."""
    return 1, lanes - 1, lanes, lanes + 1, 2 * lanes, 2 * lanes + 1, 3 * lanes, 4 * lanes, 37, 67


def test_every_edge(target: CpuTarget) -> None:
    kernel = all_tails(make_problem("mk,nk->mn", stages=STAGES), (ROWS, 2 * target.lanes()), target)
    for m in (1, 2, 3, 4, 5, ROWS - 1, ROWS, ROWS + 1, 13, 23, 28):
        for n in columns_of_interest(target.lanes()):
            for k in (1, 19):
                check_all(kernel, {"m": m, "n": n, "k": k})


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize(
    ("m", "n"),
    [
        (ROWS, 16),  # one whole tile, no tail at all
        (2 * ROWS, 32),
        (3, 16),  # no whole tile
        (ROWS + 5, 48),
        (ROWS - 1, 8),  # whole vectors, but never a whole tile
        (2 * ROWS, 24),
        (1, 3),
        (ROWS, 19),
        (ROWS + 1, 28),  # an even number of columns, but no whole vectors
        (ROWS + 1, 31),
    ],
)
def test_fixed_extents(m: int, n: int, avx2: CpuTarget) -> None:
    kernel = all_tails(make_problem("mk,nk->mn", {"m": m, "n": n, "k": 5}, STAGES), (ROWS, 16), avx2)
    check_all(kernel, {"m": m, "n": n, "k": 5})


@pytest.mark.thorough
@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize(
    ("einsum", "fixed", "constant"),
    [
        ("bmk,bkn->bmn", {}, False),
        ("bmk,bnk->bmn", {"m": 5, "n": 24}, False),
        ("bmk,nk->bmn", {"m": 4, "n": 16}, True),  # several row letters, one of them fixed
        ("km,kn->mn", {"n": 40}, True),
        ("mjk,nkj->mn", {}, True),  # several reduction letters
        ("mk,abk->mab", {"b": 5}, False),  # several column letters
        ("k,nk->n", {}, True),  # no rows
    ],
)
def test_other_contractions(einsum: str, fixed: dict[str, int], constant: bool, avx2: CpuTarget) -> None:
    stages = STAGES[2:] if "ab" in einsum else STAGES  # a bias needs one column letter
    kernel = all_tails(make_problem(einsum, fixed, stages, constant), (6, 16), avx2)
    rng = np.random.default_rng(0)
    for trial in range(12):
        low, high = (1, 2) if trial == 0 else (1, 40 if len(kernel.problem.extents) < 4 else 15)
        extents = {k: fixed.get(k, int(rng.integers(low, high))) for k in kernel.problem.extents}
        check_all(kernel, extents, trial)


@pytest.mark.thorough
@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("tile", [(1, 1), (1, 3), (8, 1), (14, 1)], ids=lambda t: f"{t[0]}x{t[1]}vectors")
def test_extreme_tiles(tile: tuple[int, int], avx2: CpuTarget) -> None:
    rows, columns = tile[0], tile[1] * avx2.lanes()
    kernel = all_tails(make_problem("mk,nk->mn", {"k": 9}), (rows, columns), avx2)
    for m in (1, rows, rows + 1, 2 * rows + 1):
        for n in (1, columns, columns + 1, 3 * columns - 1):
            check_all(kernel, {"m": m, "n": n, "k": 9})


def test_rows_in_several_blocks(avx2: CpuTarget) -> None:
    small_cache = CpuTarget(**(vars(avx2) | {"l2_bytes": 4096}))
    check_all(all_tails(make_problem("mk,nk->mn"), (3, 16), small_cache), {"m": 97, "n": 37, "k": 64})


def test_a_row_is_the_same_in_every_shape(target: CpuTarget) -> None:
    kernel = all_tails(
        make_problem("mk,nk->mn", {"n": 37, "k": 23}, STAGES), (ROWS, 2 * target.lanes()), target
    )
    largest = {"m": 4 * ROWS, "n": 37, "k": 23}
    inputs = kernel.random_inputs(largest)
    whole = kernel.run(inputs, largest, (0,)).view(np.uint32)
    for m in range(1, 4 * ROWS):
        part = inputs | {"X": inputs["X"][:m].copy(), "R": inputs["R"][:m].copy()}
        for category in CATEGORIES:
            output = kernel.run(part, largest | {"m": m}, (category,))
            np.testing.assert_array_equal(
                output.view(np.uint32), whole[:m], err_msg=f"{TAILS[category]} m={m}"
            )


@pytest.mark.thorough
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_row(value: float, target: CpuTarget) -> None:
    problem = make_problem("mk,nk->mn", {"n": 37, "k": 6}, STAGES)
    kernel = all_tails(problem, (ROWS, 2 * target.lanes()), target)
    for m in (ROWS - 1, ROWS + 2):
        extents = {"m": m, "n": 37, "k": 6}
        inputs = kernel.random_inputs(extents)
        clean = kernel.run(inputs, extents, (0,))
        for row in (0, m - 1):
            spoilt = inputs | {"X": inputs["X"].copy()}
            spoilt["X"][row, 3] = value
            with np.errstate(invalid="ignore"):
                expected = reference(problem, spoilt)
            for category in CATEGORIES:
                output = kernel.run(spoilt, extents, (category,))
                others = np.arange(m) != row
                np.testing.assert_array_equal(output[others], clean[others])
                np.testing.assert_array_equal(np.isnan(output), np.isnan(expected))
                np.testing.assert_array_equal(np.isposinf(output), np.isposinf(expected))


@pytest.mark.thorough
def test_what_is_past_the_columns_of_the_packed_operand_does_not_matter(target: CpuTarget) -> None:
    kernel = all_tails(make_problem("mk,nk->mn"), (ROWS, 2 * target.lanes()), target)
    for n in (1, target.lanes() + 1, 4 * target.lanes() - 1):
        extents = {"m": ROWS + 3, "k": 5, "n": n}
        inputs = kernel.random_inputs(extents)
        x, packed = kernel.arguments(inputs)
        packed[0, -1, :, n % target.lanes() :] = np.nan
        for category in CATEGORIES:
            output = np.full((ROWS + 3, n), np.nan, np.float32)
            kernel.module["run"](x, packed, output, category)
            np.testing.assert_array_equal(output, kernel.run(inputs, extents, (category,)))


@given(st.integers(1, 40), st.none() | st.integers(1, 60), st.none() | st.integers(1, 60))
def test_possible_remainders(extent: int, b: int | None, m: int | None) -> None:
    """Against all products of what the dynamic extents may be."""
    fixed = {letter: size for letter, size in (("b", b), ("m", m)) if size is not None}
    problem = make_problem("bmk,nk->bmn", fixed)
    every = range(1, 2 * extent + 1)
    seen = {x * y % extent for x in ([b] if b else every) for y in ([m] if m else every)}
    assert possible_remainders(problem, problem.rows, extent) == seen


@given(st.frozensets(st.integers(0, 40), min_size=1))
def test_tail_heights_make_up_every_remainder_and_none_is_too_many(rests: frozenset[int]) -> None:
    heights = tail_heights(rests)
    assert heights == sorted(heights, reverse=True)
    assert all(math.log2(height).is_integer() for height in heights)
    made = [[height for height in heights if rest // height % 2] for rest in rests]
    assert [sum(parts) for parts in made] == list(rests)
    assert {height for parts in made for height in parts} == set(heights)


@pytest.mark.parametrize(
    ("fixed", "num_bodies"),
    [
        ({}, {"local": 2, "partition": 12, "global": 1, "checked": 1}),  # of 7, 4, 2, 1 rows × whole, 2, 1
        ({"n": 32}, {"local": 2, "partition": 4, "global": 1, "checked": 1}),
        ({"m": 14}, {"local": 2, "partition": 3, "global": 1, "checked": 1}),
        ({"m": 14, "n": 32}, {"local": 2, "partition": 1, "global": 1, "checked": 1}),
        ({"m": 5}, {"local": 2, "partition": 6, "global": 1, "checked": 1}),  # 4 and 1, no 7
        ({"n": 8}, {"local": 2, "partition": 4, "global": 1, "checked": 1}),  # never two vectors
        ({"m": 12, "n": 40}, {"local": 2, "partition": 6, "global": 1, "checked": 1}),  # 7, and 4 and 1
    ],
)
def test_only_possible_bodies_are_generated(fixed: dict[str, int], num_bodies: dict[str, int]) -> None:
    limits = Limits(lanes=8, num_registers=16, l2_bytes=1 << 18, num_cores=2)
    problem = make_problem("mk,nk->mn", fixed | {"k": 12345})
    for tails in TAILS:
        module = build_module(problem, [MicroKernel(ROWS, 16, tails)], 0, (), limits)
        kernel = next(f for g, f in module.functions.items() if g.name_hint.startswith("micro_kernel"))
        loops = str(kernel.script()).count("range(T.int64(12345))")
        copies = 1 if tails == "global" else 0  # of zeros; rows that exist are copied by vectors
        assert loops - copies == num_bodies[tails], tails


def test_the_symbol_of_a_micro_kernel_is_an_identifier() -> None:
    limits = Limits(lanes=8, num_registers=16, l2_bytes=1 << 18, num_cores=2)
    kernels = [MicroKernel(2, 8, tails) for tails in TAILS]
    module: Any = build_module(make_problem("mk,nk->mn"), kernels, 0, (), limits)
    names = [g.name_hint for g in module.functions]
    assert all(name.isidentifier() for name in names)
    assert "micro_kernel_1_2x8_partition" in names and "micro_kernel_0_2x8" in names
