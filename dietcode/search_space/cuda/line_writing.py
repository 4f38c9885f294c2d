"""Narrow stores of SIMT units, put together: rows of a warp's accumulators by way of shared memory.

A thread holds runs of neighbouring columns. Where rows begin at addresses that allow no vectors, it would
store element by element, and neighbouring lanes a run apart: a warp touches every sector of its rows as often
as a run has elements. Instead the lanes of a warp put one row of each thread in shared memory, and store
neighbouring elements, as lanes of tensor cores do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cuda.building import aligned, local, once, only_if, sync, sync_warp, wide
from dietcode.search_space.cuda.fetching import WIDTHS
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.output import Writer
from dietcode.search_space.tir import load, store
from dietcode.target.multiprocessor import WARP


class AccumulatorBlock(Protocol):
    """The block of threads whose accumulators are written, as `dietcode.search_space.cuda.block` has it."""

    micro_kernel: CudaMicroKernel
    thread: Any
    thread_row: Any
    batch: Any
    first_row: Any
    first_column: Any
    rows: Any
    columns: Any
    has_ragged_rows: bool
    has_ragged_columns: bool
    accumulators: Any
    shared: Any

    def thread_offsets(self, rows: bool) -> Callable[[Any], Any]:
        """Return ``i -> offset in the block's tile`` of a thread's row, or column, int32."""


def stages_output(micro_kernel: CudaMicroKernel, width: int) -> bool:
    """Return whether accumulators go to the output by way of shared memory.

    They do where stores of `width` columns are narrower than the vectors that a thread's run is made of, a
    warp's threads make whole rows of the block's tile, each of them so long that a warp stores no two at a
    time, and a row of each thread fits where the operands were.
    """
    across = micro_kernel.columns // micro_kernel.thread_columns
    is_whole = WARP % across == 0 and micro_kernel.threads % WARP == 0
    room = micro_kernel.stages * micro_kernel.k_tile * (micro_kernel.row_pitch + micro_kernel.column_pitch)
    fits = micro_kernel.threads * micro_kernel.thread_columns <= room
    return width < _vector(micro_kernel) and is_whole and micro_kernel.columns % (WARP * width) == 0 and fits


def _vector(micro_kernel: CudaMicroKernel) -> int:
    """Return how many accumulators of a run are copied at once."""
    run = micro_kernel.thread_columns // micro_kernel.column_vthreads
    return next(width for width in WIDTHS if run % width == 0)


def write_by_lines(kernel: AccumulatorBlock, writer: Writer, is_inside: bool) -> None:
    """Write what exists of the block's tile, a row of each thread at a time."""
    micro_kernel, own = kernel.micro_kernel, kernel.micro_kernel.thread_columns
    vector, column_offset = _vector(micro_kernel), kernel.thread_offsets(False)
    warp, lane = (divide(kernel.thread, WARP) for divide in (tirx.truncdiv, tirx.truncmod))
    lines = WARP * own // micro_kernel.columns  # rows of the tile that a warp has a row of threads for
    start, first_line = once("own_lines", warp * (WARP * own)), once("first_line", warp * lines)
    at = once("own_line", start + (kernel.thread_row - first_line) * micro_kernel.columns)
    values = local("line", writer.width)
    if micro_kernel.stages == 1:
        sync()  # other warps may still read the operands
    with T.unroll(0, micro_kernel.thread_rows) as i:
        with T.unroll(0, own // vector) as v:
            value = load(kernel.accumulators, [i * own + v * vector], vector)
            store(kernel.shared, value, [aligned(at + column_offset(v * vector), vector)], vector)
        sync_warp()
        with T.unroll(0, lines) as line:
            row = once("line_row", kernel.first_row + wide(_row_of(micro_kernel, i, first_line + line)))
            with only_if(None if is_inside or not kernel.has_ragged_rows else row < kernel.rows):
                _write_line(
                    kernel, writer, values, (start + line * micro_kernel.columns, row, lane), is_inside
                )
        sync_warp()


def _write_line(
    kernel: AccumulatorBlock, writer: Writer, values: Any, line: tuple[Any, Any, Any], is_inside: bool
) -> None:
    """Write one row of the tile by the lanes of a warp.

    Parameters
    ----------
    values : buffer of float32
        For what a lane writes at once.
    line : tuple of expressions
        Where the row begins in shared memory, the row, and the lane.
    """
    (start, row, lane), width = line, writer.width
    with T.unroll(0, kernel.micro_kernel.columns // (WARP * width)) as turn:
        offset = (turn * WARP + lane) * width
        column = kernel.first_column + wide(offset)
        with only_if(None if is_inside or not kernel.has_ragged_columns else column < kernel.columns):
            store(values, load(kernel.shared, [aligned(start + offset, width)], width), [0], width)
            writer.write(lambda u: values[u], kernel.batch, row, column)


def _row_of(micro_kernel: CudaMicroKernel, i: Any, thread_row: Any) -> Any:
    """Return the offset in the block's tile of row `i` of the threads in a row of them, int32."""
    extent, own, parts = micro_kernel.sides[0]
    run = own // parts
    return tirx.truncdiv(i, run) * (extent // parts) + thread_row * run + tirx.truncmod(i, run)
