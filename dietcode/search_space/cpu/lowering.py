"""A micro-kernel lowered to a TIR function with symbolic extents.

    for task in parallel(P · CHUNKS):                # a chunk of a core's rectangle of tiles, see `chunks`
      for batch, block of rows that fits L2, column tile, range of steps, row tile:
        acc[rows, columns] = 0                       # registers
        for k: acc += A[row, k] · packed_B[columns // lanes, k, lanes]
        Y[row, column] = epilogue(acc)

How a tile that reaches past an edge is computed is the micro-kernel's `tails`, see `tails`. All alternatives
have the same grid of tasks and add in the same order, so that their results agree to the bit.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.axes import copies_rows, problem_for, splits_rows_first
from dietcode.search_space.cpu.chunks import Chunk, part
from dietcode.search_space.cpu.column_sources import open_columns
from dietcode.search_space.cpu.kernel import Kernel
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.cpu.output import Output
from dietcode.search_space.cpu.row_sources import RowsInPlace, gathered_rows
from dietcode.search_space.cpu.sources import Block, ColumnTile, Product, RowSource
from dietcode.search_space.cpu.tails import ALTERNATIVES, Tails
from dietcode.search_space.cpu.windowing import line_buffer
from dietcode.search_space.partition import ceildiv, choose_partition, row_tiles_in_l2
from dietcode.search_space.problem import Problem
from dietcode.search_space.tir import CPU, INT32, i64, small_buffer, workspace


def lower(problem: Problem, micro_kernel: MicroKernel, limits: Limits, name: str) -> Any:
    """Return the private function ``name(inputs…, output, dynamic extents…) -> status`` on raw pointers.

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
        Pointers of `Problem.inputs` and the output, then an int64 for each index of `Problem.dynamic`.
    """
    problem = problem_for(problem, micro_kernel)
    with IRBuilder() as builder, T.prim_func(s_tir=True, private=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        pointers = {
            tensor: T.arg(tensor, T.ptr(str(problem.storage(tensor))))
            for tensor in (*problem.inputs, problem.output)
        }
        sizes = {index: T.arg(f"extent_{index}", T.int64()) for index in problem.dynamic}
        T.func_ret(INT32)
        extents = {k: i64(v) if v is not None else sizes[k] for k, v in problem.extents.items()}
        # Local buffers need to know their device; a packed function learns it from its tensors.
        with T.attr(i64(0), "device_type", CPU), T.attr(i64(0), "device_id", 0):
            kernel = Kernel.of(problem, micro_kernel, limits, pointers, extents)
            # Lines under a window are kept from one batch index to the next.
            num_steps = None if micro_kernel.window else kernel.num_steps
            with (
                ALTERNATIVES[micro_kernel.tails](kernel).around_tasks() as tails,
                kernel.tasks(num_steps) as (core, chunk),
            ):
                _task(kernel, tails, core, chunk)
        T.Return(tirx.IntImm("int32", 0))
    return builder.get()


def _task(kernel: Kernel, tails: Tails, core: Any, chunk: Chunk) -> None:
    """Emit one task: a chunk of a core's rectangle of tiles.

    The rectangle is cut between batch indices, then between blocks of rows, then, where no rows are copied
    first, between columns: each task does what the rectangle's loops would have done anyway.
    """
    bind, micro_kernel = kernel.ops.bind, kernel.micro_kernel
    spilled = None
    if tails.spilled_vectors:
        spilled = small_buffer(micro_kernel.rows * tails.spilled_vectors * kernel.lanes)
    row_tiles = bind(ceildiv(kernel.rows, micro_kernel.rows, kernel.ops))
    column_tiles = bind(ceildiv(kernel.columns, micro_kernel.columns, kernel.ops))
    grid = choose_partition(
        kernel.batch,
        row_tiles,
        column_tiles,
        kernel.limits.num_cores,
        bool(kernel.problem.batch),
        kernel.ops,
        rows_first=splits_rows_first(kernel.problem, micro_kernel),
    )
    column_part = bind(tirx.truncmod(core, grid.column_parts))
    remainder = bind(tirx.truncdiv(core, grid.column_parts))
    row_part = bind(tirx.truncmod(remainder, grid.row_parts))
    batch_part = bind(tirx.truncdiv(remainder, grid.row_parts))
    batches = part(kernel.batch, batch_part, grid.batch_parts)
    rows = part(row_tiles, row_part, grid.row_parts)
    columns = part(column_tiles, column_part, grid.column_parts)
    in_l2 = row_tiles_in_l2(kernel.reduction, micro_kernel.rows, kernel.limits.l2_bytes, kernel.ops)
    height = bind(rows[1] - rows[0])
    # Lines are few, and shared by the tiles along them.
    num_blocks = i64(1) if micro_kernel.window else bind(ceildiv(height, in_l2, kernel.ops))
    tallest = bind(ceildiv(height, tirx.max(num_blocks, 1), kernel.ops))
    batches, chunk = chunk.cut(batches)
    if copies_rows(kernel.problem, micro_kernel):
        blocks = chunk.of((i64(0), num_blocks))
    else:
        blocks, chunk = chunk.cut((i64(0), num_blocks))
        columns = chunk.of(columns)
    with ExitStack() as buffers:
        product, partial = _open_sources(kernel, tallest, buffers)
        rectangle = _Rectangle(kernel, tails, Output(kernel, spilled, partial), columns)
        with T.serial(*batches) as batch:
            product = replace(product, rows=product.rows.advance(batch, batches[0]))
            with T.serial(*blocks) as block:
                low, high = part(height, block, num_blocks)
                after = bind(tirx.Select(block + 1 < blocks[1], batch, tirx.min(batch + 1, batches[1] - 1)))
                of_block = bind(rows[0] + low), bind(rows[0] + high)
                rectangle.block_of_rows(product, (batch, after), of_block)


def _open_sources(kernel: Kernel, tallest: Any, buffers: ExitStack) -> tuple[Product, Any]:
    """Return a task's sources and its partial sums, for blocks of at most `tallest` tiles of rows."""
    micro_kernel, problem = kernel.micro_kernel, kernel.problem
    rows: RowSource = RowsInPlace(kernel, problem.row_operand)
    if micro_kernel.window:
        rows = buffers.enter_context(line_buffer(kernel, problem.row_operand))
    elif copies_rows(problem, micro_kernel):
        num_rows = tallest * micro_kernel.rows
        rows = buffers.enter_context(gathered_rows(kernel, problem.row_operand, num_rows))
    partial = None
    if kernel.k_tile:
        partial = buffers.enter_context(workspace(tallest * (micro_kernel.rows * micro_kernel.columns)))
    columns = buffers.enter_context(open_columns(kernel, problem.column_operand))
    return Product(rows, (columns,)), partial


