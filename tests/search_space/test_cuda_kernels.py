"""Generated CUDA text, run on the CPU against float64."""

from __future__ import annotations

import dataclasses
import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import make_problem
from emulation import ORDERS, Emulated, compiled, guarded, is_whole, without_classes
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import KINDS, every_kind

from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import Problem
from dietcode.search_space.reference import reference
from dietcode.search_space.stage import Stage
from dietcode.search_space.tails import TAILS

SMALL = CudaMicroKernel(8, 16, 2, 2, 4)
# Every axis away from rest at least once, and with each other.
TILES = (
    SMALL,
    CudaMicroKernel(8, 16, 2, 2, 4, tails="checked"),
    CudaMicroKernel(8, 16, 2, 2, 4, tails="partition"),
    CudaMicroKernel(16, 16, 4, 2, 4, 2, 1, stages=2),
    CudaMicroKernel(16, 16, 2, 4, 8, 1, 2, stages=2, tails="partition"),
    CudaMicroKernel(8, 32, 2, 4, 4, 2, 2, splits=3),
    CudaMicroKernel(16, 8, 2, 2, 8, stages=2, splits=2, tails="partition"),
    CudaMicroKernel(8, 24, 2, 3, 4, stages=2, splits=5, tails="checked"),
    CudaMicroKernel(24, 8, 3, 2, 4),  # loads are no whole multiple of the threads
    CudaMicroKernel(8, 16, 2, 2, 4, tails="global"),
    CudaMicroKernel(16, 16, 4, 2, 8, 2, 1, stages=2, splits=2, tails="global"),
)
HALF_TILES = (
    CudaMicroKernel(16, 16, 4, 2, 8, 2, 1, stages=2),
    CudaMicroKernel(8, 16, 2, 8, 8, splits=2),
    CudaMicroKernel(8, 16, 2, 8, 8, tails="partition"),
    CudaMicroKernel(24, 8, 3, 2, 4, tails="checked"),  # loads are no whole multiple of the threads
)
STAGES = {
    "bias": Stage("bias", tensor="bias"),
    "relu": Stage("relu"),
    "silu": Stage("silu"),
    "gelu-erf": Stage("gelu-erf"),
    "gelu-tanh": Stage("gelu-tanh"),
    "tanh": Stage("tanh"),
    "sigmoid": Stage("sigmoid"),
    "hardswish": Stage("hardswish"),
    "hardsigmoid": Stage("hardsigmoid"),
    "clip": Stage("clip", value=(-0.25, 0.5)),
    "residual": Stage("residual", tensor="R"),
    "scale": Stage("scale", value=0.125),
}


def dense(
    fixed: dict[str, int] | None = None, stages: tuple[Stage, ...] = (), constant: bool = True
) -> Problem:
    return make_problem("mk,nk->mn", {"n": 20, "k": 24} if fixed is None else fixed, stages, constant)


@pytest.fixture(scope="module")
def library() -> Emulated:
    """A dense layer with a fixed weight: wide loads and stores."""
    return Emulated(dense(), TILES)


@pytest.fixture(scope="module")
def free() -> Emulated:
    """A dense layer of which nothing is known: scalar loads and stores."""
    return Emulated(dense({}), TILES)


def test_loads_are_as_wide_as_the_extents_allow(library: Emulated, free: Emulated) -> None:
    assert "*(float4*)(arg_W" in library.text
    assert "*(float4*)(arg_Y" in library.text or "*(float2*)(arg_Y" in library.text
    unaligned = without_classes(free.text)
    for tensor in "XWY":
        assert f"*(float4*)(arg_{tensor}" not in unaligned
        assert f"*(float2*)(arg_{tensor}" not in unaligned
        assert f"*(float4*)(arg_{tensor}" in free.text or tensor == "Y"  # where extents are multiples of 4
    assert "*(float4*)(arg_padded_X" in free.text  # whole tiles


@pytest.mark.parametrize("m", [1, 2, 7, 8, 9, 16, 17, 31])
def test_rows_of_any_number(m: int, library: Emulated) -> None:
    library.check({"m": m, "n": 20, "k": 24}, orders=ORDERS if m == 9 else (0,))


@pytest.mark.parametrize("m", [64, 65, 150])
def test_more_row_tiles_than_blocks_go_down_at_a_time(m: int, free: Emulated) -> None:
    free.check({"m": m, "n": 37, "k": 5}, seed=m)


@settings(max_examples=examples(25), deadline=None)
@given(m=st.integers(1, 37), n=st.integers(1, 37), k=st.integers(1, 29), order=st.sampled_from(ORDERS))
def test_any_shape(m: int, n: int, k: int, order: int, free: Emulated) -> None:
    free.check({"m": m, "n": n, "k": k}, orders=(order,))


@pytest.mark.parametrize(
    ("einsum", "fixed"),
    [
        ("mk,kn->mn", {"n": 12}),
        ("bmk,bnk->bmn", {"k": 8}),  # queries and keys
        ("bmk,bkn->bmn", {"n": 8}),  # probabilities and values
        ("mkl,nlk->mn", {"k": 3, "l": 4}),
        ("mk,bnk->bmn", {"n": 4, "k": 4}),
    ],
)
def test_other_contractions(einsum: str, fixed: dict[str, int]) -> None:
    problem = make_problem(einsum, fixed, (), constant=False)
    emulated = Emulated(problem, [TILES[3], TILES[6]])
    letters = sorted(problem.extents)
    for base in (1, 3, 9):
        emulated.check({k: fixed.get(k, base + i) for i, k in enumerate(letters)}, seed=base)


