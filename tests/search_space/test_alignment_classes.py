"""Alignment classes: one micro-kernel whose copies are as wide as a call's extents allow."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from compiled import make_problem
from emulation import Emulated

from dietcode.search_space.access import size_of
from dietcode.search_space.cuda.classes import UNALIGNED, alignment_classes
from dietcode.search_space.cuda.fetching import plan_fetch
from dietcode.search_space.cuda.forms import call_shape, device_problem, functions_of
from dietcode.search_space.cuda.launches import call_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import Problem

TILES = {
    "float32": (
        CudaMicroKernel(16, 16, 4, 4, 8, stages=2),
        CudaMicroKernel(8, 16, 2, 8, 8, splits=2),
        CudaMicroKernel(16, 16, 4, 4, 8, tails="partition"),
    ),
    "float16": (
        CudaMicroKernel(16, 16, 2, 8, 8, stages=2),
        CudaMicroKernel(32, 32, 16, 16, 32, stages=3, unit="mma"),
        CudaMicroKernel(32, 16, 16, 8, 16, stages=2, splits=2, unit="mma"),
    ),
}
EINSUMS = {"dense": ("mk,nk->mn", {}), "pv": ("bmk,bkn->bmn", {"n": 16}), "qk": ("bmk,bnk->bmn", {"k": 16})}


def problem_of(einsum: str, fixed: dict[str, int], dtype: str) -> Problem:
    problem = make_problem(einsum, fixed, constant=False)
    return device_problem(replace(problem, operand_dtype=dtype, output_dtype=dtype))


@cache
def emulated(name: str, dtype: str) -> Emulated:
    return Emulated(problem_of(*EINSUMS[name], dtype), TILES[dtype])


@pytest.mark.parametrize(
    ("name", "dtype", "tile", "expected"),
    [
        ("dense", "float32", 0, [(4, ("k", "n")), (1, ())]),  # 8 are no wider than 4: 16 bytes
        ("dense", "float16", 1, [(8, ("k", "n")), (4, ("k", "n")), (1, ())]),
        ("pv", "float16", 1, [(8, ("k",)), (4, ("k",)), (1, ())]),
        ("qk", "float16", 1, [(8, ("n",)), (4, ("n",)), (1, ())]),  # the output alone
    ],
)
def test_a_class_asks_for_no_more_than_its_widths_need(
    name: str, dtype: str, tile: int, expected: list[tuple[int, tuple[str, ...]]]
) -> None:
    classes = alignment_classes(problem_of(*EINSUMS[name], dtype), TILES[dtype][tile])
    assert [(one.multiple, one.indices) for one in classes] == expected


def test_where_fixed_extents_say_all_there_is_one_class() -> None:
    problem = problem_of("mk,nk->mn", {"n": 40, "k": 72}, "float16")
    for tile in TILES["float16"]:
        assert alignment_classes(problem, tile) == (UNALIGNED,)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_copy_is_of_sixteen_bytes_where_a_dynamic_extent_allows_it(dtype: str) -> None:
    for tile in TILES[dtype][:2]:
        problem = problem_of(*EINSUMS["pv"], dtype)
        widths = [
            plan_fetch(one.problem(problem), "X", tile).width for one in alignment_classes(problem, tile)
        ]
        assert widths == ([4, 1] if dtype == "float32" else [8, 4, 1])


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", EINSUMS)
def test_all_classes_give_the_same_bits(name: str, dtype: str) -> None:
    """At extents that every class serves, and at those that leave the narrower ones alone."""
    own = emulated(name, dtype)
    for size, serving in ((7, 1), (12, 2), (24, 3), (40, 3)):
        extents = {k: EINSUMS[name][1].get(k, size) for k in own.problem.extents}
        own.check(extents, seed=size, orders=(0, 2))
        inputs = own.random_inputs(extents, size)
        for tile in own.tiles:
            fitting = [one for one in alignment_classes(own.problem, tile) if one.serves(extents)]
            assert len(fitting) <= serving
            outputs = [own.run(tile, inputs, extents, own=one) for one in fitting]
            assert all(np.array_equal(outputs[0], other) for other in outputs[1:]), tile.name


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_vector_at_an_address_that_is_no_multiple_is_seen(dtype: str) -> None:
    """The emulation itself: views that begin at an odd element, which the class without vectors takes."""
    own = emulated("dense", dtype)
    extents = {"m": 9, "k": 24, "n": 16}
    inputs = own.random_inputs(extents)
    for tile in own.tiles:
        *wider, unaligned = alignment_classes(own.problem, tile)
        for one in wider:
            with pytest.raises(AssertionError, match="no multiple of what is read there"):
                own.run(tile, inputs, extents, own=one, shift=1)
        output = own.run(tile, inputs, extents, own=unaligned, shift=1)
        assert np.array_equal(output, own.run(tile, inputs, extents))


def test_a_call_launches_the_class_that_its_extents_fit() -> None:
    problem, tile = problem_of(*EINSUMS["dense"], "float16"), TILES["float16"][2]
    symbols = [function.symbol for function in functions_of(problem, tile)]
    assert len(symbols) == len(set(symbols)) == 4  # three block functions, and one that adds the parts
    for k, n, suffix in ((8, 16, "_by8"), (4, 16, "_by4"), (12, 20, "_by4"), (8, 9, ""), (5, 16, "")):
        call = call_of(problem, tile, {"m": 3, "n": n, "k": k})
        assert [launch.symbol for launch in call.launches] == [tile.symbol + suffix, f"{tile.symbol}_sum"]
        assert call.launches[call.block].symbol == tile.symbol + suffix
        assert set(symbols) >= {launch.symbol for launch in call.launches}


def test_loads_and_stores_are_counted_by_class() -> None:
    """A block of 32x32 over 32 steps: two operands of 1024 elements, and as many of the output."""
    problem, tile = problem_of(*EINSUMS["dense"], "float16"), TILES["float16"][1]
    sizes = np.asarray([32, 36, 33])
    extents: dict[str, Any] = {"m": np.full(3, 32), "n": np.full(3, 32), "k": np.full(3, 32)}
    counted = call_shape(problem, tile, extents | {"k": sizes}).demand
    steps = np.asarray([32, 64, 64])
    assert counted.num_steps.tolist() == steps.tolist()
    widths = np.asarray([8, 4, 1])
    assert counted.vectors.tolist() == (steps * 64 / widths + 1024 / np.asarray([8, 4, 1])).tolist()
    assert size_of(problem, ("k",)).factor == 1