@dataclass(frozen=True)
class _Rectangle:
    """The tiles of one task.

    Attributes
    ----------
    columns : tuple of int64 expressions
        First tile of columns, and the one after the last.
    """

    kernel: Kernel
    tails: Tails
    output: Output
    columns: tuple[Any, Any]

    def block_of_rows(self, product: Product, batches: tuple[Any, Any], rows: tuple[Any, Any]) -> None:
        """Emit a block of rows that stays in L2 while every column panel passes by once.

        Parameters
        ----------
        product : Product
            The operands.
        batches : tuple of int64 expressions
            The batch index, and that of the next block.
        rows : tuple of int64 expressions
            First tile of rows, and the one after the last.
        """
        kernel, bind, micro_kernel = self.kernel, self.kernel.ops.bind, self.kernel.micro_kernel
        first_row = bind(rows[0] * micro_kernel.rows)
        last_row = bind(tirx.min(rows[1] * micro_kernel.rows, kernel.rows))
        source = product.rows.copy_rows(batches[0], first_row, last_row)
        with T.serial(*self.columns) as column_tile, ExitStack() as ranges:
            column, panel = bind(column_tile * micro_kernel.columns), bind(column_tile * kernel.vectors)
            is_last = column_tile + 1 >= self.columns[1]
            now = ColumnTile(batches[0], column)
            after = ColumnTile(
                bind(tirx.Select(is_last, batches[1], batches[0])),
                bind(tirx.Select(is_last, self.columns[0], column_tile + 1) * micro_kernel.columns),
            )
            k_range = ranges.enter_context(kernel.k_ranges())
            packed = tuple(columns.pack(now, k_range) for columns in product.columns)
            with T.serial(*rows) as row_tile:
                turn = row_tile - rows[0]
                prefetches = tuple(
                    p for columns in packed for p in columns.next_columns(now, after, k_range, turn)
                )
                slot = bind(turn * (micro_kernel.rows * micro_kernel.columns)) if kernel.k_tile else 0
                row = bind(row_tile * micro_kernel.rows)
                at = Block(batches[0], row, column, panel, micro_kernel.rows, kernel.vectors, k_range, slot)
                self.tails.tile(at, (Product(source, packed, prefetches),), self.output)
