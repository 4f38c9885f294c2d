"""Machine code of micro-kernels that copy in bulk, and which of them an architecture holds."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import make_problem
from disassembly import disassembled
from needs import needs_nvrtc

from dietcode.errors import CandidateError
from dietcode.search_space.cuda.bulk_maps import form_of, maps_of
from dietcode.search_space.cuda.candidates import starting_candidates
from dietcode.search_space.cuda.launches import call_of
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text, facts_of
from dietcode.search_space.cuda.space import hardware_seeds, neighbours
from dietcode.search_space.problem import Problem
from dietcode.target.cuda import CudaTarget
from dietcode.target.nvrtc import compile_cubin

HOPPER = CudaTarget("sm_90a")
LIMITS = CudaLimits.of(HOPPER)


def half(einsum: str, fixed: dict[str, int], dtype: str = "float16") -> Problem:
    problem = make_problem(einsum, fixed, constant=False)
    return replace(problem, operand_dtype=dtype, output_dtype=dtype)


def tma(*numbers: int, stages: int = 4, **axes: Any) -> CudaMicroKernel:
    return CudaMicroKernel(*numbers, stages=stages, unit="tma", **axes)


DENSE = half("mk,nk->mn", {"n": 2304, "k": 768})
VALUES = half("bmk,bkn->bmn", {"n": 64}, "bfloat16")
LARGE = tma(128, 256, 64, 256, 64)


def seeds_of(problem: Problem) -> list[CudaMicroKernel]:
    return [seed.micro_kernel for seed in hardware_seeds(problem, LIMITS) if seed.micro_kernel.unit == "tma"]


@pytest.mark.thorough
@pytest.mark.sampled(keep=3)
@needs_nvrtc
@pytest.mark.parametrize(
    ("problem", "tiles", "kind"),
    [
        (DENSE, seeds_of(DENSE), "F32"),
        (DENSE, [tma(192, 192, 64, 192, 64, stages=3), tma(64, 256, 64, 256, 64)], "F32"),
        (VALUES, [tma(128, 64, 64, 64, 64), tma(192, 64, 64, 64, 64)], "F32.BF16"),
        (
            DENSE,
            [tma(128, 256, 64, 256, 64, cluster_columns=2), tma(128, 256, 64, 256, 64, persistent=True)],
            "F32",
        ),
        (VALUES, [tma(128, 64, 64, 64, 64, cluster_rows=2, persistent=True)], "F32.BF16"),
    ],
    ids=["seeds", "consumers", "values", "clusters", "values-of-clusters"],
)
def test_tiles_are_copied_in_bulk(
    problem: Problem, tiles: list[CudaMicroKernel], kind: str, tmp_path: Path
) -> None:
    """By one instruction for a box; barriers, products and changes of registers are instructions too."""
    cubin = compile_cubin(cuda_text(problem, tiles, HOPPER), HOPPER)
    facts = facts_of(cubin, problem, tiles, "seeds", HOPPER)
    code = disassembled(cubin, tmp_path)
    sections = dict(re.findall(r"\.text\.(\w+):\n(.*?)(?=\n\t?\.section|\Z)", code, re.DOTALL))
    for tile in tiles:
        symbol = tile.symbol if problem is DENSE else f"{tile.symbol}_by8"
        text, own = sections[symbol], facts[symbol]
        assert own.shared_bytes == tile.shared_bytes
        assert own.stack_bytes == 0
        assert 0.6 < own.registers / LIMITS.registers(problem, tile) < 1.4
        products = re.findall(r"\b(HGMMA\.\S+|HMMA\.\S+)", text)
        assert set(products) == {f"HGMMA.64x{tile.thread_columns}x16.{kind}"}
        axes = "2D" if problem is DENSE else "3D"
        multicast = {f"UTMALDG.{axes}.MULTICAST"} if tile.cluster > 1 else set()
        assert set(re.findall(r"\bUTMALDG\.\S+", text)) == {f"UTMALDG.{axes}"} | multicast
        # A cluster meets twice, and tells barriers of other blocks; a block alone does neither.
        meetings = [len(re.findall(rf"\bUCGABAR_{what}\b", text)) for what in ("ARV", "WAIT")]
        assert meetings == ([2, 2] if tile.cluster > 1 else [0, 0])
        assert bool(re.search(r"\bSYNCS\.ARRIVE\.TRANS64\.RED\b", text)) == (tile.cluster > 1)
        assert len(re.findall(r"\bMEMBAR\.\w+\.GPU\b", text)) <= (2 if tile.cluster > 1 else 0)
        for kind_of_use in ("EXCH.64", "ARRIVE.TRANS64", "PHASECHK.TRANS64.TRYWAIT"):
            assert f"SYNCS.{kind_of_use}" in text
        assert "LDGSTS" not in text
        changes = re.findall(r"\bUSETMAXREG\.\w+", text)
        roles = tile.role_registers
        assert sorted(changes) == ([] if roles is None else ["USETMAXREG.DEALLOC", "USETMAXREG.TRY_ALLOC"])
        assert roles is None or own.registers == tile.first_registers


@needs_nvrtc
def test_registers_that_nobody_gives_are_refused() -> None:
    """Fewer registers at first than a block may have would leave consumers waiting for what is not there."""
    tile, small = tma(192, 160, 64, 160, 64), tma(192, 64, 64, 64, 64)
    assert (tile.role_registers, small.role_registers) == ((32, 160), None)
    texts = [cuda_text(DENSE, [one], HOPPER) for one in (tile, small)]
    assert ["__launch_bounds__(512,1)" in text for text in texts] == [True, False]
    facts_of(compile_cubin(texts[0], HOPPER), DENSE, [tile], "right", HOPPER)
    cubin = compile_cubin(texts[1].replace(small.symbol, tile.symbol), HOPPER)
    with pytest.raises(CandidateError, match="allowed: 128, of which others are given some"):
        facts_of(cubin, DENSE, [tile], "wrong", HOPPER)


def test_the_largest_seed_changes_registers() -> None:
    assert seeds_of(DENSE)[0] == LARGE
    assert LARGE.threads == 384
    assert LARGE.role_registers == (40, 232)
    assert LARGE.first_registers == 168
    assert 128 * 40 + 256 * 232 <= 384 * 168
    assert LARGE.shared_bytes == 4 * 2 * 64 * (128 + 256) + 4 * 16


def test_a_search_starts_with_them_and_changes_who_copies() -> None:
    seeds, largest = hardware_seeds(DENSE, LIMITS), {"m": 2048, "n": 2304, "k": 768}
    started = [one.micro_kernel for one in starting_candidates(DENSE, seeds, LIMITS, largest)]
    assert set(seeds_of(DENSE)) < set(started)
    others = [one for one in started if not one.is_alone]
    assert len(others) == 7  # two seeds, and neighbours of those whose blocks are alone
    assert set(others[:2]) == {one for one in seeds_of(DENSE) if not one.is_alone}
    around = neighbours(DENSE, others[0], LIMITS, 768)
    assert {(one.cluster_rows, one.cluster_columns, one.persistent) for one in around} == {
        (2, 1, True),
        (1, 2, True),
        (2, 1, False),
        (1, 1, True),
        (1, 1, False),  # as those that copy by threads are
    }
    assert LARGE in neighbours(DENSE, replace(LARGE, unit="wgmma"), LIMITS, 768)
    assert replace(LARGE, unit="wgmma") in neighbours(DENSE, LARGE, LIMITS, 768)


def test_maps_say_what_the_driver_is_told() -> None:
    extents = {"b": 6, "m": 40, "k": 72, "n": 64}
    (block,) = call_of(VALUES, tma(128, 64, 64, 64, 64), extents).launches
    assert [one.to_json() for one in block.maps] == [
        {
            "argument": "X",
            "data_type": 9,  # CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
            "swizzle": 3,  # CU_TENSOR_MAP_SWIZZLE_128B
            "extents": [72, 40, 6],
            "strides": [144, 5760],
            "box": [64, 128, 1],
        },
        {
            "argument": "W",
            "data_type": 9,
            "swizzle": 3,
            "extents": [64, 72, 6],
            "strides": [128, 9216],
            "box": [64, 64, 1],
        },
    ]
    odd = call_of(VALUES, tma(128, 64, 64, 64, 64), extents | {"k": 71}).launches[0]
    assert (odd.maps, odd.threads) == ((), 256)


@pytest.mark.parametrize("rows", [64, 128, 320, 512])
def test_boxes_of_a_tile_are_whole(rows: int) -> None:
    """No box has more than 256 lines, and together they are the tile."""
    tile = CudaMicroKernel(rows, 64, 64, 64, 128, stages=1, unit="tma")
    for einsum in ("mk,nk->mn", "km,kn->mn"):
        for own, extent in zip(
            maps_of(half(einsum, {"m": 1024, "n": 512, "k": 512}), tile), (rows, 64), strict=True
        ):
            boxes = [axis.box for axis in own.axes]
            assert max(boxes) <= 256
            assert own.num_boxes * np.prod(boxes) == extent * 128


@pytest.mark.parametrize(
    ("problem", "tile", "message"),
    [
        (half("mk,nk->mn", {"n": 72, "k": 130}), tma(64, 64, 64, 64, 64), "no tensor map describes"),
        (half("bhmk,hnk->bhmn", {"k": 64}), tma(64, 64, 64, 64, 64), "no tensor map describes"),
        (replace(DENSE, operand_dtype="float32"), LARGE, "float32"),
        (DENSE, tma(256, 256, 64, 256, 64), "allowed: 227|shared memory"),
        (DENSE, tma(256, 128, 64, 128, 16), "about 104 registers; allowed: 96 of 640 threads"),
        (DENSE, tma(128, 256, 64, 256, 64, stages=5, persistent=True), "allowed: 227|shared memory"),
    ],
)
def test_what_cannot_be_copied_in_bulk_is_refused(
    problem: Problem, tile: CudaMicroKernel, message: str
) -> None:
    assert re.search(message, LIMITS.why_not(problem, tile) or "")
    assert not LIMITS.holds(problem, tile)


def test_classes_without_maps_are_copied_by_threads() -> None:
    assert form_of(DENSE, LARGE) is LARGE
    odd = half("mk,nk->mn", {"n": 2304, "k": 769})
    assert maps_of(odd, LARGE) == ()
    assert form_of(odd, LARGE) == replace(LARGE, unit="wgmma")


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_no_search_elsewhere_takes_them(arch: str) -> None:
    limits = CudaLimits.of(CudaTarget(arch))
    assert "allowed: sm_90a" in (limits.why_not(DENSE, LARGE) or "")
    assert limits.why_never(DENSE, LARGE) is None
