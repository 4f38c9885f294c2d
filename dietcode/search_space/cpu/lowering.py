"""A micro-kernel lowered to a TIR function with symbolic extents.

    for task in parallel(P):                         # one rectangle of tiles each, see `partition`
      for batch, block of rows that fits L2, column tile, range of steps, row tile:
        acc[rows, columns] = 0                       # registers
        for k: acc += A[row, k] · packed_B[columns // lanes, k, lanes]
        Y[row, column] = epilogue(acc)

How a tile that reaches past an edge is computed is the micro-kernel's `tails`, see `tails`. All alternatives
have the same grid of tasks and add in the same order, so that their results agree to the bit.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.ahead import Place, next_columns
from dietcode.search_space.cpu.axes import problem_for, splits_rows_first
from dietcode.search_space.cpu.copying import gather_ranges, gather_rows, pack_columns
from dietcode.search_space.cpu.kernel import Block, Kernel
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cpu.tails import ALTERNATIVES, Tails
from dietcode.search_space.cpu.windowing import kept_lines
from dietcode.search_space.partition import ceildiv, choose_partition, row_tiles_in_l2
from dietcode.search_space.problem import Problem
from dietcode.search_space.tir import CPU, INT32, i64, workspace


def lower(problem: Problem, micro_kernel: MicroKernel, limits: Limits, name: str) -> Any:
    """The private function ``name(inputs…, output, dynamic extents…) -> status`` on raw pointers.

    Parameters
    ----------
    problem : Problem
        What is computed.
    micro_kernel : MicroKernel
        The tile.
    limits : Limits
        Lanes, cores and cache of the target.
    name : str
        Symbol of the function.

    Returns
    -------
    tvm.tirx.PrimFunc
        Pointers of `problem.inputs` and the output, then an int64 for each letter of `problem.dynamic`.
    """
    problem = problem_for(problem, micro_kernel)
    with IRBuilder() as builder, T.prim_func(s_tir=True, private=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        pointers = {
            tensor: T.arg(tensor, T.ptr(str(problem.storage(tensor))))
            for tensor in (*problem.inputs, problem.output)
        }
        sizes = {letter: T.arg(f"extent_{letter}", T.int64()) for letter in problem.dynamic}
        T.func_ret(INT32)
        extents = {k: i64(v) if v is not None else sizes[k] for k, v in problem.extents.items()}
        # Local buffers need to know their device; a packed function learns it from its tensors.
        with T.attr(i64(0), "device_type", CPU), T.attr(i64(0), "device_id", 0):
            kernel = Kernel(problem, micro_kernel, limits, pointers, extents)
            tails = ALTERNATIVES[micro_kernel.tails](kernel)
            with tails.around_tasks(), kernel.tasks() as task:
                tails.start_task()
                _task(kernel, tails, task)
        T.Return(tirx.IntImm("int32", 0))
    return builder.get()


def _task(kernel: Kernel, tails: Tails, task: Any) -> None:
    """One task's rectangle of tiles, in every batch of its part."""
    bind, tile = kernel.ops.bind, kernel.tile
    row_tiles = bind(ceildiv(kernel.rows, tile.rows, kernel.ops))
    column_tiles = bind(ceildiv(kernel.columns, tile.columns, kernel.ops))
    grid = choose_partition(
        kernel.batch,
        row_tiles,
        column_tiles,
        kernel.limits.num_cores,
        bool(kernel.problem.batch),
        kernel.ops,
        rows_first=splits_rows_first(kernel.problem, tile),
    )
    column_part = bind(tirx.truncmod(task, grid.column_parts))
    rest = bind(tirx.truncdiv(task, grid.column_parts))
    row_part = bind(tirx.truncmod(rest, grid.row_parts))
    batch_part = bind(tirx.truncdiv(rest, grid.row_parts))
    batches = kernel.part(kernel.batch, batch_part, grid.batch_parts)
    rows = kernel.part(row_tiles, row_part, grid.row_parts)
    columns = kernel.part(column_tiles, column_part, grid.column_parts)
    in_l2 = row_tiles_in_l2(kernel.reduction, tile.rows, kernel.limits.l2_bytes, kernel.ops)
    height = bind(rows[1] - rows[0])
    # Lines are few, and shared by the tiles along them.
    num_blocks = i64(1) if tile.window else bind(ceildiv(height, in_l2, kernel.ops))
    tallest = bind(ceildiv(height, tirx.max(num_blocks, 1), kernel.ops))
    with ExitStack() as kept:
        _keep(kernel, tallest, kept)
        with T.serial(*batches) as batch:
            if kernel.lines is not None:
                kernel.lines.see(batch, batches[0])
            with T.serial(i64(0), num_blocks) as block:
                low, high = kernel.part(height, block, num_blocks)
                after = bind(tirx.Select(block + 1 < num_blocks, batch, tirx.min(batch + 1, batches[1] - 1)))
                part = bind(rows[0] + low), bind(rows[0] + high)
                _block_of_rows(kernel, tails, (batch, after), part, columns)


def _keep(kernel: Kernel, tallest: Any, kept: ExitStack) -> None:
    """What a task copies to, for blocks of at most `tallest` tiles."""
    tile = kernel.tile
    if tile.window:
        kernel.lines = kept.enter_context(kept_lines(kernel))
    if kernel.gathers:
        kernel.gathered_rows = kernel.ops.bind(tallest * tile.rows)
        kernel.gathered = kept.enter_context(workspace(kernel.gathered_rows * kernel.gathered_elements))
    if tile.steps:
        kernel.partial = kept.enter_context(workspace(tallest * (tile.rows * tile.columns)))
    if kernel.panel_source == "task":
        kernel.packed = kept.enter_context(workspace(kernel.packed_steps * tile.columns))


def _block_of_rows(
    kernel: Kernel,
    tails: Tails,
    batches: tuple[Any, Any],
    rows: tuple[Any, Any],
    columns: tuple[Any, Any],
) -> None:
    """A block of rows that stays in L2 while every column panel passes by once, for all rows of tiles.

    `batches` are the batch index, and that of the block which comes next.
    """
    bind, tile, batch = kernel.ops.bind, kernel.tile, batches[0]
    kernel.first_row = bind(rows[0] * tile.rows)
    last_row = bind(tirx.min(rows[1] * tile.rows, kernel.rows))
    if kernel.gathers_ranges:
        gather_ranges(kernel, batch, kernel.first_row, last_row)
    elif kernel.gathers:
        gather_rows(kernel, batch, kernel.first_row, last_row)
    with T.serial(*columns) as column_tile, ExitStack() as ranges:
        column, panel = bind(column_tile * tile.columns), bind(column_tile * kernel.vectors)
        kernel.first_column = column
        is_last = column_tile + 1 >= columns[1]
        after = Place(
            bind(tirx.Select(is_last, batches[1], batch)),
            bind(tirx.Select(is_last, columns[0], column_tile + 1) * tile.columns),
        )
        if tile.steps:
            kernel.steps = ranges.enter_context(kernel.ranges())
        if kernel.panel_source == "task":
            pack_columns(kernel, batch, column)
        with T.serial(*rows) as row_tile:
            turn = row_tile - rows[0]
            kernel.next_columns = next_columns(kernel, Place(batch, column), after, turn)
            slot = bind(turn * (tile.rows * tile.columns)) if tile.steps else 0
            row = bind(row_tile * tile.rows)
            tails.tile(Block(batch, row, column, panel, tile.rows, kernel.vectors, slot))