@pytest.mark.sampled(keep=5)
@pytest.mark.parametrize("name", every_kind(0))
def test_every_kind_of_problem(name: str) -> None:
    """Each with some way to treat tails, and with a split reduction or without."""
    kind, which = KINDS[name], list(KINDS).index(name)
    emulated = Emulated(kind.problem, [TILES[(2, 9, 6, 10, 7)[which % 5]]])
    rng = random.Random(name)
    for size in (1, 5, 12):
        chosen = {k: min(rng.randint(max(1, size - 3), size + 3), kind.largest.get(k, 99)) for k in kind.free}
        emulated.check(kind.complete(chosen), seed=size)


@pytest.mark.parametrize("name", ["NHWC strided groups", "NCHW dilated"])
def test_all_axes_under_windows(name: str) -> None:
    emulated = Emulated(KINDS[name].problem, TILES[1::3])
    for size in (3, 8):
        emulated.check(KINDS[name].complete({"n": 2, "h": size, "w": size + 2}), orders=ORDERS[-1:])


def test_channels_are_read_in_vectors() -> None:
    """In NHWC a vector is of one place, which a window sees or does not; nothing is read past an edge."""
    problem = KINDS["NHWC"].problem
    problem = dataclasses.replace(problem, extents=problem.extents | {"c": 8, "o": 12})
    emulated = Emulated(problem, [TILES[3], TILES[4], TILES[5], TILES[9]])
    assert "*(float4*)(arg_X" in emulated.text
    for h, w in ((1, 1), (2, 5), (9, 4)):
        emulated.check(KINDS["NHWC"].complete({"n": 2, "h": h, "w": w}) | {"c": 8, "o": 12})


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_epilogues_and_output_dtypes(dtype: str) -> None:
    problem = dense(stages=tuple(STAGES.values()))
    problem = Problem(**(vars(problem) | {"output_dtype": dtype}))
    emulated = Emulated(problem, [TILES[3], TILES[5]])
    emulated.check({"m": 13, "n": 20, "k": 24})


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_operands_of_half_precision(dtype: str) -> None:
    """Eight at a time along the reduction and along the columns; the epilogue's tensors are of that dtype."""
    stages = (STAGES["bias"], STAGES["residual"], STAGES["silu"])
    problem = replace(dense(stages=stages), operand_dtype=dtype, output_dtype=dtype)
    emulated = Emulated(problem, HALF_TILES)
    assert "*(uint4*)(arg_W" in emulated.text
    emulated.check({"m": 1, "n": 20, "k": 24})
    emulated.check({"m": 17, "n": 20, "k": 24}, orders=ORDERS)
    values = replace(
        make_problem("bmk,bkn->bmn", {"n": 40}, (), constant=False), operand_dtype=dtype, output_dtype=dtype
    )
    emulated = Emulated(values, HALF_TILES)
    assert "*(uint4*)(arg_W" in emulated.text
    assert "*(uint4*)(arg_Y" in emulated.text
    for m, k in ((1, 1), (9, 13)):
        emulated.check({"b": 3, "m": m, "n": 40, "k": k}, seed=m)


def test_half_precision_of_any_shape() -> None:
    """Nothing is known of the extents, and the output is of another dtype."""
    problem = replace(dense({}, (STAGES["residual"],)), operand_dtype="float16")
    emulated = Emulated(problem, HALF_TILES)
    for m, n, k in ((1, 1, 1), (7, 13, 5), (16, 33, 17)):
        emulated.check({"m": m, "n": n, "k": k}, seed=k)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_stays_in_its_row(value: float, library: Emulated) -> None:
    extents = {"m": 19, "n": 20, "k": 24}
    inputs = library.random_inputs(extents)
    expected = reference(library.problem, inputs)
    inputs["X"] = inputs["X"].copy()
    inputs["X"][11, 3] = value
    for tile in TILES:
        output = library.run(tile, inputs, extents)
        others = np.delete(output, 11, axis=0)
        assert np.abs(others - np.delete(expected, 11, axis=0)).max() < 1e-4, tile.name
        assert not np.isfinite(output[11]).any(), tile.name


def test_all_ways_give_the_same_bits(library: Emulated) -> None:
    """Parts of the reduction aside, each element is summed in the same order."""
    extents = {"m": 21, "n": 20, "k": 24}
    inputs = library.random_inputs(extents)
    whole = [library.run(tile, inputs, extents) for tile in TILES if tile.splits == 1]
    assert all(np.array_equal(whole[0], other) for other in whole[1:])
    assert {tile.tails for tile in TILES if tile.splits == 1} == set(TAILS)


def test_a_missing_barrier_is_seen(library: Emulated) -> None:
    """The emulation itself: without any of its barriers the text gives wrong numbers in some order."""
    tile, extents = TILES[3], {"m": 16, "n": 20, "k": 24}
    text = Emulated(library.problem, [tile]).text
    places = [i for i in range(len(text)) if text.startswith("__syncthreads();", i)]
    assert len(places) >= 2
    inputs = library.random_inputs(extents)
    expected = reference(library.problem, inputs)
    for place in places:
        broken = Emulated(library.problem, [tile])
        broken.library = compiled(text[:place] + text[place + len("__syncthreads();") :])
        errors = [np.abs(broken.run(tile, inputs, extents, order) - expected).max() for order in ORDERS]
        assert not max(errors) < 1e-3, f"without the barrier at {place}"


def test_a_write_outside_is_seen() -> None:
    """The canaries themselves."""
    array: Any = np.zeros((3, 5), np.float32)
    copy, area = guarded(array)
    assert is_whole(area, copy)
    assert copy.ctypes.data % 16 == 0
    area[(copy.ctypes.data - area.ctypes.data) // 4 + 15] = 0
    assert not is_whole(area, copy)
