"""Banks of shared memory: what warps of SIMT units read and write there, as the emulator counts it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from compiled import make_problem
from emulation import Emulated, compiled, counting

from dietcode.search_space.cuda import operand
from dietcode.search_space.cuda.banks import line_exchange, transactions
from dietcode.search_space.cuda.fetching import output_width
from dietcode.search_space.cuda.line_writing import stages_output
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import Problem

LARGE = CudaMicroKernel(128, 128, 8, 8, 16, 2, 2, stages=2)
MIDDLE = CudaMicroKernel(64, 64, 8, 4, 16, 2, 1, stages=2)
SMALL = CudaMicroKernel(16, 64, 4, 4, 16)


def dense(**fixed: int) -> Problem:
    return make_problem("mk,nk->mn", fixed, constant=False)


def counted(problem: Problem, tile: CudaMicroKernel, extents: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Transactions of a call, and the least that move as many words; of its loads and of its stores."""
    emulated = Emulated(problem, [tile])
    emulated.library = compiled(counting(emulated.text), counts_banks=True)
    library = emulated.library

    def so_far() -> list[tuple[int, int]]:
        return [(library.shared_transactions(kind), library.shared_least(kind)) for kind in (0, 1)]

    before = so_far()
    emulated.check(extents)
    pairs = [(a - c, b - d) for (a, b), (c, d) in zip(so_far(), before, strict=True)]
    return dict(zip(("loads", "stores"), pairs, strict=True))


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize(
    ("tile", "of_step"),
    [(LARGE, 6), (MIDDLE, 4), (replace(SMALL, stages=2), 3)],  # a warp is 2x16 threads
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_no_lane_waits_for_another(tile: CudaMicroKernel, of_step: int) -> None:
    """Copies of 16 bytes along the reduction are written transposed."""
    found = counted(dense(n=128, k=32), tile, {"m": tile.rows, "n": 128, "k": 32})
    warps, blocks = tile.threads // 32, 128 // tile.columns
    assert found["loads"] == (blocks * warps * 32 * of_step,) * 2
    assert found["stores"][0] == found["stores"][1] == blocks * 32 * (tile.rows + tile.columns) / 32


@pytest.mark.thorough
def test_conflicts_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulation itself: where no lines are exchanged two lanes meet in each bank."""
    monkeypatch.setattr(operand, "line_exchange", lambda *_: None)
    found = counted(dense(n=128, k=32), LARGE, {"m": 128, "n": 128, "k": 32})
    assert found["stores"][0] == 2 * found["stores"][1]


@pytest.mark.parametrize("rows", [32, 64, 128, 256])
@pytest.mark.parametrize("k_tile", [8, 16, 32])
@pytest.mark.parametrize(("width", "itemsize", "most"), [(1, 4, 1), (2, 4, 1), (4, 4, 1), (8, 2, 2)])
def test_what_is_fetched_is_written_without_conflicts_and_by_whole_sectors(
    rows: int, k_tile: int, width: int, itemsize: int, most: int
) -> None:
    inner, pitch = k_tile // width, rows + 4
    exchange = line_exchange(pitch, rows, inner, width, 256 // inner, itemsize)
    shift, bit = exchange or (k_tile, 0)
    lanes = [(lane % inner, lane // inner) for lane in range(32)]
    assert transactions(i * width * pitch + (line ^ (i >> shift << bit)) for i, line in lanes) <= most
    assert (width * itemsize << shift) >= 32
    lines = [(i, line ^ (i >> shift << bit)) for i in range(inner) for line in range(rows)]
    assert len(set(lines)) == inner * rows and max(line for _, line in lines) < rows


@pytest.mark.sampled(keep=7)
@pytest.mark.parametrize(
    "tile",
    [
        LARGE,
        MIDDLE,
        replace(LARGE, tails="checked"),
        replace(MIDDLE, splits=2, tails="partition"),
        CudaMicroKernel(24, 96, 3, 4, 8),
        CudaMicroKernel(40, 48, 5, 6, 16),
        CudaMicroKernel(48, 80, 4, 5, 16, tails="global"),
    ],
    ids=lambda tile: tile.name,
)
@pytest.mark.parametrize("fixed", [{"n": 136, "k": 40}, {}], ids=["wide", "any"])
def test_every_line_is_fetched_once(tile: CudaMicroKernel, fixed: dict[str, int]) -> None:
    emulated: Any = Emulated(dense(**fixed), [tile])
    emulated.check({"m": 131, "n": 136, "k": 40}, orders=(0, 2))
    if not fixed:
        emulated.check({"m": 5, "n": 131, "k": 37})


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("tile", [LARGE, MIDDLE, SMALL], ids=lambda tile: tile.name)
def test_lines_go_to_narrow_stores_without_conflicts(tile: CudaMicroKernel) -> None:
    """Rows of an odd number of columns are put together in shared memory, and each is written once."""
    extents = {"m": tile.rows + 1, "n": tile.columns + 1, "k": 32}
    problem = dense(n=extents["n"], k=32)
    assert stages_output(tile, 1) and output_width(problem, tile) == 1
    found = counted(problem, tile, extents)
    operands = counted(dense(n=tile.columns + 4, k=32), tile, extents | {"n": tile.columns + 4})
    assert found["loads"][0] == found["loads"][1]
    assert found["stores"][0] == found["stores"][1]
    blocks, elements = 4, tile.rows * tile.columns
    # Of the other, which stores vectors, only the operands go by way of shared memory.
    assert found["stores"][1] - operands["stores"][1] == blocks * elements / 32
    assert found["loads"][1] > operands["loads"][1]


def test_wide_stores_go_by_no_shared_memory() -> None:
    assert not stages_output(LARGE, 4)
    assert not stages_output(replace(LARGE, rows=64, columns=96, thread_columns=8, column_vthreads=1), 1)
    assert not stages_output(CudaMicroKernel(16, 16, 4, 4, 8), 1)  # a warp stores two rows at a time
