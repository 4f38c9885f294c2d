"""Micro-kernels whose warpgroups multiply from shared memory, run on the CPU against float64."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from compiled import make_problem
from emulation import ORDERS, Emulated, compiled
from kinds import KINDS, every_kind

from dietcode.search_space.cuda.classes import UNALIGNED
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import Problem
from dietcode.search_space.reference import reference
from dietcode.search_space.stage import Stage
from dietcode.target.cuda import CudaTarget

HOPPER, AMPERE = CudaTarget("sm_90a"), CudaTarget("sm_80")


def wgmma(*numbers: int, **axes: Any) -> CudaMicroKernel:
    return CudaMicroKernel(*numbers, **axes, unit="wgmma")


# Lines of 32, 64 and 128 bytes, one panel and two; one warpgroup and two, beside and above each other.
TILES = (
    wgmma(64, 8, 64, 8, 16, stages=1),
    wgmma(64, 48, 64, 48, 32, stages=2),
    wgmma(128, 64, 64, 64, 64, stages=3),
    wgmma(64, 64, 64, 32, 128, stages=2, splits=2, tails="partition"),
    wgmma(128, 32, 128, 32, 64, stages=4),
    wgmma(64, 32, 64, 32, 64, stages=3, tails="global"),
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
    assert "wgmma.mma_async" in dense(dtype).text
    dense(dtype).check({"m": m, "n": 72, "k": 200}, orders=ORDERS)


@pytest.mark.thorough
@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize(
    ("einsum", "fixed"),
    [
        ("mk,kn->mn", {"n": 64}),
        ("km,nk->mn", {"m": 136}),
        ("km,kn->mn", {"m": 72, "n": 40}),
        ("bmk,bkn->bmn", {"n": 64}),  # probabilities and values
        ("bmk,bnk->bmn", {"k": 64}),  # queries and keys
        ("bmk,bkn->bmn", {}),
    ],
)
def test_operands_along_rows_and_columns(einsum: str, fixed: dict[str, int]) -> None:
    tiles = [tile for tile in TILES if tile.thread_columns % 16 == 0]
    emulated = Emulated(half(einsum, fixed), tiles, HOPPER)
    for base in (1, 40, 72):
        own = {k: 2 if k == "b" else fixed.get(k, base) for k in emulated.problem.extents}
        emulated.check(own, seed=base, orders=(0, 2))


def test_epilogues() -> None:
    stages = (Stage("bias", tensor="bias"), Stage("residual", tensor="R"), Stage("silu"))
    problem = half("mk,nk->mn", {"n": 40, "k": 72}, "bfloat16", *stages)
    Emulated(problem, TILES[1:4], HOPPER).check({"m": 67, "n": 40, "k": 72})


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize("name", every_kind(1))
def test_every_kind_of_problem(name: str) -> None:
    """Convolutions too: what is copied through windows, and by way of registers."""
    kind, rng = KINDS[name], random.Random(name)
    problem = replace(kind.problem, operand_dtype="float16")
    emulated = Emulated(problem, [TILES[5 if len(name) % 2 else 1]], HOPPER)
    for size in (1, 12):
        chosen = {k: min(rng.randint(max(1, size - 3), size + 3), kind.largest.get(k, 99)) for k in kind.free}
        emulated.check(kind.complete(chosen), seed=size)


@cache
def twins() -> Emulated:
    return Emulated(half("mk,nk->mn", {"n": 72}), TILES, AMPERE)


@pytest.mark.thorough
def test_other_architectures_get_a_twin_under_the_same_names() -> None:
    assert "wgmma." not in twins().text
    assert "mma.sync" in twins().text
    own = re.findall(r"__global__ void \S+ (\w+)\(", twins().text)
    hopper = Emulated(half("mk,nk->mn", {"n": 72}), TILES, HOPPER)
    assert own == re.findall(r"__global__ void \S+ (\w+)\(", hopper.text)
    for k in (5, 72, 130):
        twins().check({"m": 70, "n": 72, "k": k})


@pytest.mark.parametrize("tile", [*TILES, wgmma(128, 256, 64, 256, 64, stages=4), wgmma(64, 24, 64, 24, 64)])
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100"])
def test_a_twin_is_launched_alike(tile: CudaMicroKernel, arch: str) -> None:
    sm = CudaTarget(arch).sm
    twin = tile.on(sm)
    assert twin.unit == "mma"
    assert (twin.tile, twin.threads, twin.splits, twin.tails) == (
        tile.tile,
        tile.threads,
        tile.splits,
        tile.tails,
    )
    assert twin.shared_bytes <= sm.block_shared_bytes
    assert tile.on(HOPPER.sm) is tile


def broken(tile: CudaMicroKernel, *changes: tuple[str, str], count: int | None = None) -> Emulated:
    """The text with all of some of its parts replaced."""
    emulated = Emulated(half("mk,kn->mn", {"n": 64, "k": 400}), [tile], HOPPER)
    body = emulated.text.index('extern "C"')
    head, text = emulated.text[:body], emulated.text[body:]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new) if count is None else text.replace(old, new, count)
    emulated.library = compiled(head + text)
    return emulated


EXTENTS = {"m": 100, "n": 64, "k": 400}
TILE = wgmma(64, 64, 64, 64, 64, stages=4)


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("matrix_descriptor<1, 16", "matrix_descriptor<0, 16", "a descriptor is of no tile"),
        ("matrix_descriptor<1, 16", "matrix_descriptor<2, 16", "a descriptor is of no tile"),
        (
            "matrix_descriptor<1, 8192, 1024>(",
            "matrix_descriptor<1, 8192, 1024>(32 + ",
            "a descriptor is of no tile",
        ),
        ("begin_products();", "", "products began without a fence"),
        ("wait_for_products<0>();", "", "products were not waited for"),
        (", 1024>(", ", 1024>(threadIdx.x / 64 * 1024 + ", "threads of a warpgroup gave other descriptors"),
    ],
)
def test_what_instructions_refuse_is_seen(old: str, new: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        broken(TILE, (old, new)).check(EXTENTS, orders=ORDERS)


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize(
    "change",
    [
        ("publish_copies();", ""),
        ("wait_for_copies<1>();", "wait_for_copies<2>();"),
        ("wait_for_products<1>();", "wait_for_products<2>();"),
        ("stages_ptr[(int64_t)1] = 2;", "stages_ptr[(int64_t)1] = 1;"),
        ("matrix_descriptor<1, 16, 1024>", "matrix_descriptor<1, 16, 2048>"),
        ("matrix_descriptor<1, 8192, 1024>", "matrix_descriptor<1, 8192, 2048>"),
        ("__syncthreads();", ""),
        ("__syncwarp();", ""),
    ],
)
def test_what_waits_and_describes_is_needed(change: tuple[str, str]) -> None:
    """The emulation itself: a changed text is refused, or gives wrong numbers in some order."""
    emulated = broken(TILE, change)
    inputs = emulated.random_inputs(EXTENTS)
    expected = reference(emulated.problem, inputs)
    outputs: Sequence[Any] = ()
    try:
        outputs = [emulated.run(TILE, inputs, EXTENTS, order, UNALIGNED) for order in ORDERS]
    except AssertionError as error:
        assert TILE.name in str(error)
        return
    assert not np.max([np.abs(output - expected).max() for output in outputs]) < 1


def test_shared_memory_begins_where_the_pattern_of_the_swizzle_does() -> None:
    assert "__shared__ __align__(1024) half operand_tiles_ptr" in dense().text


@pytest.mark.parametrize(
    ("numbers", "axes"),
    [
        ((32, 64, 32, 64, 64), {}),
        ((64, 264, 64, 264, 64), {}),
        ((64, 12, 64, 12, 64), {}),
        ((64, 64, 64, 64, 48), {}),
        ((64, 64, 64, 64, 64), {"stages": 7}),
        ((64, 64, 64, 64, 64), {"tails": "checked"}),
        ((64, 64, 64, 64, 64), {"row_vthreads": 2}),
    ],
)
def test_tiles_that_no_instruction_takes_are_refused(numbers: tuple[int, ...], axes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="allowed"):
        wgmma(*numbers, **axes)
