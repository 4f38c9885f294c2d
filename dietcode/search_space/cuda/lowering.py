"""A micro-kernel lowered to device functions with symbolic extents.

    block (tile of one batch, part of the reduction):
      sums[thread tile] = 0                                     # registers
      for piece of `steps` steps:
        shared[piece] = A, B        cooperative; zeros past an edge (local padding)
        for k: sums += A[rows, k] · B[columns, k]
      Y[row, column] = epilogue(sums)                           # where the element exists

With a split reduction the sums go to a workspace, and a second function adds them in order and applies the
epilogue. So they do with global padding, where the block function computes another problem, see `padding`.
Loops of known length stay loops, marked to be unrolled, so that the text stays short.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import size_of
from dietcode.search_space.cuda.addressing import Addresses
from dietcode.search_space.cuda.block import BlockKernel
from dietcode.search_space.cuda.building import both, local, narrow, once, only_if, wide
from dietcode.search_space.cuda.fetching import WIDTHS, output_width
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.output import OutputWriter, PartWriter, Writer
from dietcode.search_space.cuda.padding import (
    Copy,
    block_extents,
    block_problem,
    own_batch,
    writes_parts,
)
from dietcode.search_space.cuda.shape import SUM_THREADS, WORKSPACE, copy_shapes, grid_of
from dietcode.search_space.cuda.tensor_core import TensorCoreKernel
from dietcode.search_space.memory import Memory
from dietcode.search_space.problem import Problem
from dietcode.search_space.tir import DTYPE, TirOps, i64, small_buffers_in, store


class _Ops(TirOps):
    """Values of a device function are let be; its compiler keeps them in registers."""

    def bind(self, value: Any) -> Any:
        """The value itself."""
        return value


def device_problem(problem: Problem) -> Problem:
    """The problem as kernels for CUDA see it: constants lie as callers hold them, nothing is packed."""
    return replace(problem, column_operand_constant=False)


def block_arguments(problem: Problem, tile: CudaMicroKernel) -> tuple[str, ...]:
    """Pointers that the block function takes, before an int64 for each letter of `Problem.dynamic`."""
    inputs = block_problem(problem, tile).inputs
    return (*inputs[:2], WORKSPACE) if writes_parts(problem, tile) else (*inputs, problem.output)


def sum_arguments(problem: Problem) -> tuple[str, ...]:
    """Pointers that the function that adds the parts takes, before the extents."""
    return (*problem.inputs[2:], WORKSPACE, problem.output)


def lower_block(problem: Problem, tile: CudaMicroKernel, name: str) -> Any:
    """The device function of a micro-kernel, one block of threads for each tile and part.

    Parameters
    ----------
    problem : Problem
        As `device_problem` gives it.

    Returns
    -------
    tvm.tirx.PrimFunc
        Takes what `block_arguments` lists; its grid is `Grid.blocks` by `CudaMicroKernel.splits`.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        ops, whole = _Ops(), block_problem(problem, tile)
        pointers, workspace, given = _begin(problem, whole, name, block_arguments(problem, tile))
        grid, extents = grid_of(problem, tile, given, ops), block_extents(problem, tile, given, ops)
        with (
            T.launch_thread("blockIdx.x", _int64(grid.blocks)) as block,
            T.launch_thread("blockIdx.y", i64(tile.splits)) as part,
            T.launch_thread("threadIdx.x", tile.threads) as thread,
            small_buffers_in("local"),
        ):
            memory = Memory(whole, extents, pointers, 1, i64(0), ops)
            form = TensorCoreKernel if tile.unit == "mma" else BlockKernel
            kernel = form(whole, tile, memory, extents, thread)
            # All of these are below 2^31, as the number of blocks is, and division of 64 bits is slow.
            row_tiles, column_tiles = (narrow(_int64(n)) for n in (grid.row_tiles, grid.column_tiles))
            index = narrow(block)
            kernel.first_column = wide(once("column_tile", tirx.truncmod(index, column_tiles))) * tile.columns
            lines = tirx.truncdiv(index, column_tiles)
            kernel.first_row = wide(once("row_tile", tirx.truncmod(lines, row_tiles))) * tile.rows
            kernel.batch = wide(once("batch", tirx.truncdiv(lines, row_tiles)))
            kernel.part = wide(part)
            _block(kernel, _writer(kernel, workspace))
    return builder.get()


def _block(kernel: BlockKernel, writer: Writer) -> None:
    """The body, in two forms with loop partitioning: tiles that reach past no edge check nothing."""

    def body(is_inside: bool) -> None:
        kernel.accumulate(is_inside)
        kernel.write_back(writer, is_inside)

    if kernel.tile.tails != "partition" or not (kernel.has_ragged_rows or kernel.has_ragged_columns):
        body(False)
        return
    ends = kernel.first_row + kernel.tile.rows, kernel.first_column + kernel.tile.columns
    with T.If(tirx.And(ends[0] <= kernel.rows, ends[1] <= kernel.columns)):
        with T.Then():
            body(True)
        with T.Else():
            body(False)


def _writer(kernel: BlockKernel, workspace: Any) -> Writer:
    problem, tile = kernel.problem, kernel.tile
    if workspace is None:
        return OutputWriter(problem, kernel.memory, output_width(problem, tile))
    columns, run = size_of(problem, problem.columns), tile.thread_columns // tile.column_vthreads
    width = next(w for w in WIDTHS if run % w == columns.factor % w == 0)
    sizes = (kernel.batches, kernel.rows, kernel.columns)
    return PartWriter(workspace, kernel.part, sizes, width)


