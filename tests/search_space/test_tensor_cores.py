"""Micro-kernels for tensor cores, run on the CPU against float64."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from compiled import make_problem
from emulation import ORDERS, Emulated, compiled, without_classes
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import KINDS, every_kind

from dietcode.search_space.cuda.classes import UNALIGNED
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.shape import alignments
from dietcode.search_space.problem import Problem
from dietcode.search_space.reference import reference
from dietcode.search_space.stage import Stage


class Suffixed:
    """A library in which the functions of one text end in its number."""

    def __init__(self, library: Any, number: int) -> None:
        self.library, self.number = library, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, f"{name}_{self.number}" if name.startswith("call_") else name)


def compile_together(several: Sequence[Emulated]) -> None:
    """Compile texts as one, which takes a fraction of the time."""
    bodies = []
    for number, emulated in enumerate(several):
        body = emulated.text[emulated.text.index('extern "C"') :]
        bodies.append(re.sub(r"(__launch_bounds__\(\d+\) \w+)\(", rf"\1_{number}(", body))
    head = max((e.text[: e.text.index('extern "C"')] for e in several), key=len)
    library = compiled(head + "\n".join(bodies))
    for number, emulated in enumerate(several):
        emulated.library = Suffixed(library, number)


def mma(*numbers: int, **axes: Any) -> CudaMicroKernel:
    return CudaMicroKernel(*numbers, **axes, unit="mma")


# One to eight chunks in a line of shared memory, all numbers of stages, fragments in one turn and in two.
TILES = (
    mma(16, 16, 16, 8, 16, stages=2),
    mma(32, 32, 16, 16, 32, stages=1),
    mma(32, 48, 16, 24, 32, stages=3, splits=2),  # an odd number of 8 columns
    mma(32, 64, 32, 16, 64, stages=4, tails="partition"),
    mma(48, 8, 16, 8, 16, stages=3, splits=3, tails="partition"),  # fetches are no multiple of the threads
    mma(32, 16, 16, 8, 32, stages=2, tails="global"),
)


def half(einsum: str, fixed: dict[str, int] | None = None, dtype: str = "float16", *stages: Stage) -> Problem:
    problem = make_problem(einsum, fixed or {}, stages, constant=False)
    return replace(problem, operand_dtype=dtype, output_dtype=dtype)


@cache
def dense(dtype: str = "float16") -> Emulated:
    """A dense layer with a fixed weight: copies of 16 bytes, wide stores."""
    return Emulated(half("mk,nk->mn", {"n": 40, "k": 72}, dtype), TILES)


@cache
def free() -> Emulated:
    """A dense layer of which nothing is known: elements one by one."""
    return Emulated(half("mk,nk->mn"), TILES[:-1])  # copies of global padding are read in chunks


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("m", [1, 16, 33, 64])
def test_rows_of_any_number(m: int, dtype: str) -> None:
    dense(dtype).check({"m": m, "n": 40, "k": 72}, orders=ORDERS)
    assert dense(dtype).library.bank_conflicts() == 0


@settings(max_examples=examples(20), deadline=None)
@given(m=st.integers(1, 70), n=st.integers(1, 70), k=st.integers(1, 140), order=st.sampled_from(ORDERS))
def test_any_shape(m: int, n: int, k: int, order: int) -> None:
    free().check({"m": m, "n": n, "k": k}, orders=(order,))


@pytest.mark.thorough
@pytest.mark.parametrize(("fixed", "width"), [({"k": 72}, 8), ({"k": 12}, 4), ({"k": 70}, 2)])
def test_copies_are_as_wide_as_the_extents_allow(fixed: dict[str, int], width: int) -> None:
    problem = half("mk,nk->mn", fixed)
    emulated = Emulated(problem, [TILES[2], TILES[3]])
    assert f"copy_{2 * width}(" in emulated.text
    assert alignments(emulated.problem, TILES[2])["W"] == 2 * width
    assert "fetched_" not in emulated.text
    for m in (5, 50):
        emulated.check({"m": m, "n": m - 1, **fixed}, orders=(0, 2))


def test_elements_that_cannot_be_copied_go_by_registers() -> None:
    unaligned = without_classes(free().text)
    assert "copy_" not in unaligned[unaligned.index('extern "C"') :]
    assert "fetched_X" in unaligned
    assert "copy_16(" in free().text  # where extents are multiples of 8


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize(
    ("einsum", "fixed", "transposed"),
    [
        ("mk,kn->mn", {"n": 40}, 1),
        ("km,nk->mn", {"m": 56, "k": 40}, 1),
        ("km,kn->mn", {"m": 48, "n": 20}, 2),
        ("bmk,bkn->bmn", {"n": 64}, 1),  # probabilities and values
        ("bmk,bnk->bmn", {"k": 64}, 0),  # queries and keys
    ],
)
def test_operands_along_rows_and_columns(einsum: str, fixed: dict[str, int], transposed: int) -> None:
    emulated = Emulated(half(einsum, fixed), TILES[2:])
    assert ("_transposed(" in emulated.text) is bool(transposed)
    letters = sorted(emulated.problem.extents)
    for base in (1, 19, 67):
        own = {k: 2 if k == "b" else fixed.get(k, base + i) for i, k in enumerate(letters)}
        emulated.check(own, seed=base, orders=(0, 2))
    assert emulated.library.bank_conflicts() == 0


@cache
def of_kind(name: str) -> Emulated:
    """A kind of problem, in turn of both dtypes, with one micro-kernel."""
    number = list(KINDS).index(name)
    problem = replace(KINDS[name].problem, operand_dtype=("float16", "bfloat16")[number % 2])
    return Emulated(problem, [TILES[number % len(TILES)]])


@cache
def compile_all_kinds() -> None:
    compile_together([of_kind(name) for name in KINDS])


@pytest.mark.sampled(keep=5)
@pytest.mark.parametrize("name", every_kind(1))
def test_every_kind_of_problem(name: str) -> None:
    kind, rng = KINDS[name], random.Random(name)
    if os.environ.get("DIETCODE_TEST_LONG"):  # else each of the few is compiled by itself
        compile_all_kinds()
    for size in (1, 5, 12):
        chosen = {k: min(rng.randint(max(1, size - 3), size + 3), kind.largest.get(k, 99)) for k in kind.free}
        of_kind(name).check(kind.complete(chosen), seed=size)


@pytest.mark.parametrize(("operands", "output"), [("float16", "float32"), ("bfloat16", "float16")])
def test_epilogues_and_output_dtypes(operands: str, output: str) -> None:
    stages = (Stage("bias", tensor="bias"), Stage("residual", tensor="R"), Stage("silu"))
    problem = replace(half("mk,nk->mn", {"n": 40, "k": 72}, operands, *stages), output_dtype=output)
    Emulated(problem, [TILES[2], TILES[3]]).check({"m": 37, "n": 40, "k": 72})


def test_all_ways_give_the_same_bits_but_for_the_steps_of_an_instruction() -> None:
    """Parts of the reduction aside, 16 steps are added at a time, in order."""
    extents = {"m": 50, "n": 40, "k": 72}
    inputs = dense().random_inputs(extents)
    whole = [dense().run(tile, inputs, extents) for tile in TILES if tile.splits == 1]
    assert all(np.array_equal(whole[0], other) for other in whole[1:])


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize(
    ("tile", "einsum", "fixed"),
    [
        (TILES[0], "mk,kn->mn", {"n": 40, "k": 200}),
        (replace(TILES[0], stages=1), "mk,nk->mn", {"n": 40, "k": 200}),
        (mma(32, 16, 32, 8, 32, stages=3), "mk,nk->mn", {"n": 40, "k": 200}),
        (mma(32, 16, 32, 8, 32, stages=3), "mk,nk->mn", {"n": 40}),
    ],
)
def test_what_waits_is_needed(tile: CudaMicroKernel, einsum: str, fixed: dict[str, int]) -> None:
    """The emulation itself: without any one of what waits the text gives wrong numbers in some order."""
    whole, extents = Emulated(half(einsum, fixed), [tile]), {"m": 40, "n": 40, "k": 200}
    whole.text = without_classes(whole.text)
    inputs = whole.random_inputs(extents)
    expected = reference(whole.problem, inputs)
    body = whole.text.index('extern "C"')
    waits = ["__syncthreads();", "__syncwarp();", "end_copies();"]
    waits += [f"wait_for_copies<{n}>();" for n in range(3)]
    places = [(i, w) for w in waits for i in range(body, len(whole.text)) if whole.text.startswith(w, i)]
    if "k" not in fixed:  # nothing is copied
        places = [(i, wait) for i, wait in places if "copies" not in wait]
    assert len(places) >= 4
    broken = [Emulated(half(einsum, fixed), [tile]) for _ in places]
    for (place, wait), emulated in zip(places, broken, strict=True):
        emulated.text = whole.text[:place] + whole.text[place + len(wait) :]
    compile_together(broken)
    for (place, wait), emulated in zip(places, broken, strict=True):
        outputs = [emulated.run(tile, inputs, extents, order, UNALIGNED) for order in ORDERS]
        errors = [np.abs(output - expected).max() for output in outputs]
        assert not np.max(errors) < 1, f"without {wait} at {place}"


def test_a_write_behind_the_shared_memory_is_seen() -> None:
    """The emulation itself: tiles lie 1 KiB further than they should."""
    tile = TILES[1]
    emulated = Emulated(dense().problem, [tile])
    begin = " address_ptr[0] = "
    assert emulated.text.count(begin) == 1
    emulated.library = compiled(emulated.text.replace(begin, f"{begin}{tile.shared_bytes - 1024} + "))
    with pytest.raises(AssertionError, match="wrote behind its shared memory"):
        emulated.check({"m": 40, "n": 40, "k": 72})


def test_an_address_that_is_no_multiple_is_seen() -> None:
    """The emulation itself: a chunk is copied from two bytes further."""
    emulated = Emulated(dense().problem, [TILES[1]])
    emulated.library = compiled(emulated.text.replace("(&(arg_X[(", "(&(arg_X[1 + ("))
    with pytest.raises(AssertionError, match="no multiple of what is read there"):
        emulated.check({"m": 40, "n": 40, "k": 72})
