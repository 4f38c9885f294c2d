"""Micro-kernels whose tiles a warpgroup of its own copies in bulk, run on the CPU against float64."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import emulation
import numpy as np
import pytest
from compiled import make_problem
from emulation import ORDERS, Emulated, compiled, launch

from dietcode.search_space.cuda.classes import UNALIGNED, alignment_classes
from dietcode.search_space.cuda.forms import functions_of, launches_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import Problem
from dietcode.search_space.reference import reference
from dietcode.search_space.stage import Stage
from dietcode.target.cuda import CudaTarget
from dietcode.workload.dtypes import nan_filled, widened

HOPPER, AMPERE = CudaTarget("sm_90a"), CudaTarget("sm_80")


def tma(*numbers: int, **axes: Any) -> CudaMicroKernel:
    return CudaMicroKernel(*numbers, **axes, unit="tma")


# Lines of 32, 64 and 128 bytes, one panel and two; one consumer and two, beside and above each other.
TILES = (
    tma(64, 8, 64, 8, 16, stages=1),
    tma(64, 48, 64, 48, 32, stages=2),
    tma(128, 64, 64, 64, 64, stages=3),
    tma(64, 64, 64, 32, 128, stages=2, splits=2, tails="partition"),
    tma(128, 32, 128, 32, 64, stages=4),
    tma(64, 32, 64, 32, 64, stages=3, tails="global"),
)


def half(einsum: str, fixed: dict[str, int], dtype: str = "float16", *stages: Stage) -> Problem:
    problem = make_problem(einsum, fixed, stages, constant=False)
    return replace(problem, operand_dtype=dtype, output_dtype=dtype)


@cache
def dense(dtype: str = "float16") -> Emulated:
    return Emulated(half("mk,nk->mn", {"n": 72, "k": 200}, dtype), TILES, HOPPER)


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("m", [1, 64, 70, 150])
def test_rows_of_any_number(m: int, dtype: str) -> None:
    assert "copy_box_2(" in dense(dtype).text
    assert "cp.async.ca" not in dense(dtype).text
    dense(dtype).check({"m": m, "n": 72, "k": 200}, orders=ORDERS)


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize(
    ("einsum", "fixed"),
    [
        ("mk,kn->mn", {"n": 64}),
        ("km,nk->mn", {"m": 136}),
        ("km,kn->mn", {"m": 72, "n": 40}),
        ("bmk,bkn->bmn", {"n": 64}),  # probabilities and values
        ("bmk,bnk->bmn", {"k": 64}),  # queries and keys
        ("mbk,bnk->bmn", {"k": 64}),  # a batch that lies inside of the rows
        ("bmk,nk->bmn", {"k": 64, "n": 48}),  # and one that an operand lacks
    ],
)
def test_operands_along_rows_and_columns(einsum: str, fixed: dict[str, int]) -> None:
    """With extents that fit a map, and others, for which threads copy."""
    tiles = [tile for tile in TILES if tile.thread_columns % 16 == 0]
    emulated = Emulated(half(einsum, fixed), tiles, HOPPER)
    for base in (1, 40, 72):
        own = {k: 2 if k == "b" else fixed.get(k, base) for k in emulated.problem.extents}
        emulated.check(own, seed=base, orders=(0, 2))


def test_epilogues() -> None:
    stages = (Stage("bias", tensor="bias"), Stage("residual", tensor="R"), Stage("silu"))
    problem = half("mk,nk->mn", {"n": 40, "k": 72}, "bfloat16", *stages)
    Emulated(problem, TILES[1:4], HOPPER).check({"m": 67, "n": 40, "k": 72})


def test_extents_and_addresses_choose_who_copies() -> None:
    """Where rows begin at multiples of 16 bytes copies are in bulk; others by threads, for the same bits."""
    problem, tile = half("mk,nk->mn", {"n": 48}), TILES[2]
    emulated = Emulated(problem, [tile], HOPPER)
    classes = alignment_classes(emulated.problem, tile)
    functions = [launches_of(emulated.problem, tile, own)[0] for own in classes]
    assert [own.multiple for own in classes] == [8, 4, 1]
    assert [len(function.maps) for function in functions] == [2, 0, 0]
    assert [function.threads for function in functions] == [384, 256, 256]
    texts = dict(re.findall(r"__global__ void \S+ (\w+)\((.*?)\n\}\n", emulated.text, re.DOTALL))
    assert ["copy_box_2(" in texts[function.symbol] for function in functions] == [True, False, False]
    extents = {"m": 70, "n": 48, "k": 136}
    inputs = emulated.random_inputs(extents)
    outputs = [emulated.run(tile, inputs, extents, own=own) for own in classes]
    assert np.array_equal(outputs[0], outputs[1])
    assert np.array_equal(outputs[0], outputs[2])


@cache
def twins() -> Emulated:
    return Emulated(half("mk,nk->mn", {"n": 72}), TILES, AMPERE)


@pytest.mark.thorough
def test_other_architectures_get_a_twin_under_the_same_names() -> None:
    assert "copy_box" not in twins().text
    assert "mma.sync" in twins().text
    own = re.findall(r"__global__ void \S+ (\w+)\(", twins().text)
    hopper = Emulated(half("mk,nk->mn", {"n": 72}), TILES, HOPPER)
    assert own == re.findall(r"__global__ void \S+ (\w+)\(", hopper.text)
    for tile in TILES:
        twin = tile.on(AMPERE.sm)
        assert (twin.unit, twin.tile, twin.tails) == ("mma", tile.tile, tile.tails)
        assert twin.threads == tile.threads - 128
    library = twins().library
    for tile in TILES:  # launched as the architecture's own
        for k in (5, 72, 130):
            extents = {"m": 70, "n": 72, "k": k}
            inputs = twins().random_inputs(extents)
            output = run_twin(library, tile, inputs, extents)
            assert np.abs(output - reference(twins().problem, inputs)).max() < 0.1


def run_twin(library: Any, tile: CudaMicroKernel, inputs: dict[str, Any], extents: dict[str, int]) -> Any:
    """The output of a twin, whose functions have the names of the micro-kernel."""
    problem, twin = twins().problem, tile.on(AMPERE.sm)
    names = zip(functions_of(problem, twin), functions_of(problem, tile), strict=True)
    known = {f"call_{own.symbol}": getattr(library, f"call_{given.symbol}") for own, given in names}
    renamed = SimpleNamespace(emulate=library.emulate, **known)
    output = nan_filled(problem.shape(problem.output, extents), problem.output_dtype)
    found = launch(problem, renamed, twin, inputs, {problem.output: output}, extents)
    return widened(found[problem.output], problem.output_dtype)


def broken(tile: CudaMicroKernel, *changes: tuple[str, str], count: int | None = None) -> Emulated:
    """The text with all of some of its parts replaced, or with so many of them."""
    emulated = Emulated(half("mk,kn->mn", {"n": 64, "k": 400}), [tile], HOPPER)
    body = emulated.text.index('extern "C"')
    head, text = emulated.text[:body], emulated.text[body:]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new) if count is None else text.replace(old, new, count)
    emulated.library = compiled(head + text)
    return emulated


EXTENTS = {"m": 200, "n": 64, "k": 400}
TILE = tma(128, 64, 64, 64, 64, stages=3)


def test_what_is_broken_below_is_right() -> None:
    broken(TILE).check(EXTENTS, orders=ORDERS)


@pytest.mark.sampled(keep=5)
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("show_barriers();", "", "not shown"),
        ("make_barrier<1>(", "make_barrier<2>(", "never over"),
        ("make_barrier<8>(", "make_barrier<9>(", "never over"),
        ("make_barrier<8>(", "make_barrier<7>(", "never over"),
        ("arrive_and_expect<24576>(", "arrive_and_expect<24560>(", "never over"),
        ("arrive_and_expect<24576>(", "arrive_and_expect<32768>(", "never over"),
        ("arrive_and_expect<24576>(", "arrive(", "never over|more threads arrive|were not waited for"),
        ("arrive(((address_ptr", "arrive_and_expect<16>(((address_ptr", "never over|nobody copied"),
        ("copy_box_2(map_W", "copy_box_2(map_X", "a box is of no map"),
        ("copy_box_2(map_X, (", "copy_box_2(map_X, 16 + (", "a box is of no map"),
        ("copy_box_2(map_X, (", "copy_box_2(map_X, (1 << 20) + (", "a box is of no map"),
        ("meet_consumers<256>();", "meet_consumers<384>();", "different barriers"),
        (
            "24576))), ((address_ptr[0] + (uint)73728)",
            "24576))), ((address_ptr[0] + (uint)73724)",
            "not made",
        ),
        ("copy_box_2(map_W", "if (v != 3) copy_box_2(map_W", "never over"),
    ],
)
def test_what_barriers_and_maps_refuse_is_seen(old: str, new: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        broken(TILE, (old, new)).check(EXTENTS, orders=ORDERS)


_WAIT = "wait_for_phase(((address_ptr[0] + (uint)73728) + "
FULL = f"{_WAIT}((uint)(read_ptr[0] * 8))), read_ptr[1]);"
EMPTY = f"{_WAIT}((uint)((filled_ptr[0] * 8) + 24))), filled_ptr[1]);"


def is_refused_or_wrong(emulated: Emulated, tile: CudaMicroKernel) -> bool:
    inputs = emulated.random_inputs(EXTENTS)
    expected = reference(emulated.problem, inputs)
    try:
        outputs = [emulated.run(tile, inputs, EXTENTS, order, UNALIGNED) for order in ORDERS]
    except AssertionError as error:
        assert tile.name in str(error) or "no driver" in str(error)
        return True
    return not np.max([np.abs(output - expected).max() for output in outputs]) < 1


@pytest.mark.sampled(keep=6)
@pytest.mark.parametrize(
    "change",
    [
        (FULL, ""),
        (EMPTY, ""),
        ("read_ptr[(int64_t)1] = 0;", "read_ptr[(int64_t)1] = 1;"),
        ("filled_ptr[(int64_t)1] = 1;", "filled_ptr[(int64_t)1] = 0;"),
        ("(1 - read_ptr[1])", "read_ptr[1]"),
        ("(1 - filled_ptr[1])", "filled_ptr[1]"),
        ("wait_for_products<1>();", "wait_for_products<2>();"),
        ("((int64_t)1 <= v_2)", "((int64_t)0 <= v_2)"),
        ("(uint)((freed_ptr[0] * 8) + 24)", "(uint)((read_ptr[0] * 8) + 24)"),
        ("__syncwarp();", ""),
        ("meet_consumers<256>();", ""),
        ("(((int)v) * 64)", "(((int)v) * 32)"),
        ("* 24576))) + (uint)16384)", "* 24576))) + (uint)8192)"),
        ("* (int64_t)128)));", "* (int64_t)64)));"),
        ("matrix_descriptor<1, 16, 1024>", "matrix_descriptor<1, 16, 2048>"),
        ("matrix_descriptor<1, 8192, 1024>", "matrix_descriptor<2, 8192, 512>"),
    ],
)
def test_what_waits_and_describes_is_needed(change: tuple[str, str]) -> None:
    """The emulation itself: a changed text is refused, or gives wrong numbers in some order."""
    assert is_refused_or_wrong(broken(TILE, change), TILE)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: {"swizzle": one.swizzle - 1, "box": (32, one.box[1])},
        lambda one: {"swizzle": one.swizzle - 1},
        lambda one: {"box": (one.box[0], one.box[1] // 2)},
        lambda one: {"box": (one.box[0], 264)},
        lambda one: {"strides": tuple(2 * n for n in one.strides)},
        lambda one: {"strides": tuple(n + 8 for n in one.strides)},
        lambda one: {"extents": (one.extents[0], one.extents[1] - 8)},
        lambda one: {"extents": tuple(reversed(one.extents))},
        lambda one: {"data_type": 7},
    ],
)
def test_maps_of_something_else_are_noticed(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    known = emulation.map_arguments
    monkeypatch.setattr(
        emulation, "map_arguments", lambda one, address: known(replace(one, **change(one)), address)
    )
    assert is_refused_or_wrong(broken(TILE), TILE)


@pytest.mark.parametrize(
    "change",
    [
        ("give_registers<40>", "give_registers<64>"),
        ("take_registers<232>", "take_registers<240>"),
        ("take_registers<232>();", ""),
        ("give_registers<40>();", "if (threadIdx.x < 352) give_registers<40>();"),
    ],
)
def test_registers_are_given_before_they_are_taken(change: tuple[str, str]) -> None:
    tile, extents = tma(128, 256, 64, 256, 64, stages=4), {"m": 9, "n": 256, "k": 72}
    emulated = Emulated(half("mk,nk->mn", {"n": 256, "k": 72}), [tile], HOPPER)
    assert tile.role_registers == (40, 232)
    emulated.check(extents)
    assert change[0] in emulated.text
    body = emulated.text.index('extern "C"')
    emulated.library = compiled(emulated.text[:body] + emulated.text[body:].replace(*change))
    with pytest.raises(AssertionError, match="registers are taken that nobody gave"):
        emulated.check(extents)


@pytest.mark.parametrize(
    ("numbers", "axes"),
    [
        ((32, 64, 32, 64, 64), {}),
        ((64, 264, 64, 264, 64), {}),
        ((64, 64, 64, 64, 64), {"stages": 7}),
        ((64, 64, 64, 64, 64), {"tails": "checked"}),
    ],
)
def test_tiles_that_no_instruction_takes_are_refused(numbers: tuple[int, ...], axes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="allowed"):
        tma(*numbers, **axes)