def lower_sum(problem: Problem, tile: CudaMicroKernel, name: str) -> Any:
    """The device function that adds the parts of what exists, a thread for each element of the output.

    Returns
    -------
    tvm.tirx.PrimFunc
        Takes what `sum_arguments` lists; its grid is ⌈`Grid.elements` / `SUM_THREADS`⌉ blocks.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        ops, whole = _Ops(), block_problem(problem, tile)
        pointers, workspace, extents = _begin(problem, whole, name, sum_arguments(problem))
        elements = _int64(grid_of(problem, tile, extents, ops).elements)
        blocks = tirx.truncdiv(elements + (SUM_THREADS - 1), i64(SUM_THREADS))
        with (
            T.launch_thread("blockIdx.x", blocks) as block,
            T.launch_thread("threadIdx.x", SUM_THREADS) as thread,
            small_buffers_in("local"),
        ):
            memory = Memory(problem, extents, pointers, 1, i64(0), ops)
            writer, total = OutputWriter(problem, memory, 1), local("total", 1)
            element = once("element", wide(block) * SUM_THREADS + wide(thread))
            with T.If(element < elements), T.Then():
                _, rows, columns, _ = (_int64(size) for size in problem.sizes(extents))
                line = once("line", tirx.truncdiv(element, columns))
                batch, row = tirx.truncdiv(line, rows), tirx.truncmod(line, rows)
                column = tirx.truncmod(element, columns)
                place, stride = element, elements
                if whole is not problem:
                    sizes = whole.sizes(block_extents(problem, tile, extents, ops))
                    batches, all_rows, all_columns, _ = (_int64(size) for size in sizes)
                    place = once("place", (batch * all_rows + row) * all_columns + column)
                    stride = batches * all_rows * all_columns
                store(total, tirx.const(0, DTYPE), [0], 1)
                with T.unroll(0, tile.splits) as part:
                    store(total, total[0] + workspace[wide(part) * stride + place], [0], 1)
                writer.write(lambda _: total[0], batch, row, column)
    return builder.get()


def lower_copy(problem: Problem, tile: CudaMicroKernel, copy: Copy, name: str) -> Any:
    """The device function that copies an operand to whole tiles, zeros past its end and outside of windows.

    Returns
    -------
    tvm.tirx.PrimFunc
        Takes the operand and its copy; its grid is `CopyShape.blocks`, an outer index of a batch each.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        ops, whole = _Ops(), block_problem(problem, tile)
        pointers, _, extents = _begin(problem, whole, name, (copy.operand, copy.name))
        shape = copy_shapes(problem, tile, extents, ops)[copy.name]
        with (
            T.launch_thread("blockIdx.x", _int64(shape.blocks)) as block,
            T.launch_thread("threadIdx.x", SUM_THREADS) as thread,
            small_buffers_in("local"),
        ):
            target = T.decl_buffer(
                (i64(1 << 40),), str(whole.storage(copy.name)), data=pointers.pop(copy.name)
            )
            memory = Memory(problem, extents, pointers, 1, i64(0), ops)
            _, rows, columns, reduction = (_int64(size) for size in problem.sizes(extents))
            is_row = copy.operand == problem.row_operand
            letters, lines = (problem.rows, rows) if is_row else (problem.columns, columns)
            addresses = Addresses(problem, memory, copy.operand, letters, own_batch(problem, copy.operand))
            inner, roles = _int64(shape.inner), (whole.rows, whole.columns, whole.reduction)
            outer = once("outer", tirx.truncmod(wide(block), _int64(shape.outer)))
            batch = once("batch", tirx.truncdiv(wide(block), _int64(shape.outer)))
            turns = tirx.truncdiv(inner + (SUM_THREADS - 1), i64(SUM_THREADS))
            with T.serial(i64(0), turns) as turn:
                index = once("inner", turn * SUM_THREADS + wide(thread))
                with T.If(index < inner), T.Then():
                    line, step = (outer, index) if copy.along_reduction else (index, outer)
                    place, seen = addresses.at(batch, line, step)
                    exists = both(line < lines if letters not in roles else None, seen)
                    exists = both(step < reduction if problem.reduction not in roles else None, exists)
                    value = local("value", 1, str(whole.storage(copy.name)))
                    store(value, tirx.const(0, str(value.dtype)), [0], 1)
                    with only_if(exists):
                        store(value, memory.buffers[copy.operand][place], [0], 1)
                    store(target, value[0], [wide(block) * inner + index], 1)
    return builder.get()


def _begin(
    problem: Problem, whole: Problem, name: str, arguments: tuple[str, ...]
) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """Name, attributes and arguments: pointers of tensors and copies, the workspace, extents of all letters.

    Parameters
    ----------
    whole : Problem
        As `block_problem` gives it.
    """
    T.func_name(name)
    T.func_attr({"tirx.noalias": True, "global_symbol": name, "calling_conv": 2, "tirx.is_global_func": True})
    pointers = {}
    for tensor in arguments:
        known = whole if tensor in whole.subscripts else problem
        kind = DTYPE if tensor == WORKSPACE else str(known.storage(tensor))
        pointers[tensor] = T.arg(f"arg_{tensor.strip('()')}", T.ptr(kind))
    sizes = {letter: T.arg(f"extent_{letter}", T.int64()) for letter in problem.dynamic}
    extents = {k: i64(v) if v is not None else sizes[k] for k, v in problem.extents.items()}
    workspace = None
    if WORKSPACE in pointers:
        workspace = T.decl_buffer((i64(1 << 40),), DTYPE, data=pointers.pop(WORKSPACE))
    return pointers, workspace, extents


def _int64(value: Any) -> Any:
    return i64(value) if isinstance(value, int) else value
