"""A micro-kernel lowered to device functions with symbolic extents.

    block (tile of one batch, part of the reduction):
      acc[thread tile] = 0                                      # registers
      for k_outer, tiles of `k_tile` steps:
        shared[k_outer] = A, B      cooperative; zeros past an edge (local padding)
        for k: acc += A[rows, k] · B[columns, k]
      Y[row, column] = epilogue(acc)                            # where the element exists

With a split reduction the accumulators go to a workspace, and a second function adds them in order and
applies the epilogue. So it is with global padding, where the block function computes another problem, see
`padding`. Loops of known length stay loops, marked to be unrolled, so that the text stays short.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import size_of
from dietcode.search_space.cuda.addressing import Addresses
from dietcode.search_space.cuda.block import BlockKernel
from dietcode.search_space.cuda.building import both, local, narrow, once, only_if, run, wide
from dietcode.search_space.cuda.bulk import BulkKernel
from dietcode.search_space.cuda.bulk_maps import form_of, maps_of
from dietcode.search_space.cuda.classes import alignment_classes
from dietcode.search_space.cuda.contraction import block_arguments, copy_symbol, sum_arguments
from dietcode.search_space.cuda.fetching import output_width, part_width
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.output import OutputWriter, PartWriter, Writer
from dietcode.search_space.cuda.padding import (
    OperandCopy,
    block_problem,
    copies_of,
    own_batch,
)
from dietcode.search_space.cuda.raster import TileOrder
from dietcode.search_space.cuda.shape import SUM_THREADS, WORKSPACE, CallShape
from dietcode.search_space.cuda.tensor_core import TensorCoreKernel
from dietcode.search_space.cuda.warpgroup import WarpgroupKernel
from dietcode.search_space.memory import Memory
from dietcode.search_space.problem import Problem
from dietcode.search_space.tir import DTYPE, TirOps, as_int64, i64, small_buffers_in, store

_KERNELS: dict[str, type[BlockKernel]] = {
    "simt": BlockKernel,
    "mma": TensorCoreKernel,
    "wgmma": WarpgroupKernel,
    "tma": BulkKernel,
}


class _Ops(TirOps):
    """Operations in a device function, whose compiler keeps values in registers."""

    def bind(self, value: Any) -> Any:
        """Return the value itself."""
        return value


def lower_contraction(
    problem: Problem, micro_kernel: CudaMicroKernel, symbol: str, emitted: CudaMicroKernel
) -> Any:
    """Return one of `contraction_launches` as a ``tvm.tirx.PrimFunc`` with symbolic extents.

    Parameters
    ----------
    emitted : CudaMicroKernel
        Whose code the block function has: `CudaMicroKernel.on` of the architecture.
    """
    copies = {copy_symbol(micro_kernel, copy): copy for copy in copies_of(problem, micro_kernel)}
    if symbol in copies:
        return lower_copy(problem, micro_kernel, copies[symbol], symbol)
    classes = {one.symbol(micro_kernel): one for one in alignment_classes(problem, micro_kernel)}
    if symbol in classes:
        known = classes[symbol].problem(problem)
        return lower_block(known, form_of(known, emitted), symbol, micro_kernel)
    return lower_sum(problem, micro_kernel, symbol)


def lower_block(problem: Problem, micro_kernel: CudaMicroKernel, name: str, launched: CudaMicroKernel) -> Any:
    """Lower a micro-kernel to its device function, one block of threads for each tile and part.

    Parameters
    ----------
    problem : Problem
        That of an alignment class, `AlignmentClass.problem`.
    launched : CudaMicroKernel
        Whose grid it is launched with: of the same tiles, but it may have clusters.

    Returns
    -------
    tvm.tirx.PrimFunc
        Takes what `block_arguments` lists, extents, and the maps of `maps_of`; its grid is `Grid.blocks` by
        `CudaMicroKernel.splits`, or with a persistent grid any whole clusters of these blocks.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        ops, padded = _Ops(), block_problem(problem, micro_kernel)
        arguments = block_arguments(problem, micro_kernel)
        described = tuple(one.argument for one in maps_of(problem, micro_kernel))
        pointers, workspace, given, maps = _begin(problem, padded, name, arguments, described)
        shape = CallShape(problem, launched, given, ops)
        grid, extents = shape.grid, shape.block_extents
        factors = size_of(problem, problem.rows).factor, size_of(problem, problem.columns).factor
        with (
            T.launch_thread("blockIdx.x", as_int64(grid.blocks)) as block,
            T.launch_thread("blockIdx.y", i64(micro_kernel.splits)) as part,
            T.launch_thread("threadIdx.x", micro_kernel.threads) as thread,
            small_buffers_in("local"),
        ):
            memory = Memory(padded, extents, pointers)
            kernel = _KERNELS[micro_kernel.unit](padded, micro_kernel, memory, extents, thread)
            kernel.part, kernel.maps = wide(part), maps
            kernel.take_tiles(TileOrder(launched, grid, factors, ops), narrow(block))
            writer = _writer(kernel, workspace)
            kernel.run_roles(lambda: _block(kernel, writer))
    return builder.get()


def _block(kernel: BlockKernel, writer: Writer) -> None:
    """Emit the body, with loop partitioning in two forms: that of tiles inside the edges has no check."""

    def body(is_inside: bool) -> None:
        kernel.accumulate(is_inside)
        if isinstance(writer, PartWriter):
            run("let_next_begin")
        kernel.write_back(writer, is_inside)

    if kernel.micro_kernel.tails != "partition" or not (kernel.has_ragged_rows or kernel.has_ragged_columns):
        body(False)
        return
    ends = kernel.first_row + kernel.micro_kernel.rows, kernel.first_column + kernel.micro_kernel.columns
    with T.If(tirx.And(ends[0] <= kernel.rows, ends[1] <= kernel.columns)):
        with T.Then():
            body(True)
        with T.Else():
            body(False)


def _writer(kernel: BlockKernel, workspace: Any) -> Writer:
    problem, micro_kernel = kernel.problem, kernel.micro_kernel
    if workspace is None:
        return OutputWriter(problem, kernel.memory, output_width(problem, micro_kernel))
    sizes = (kernel.batches, kernel.rows, kernel.columns)
    return PartWriter(workspace, kernel.part, sizes, part_width(problem, micro_kernel))


def lower_sum(problem: Problem, micro_kernel: CudaMicroKernel, name: str) -> Any:
    """Return the device function that adds the parts, a thread for each element of the output.

    Returns
    -------
    tvm.tirx.PrimFunc
        Takes what `sum_arguments` lists; its grid is ⌈`Grid.elements` / `SUM_THREADS`⌉ blocks.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        ops, padded = _Ops(), block_problem(problem, micro_kernel)
        pointers, workspace, extents, _ = _begin(problem, padded, name, sum_arguments(problem))
        shape = CallShape(problem, micro_kernel, extents, ops)
        elements = as_int64(shape.grid.elements)
        blocks = tirx.truncdiv(elements + (SUM_THREADS - 1), i64(SUM_THREADS))
        with (
            T.launch_thread("blockIdx.x", blocks) as block,
            T.launch_thread("threadIdx.x", SUM_THREADS) as thread,
            small_buffers_in("local"),
        ):
            run("wait_for_previous")
            memory = Memory(problem, extents, pointers)
            writer, total = OutputWriter(problem, memory, 1), local("total", 1)
            element = once("element", wide(block) * SUM_THREADS + wide(thread))
            with T.If(element < elements), T.Then():
                _, rows, columns, _ = (as_int64(size) for size in problem.sizes(extents))
                line = once("line", tirx.truncdiv(element, columns))
                batch, row = tirx.truncdiv(line, rows), tirx.truncmod(line, rows)
                column = tirx.truncmod(element, columns)
                offset, stride = element, elements
                if padded is not problem:
                    sizes = padded.sizes(shape.block_extents)
                    batches, all_rows, all_columns, _ = (as_int64(size) for size in sizes)
                    offset = once("place", (batch * all_rows + row) * all_columns + column)
                    stride = batches * all_rows * all_columns
                store(total, tirx.const(0, DTYPE), [0], 1)
                with T.unroll(0, micro_kernel.splits) as part:
                    address = tirx.address_of(workspace[wide(part) * stride + offset])
                    store(total, total[0] + tirx.call_extern(DTYPE, "read_written", address), [0], 1)
                writer.write(lambda _: total[0], batch, row, column)
    return builder.get()


def lower_copy(problem: Problem, micro_kernel: CudaMicroKernel, copy: OperandCopy, name: str) -> Any:
    """Return the device function that copies an operand to whole tiles, zeros past its end and its windows.

    Parameters
    ----------
    problem : Problem
        As `dietcode.search_space.cuda.forms.device_problem` gives it.
    copy : OperandCopy
        One of `copies_of`.
    name : str
        Symbol of the function.

    Returns
    -------
    tvm.tirx.PrimFunc
        Takes the operand and its copy; its grid is `CopyShape.blocks`, an outer index of a batch each.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        ops, padded = _Ops(), block_problem(problem, micro_kernel)
        pointers, _, extents, _ = _begin(problem, padded, name, (copy.operand, copy.name))
        shape = CallShape(problem, micro_kernel, extents, ops).copies[copy.name]
        with (
            T.launch_thread("blockIdx.x", as_int64(shape.blocks)) as block,
            T.launch_thread("threadIdx.x", SUM_THREADS) as thread,
            small_buffers_in("local"),
        ):
            target = T.decl_buffer(
                (i64(1 << 40),), str(padded.storage(copy.name)), data=pointers.pop(copy.name)
            )
            memory = Memory(problem, extents, pointers)
            _, rows, columns, reduction = (as_int64(size) for size in problem.sizes(extents))
            is_row = copy.operand == problem.row_operand
            indices, lines = (problem.rows, rows) if is_row else (problem.columns, columns)
            addresses = Addresses(problem, memory, copy.operand, indices, own_batch(problem, copy.operand))
            inner, roles = as_int64(shape.inner), (padded.rows, padded.columns, padded.reduction)
            outer = once("outer", tirx.truncmod(wide(block), as_int64(shape.outer)))
            batch = once("batch", tirx.truncdiv(wide(block), as_int64(shape.outer)))
            turns = tirx.truncdiv(inner + (SUM_THREADS - 1), i64(SUM_THREADS))
            with T.serial(i64(0), turns) as turn:
                index = once("inner", turn * SUM_THREADS + wide(thread))
                with T.If(index < inner), T.Then():
                    line, step = (outer, index) if copy.along_reduction else (index, outer)
                    offset, in_windows = addresses.at(batch, line, step)
                    is_line = line < lines if indices not in roles else None
                    exists = both(
                        step < reduction if problem.reduction not in roles else None,
                        both(is_line, in_windows),
                    )
                    value = local("value", 1, str(padded.storage(copy.name)))
                    store(value, tirx.const(0, str(value.dtype)), [0], 1)
                    with only_if(exists):
                        store(value, memory.buffers[copy.operand][offset], [0], 1)
                    store(target, value[0], [wide(block) * inner + index], 1)
    return builder.get()


def _begin(
    problem: Problem,
    padded: Problem,
    name: str,
    arguments: tuple[str, ...],
    described: tuple[str, ...] = (),
) -> tuple[dict[str, Any], Any, dict[str, Any], dict[str, Any]]:
    """Begin a function; return pointers of tensors and copies, the workspace, extents of all indices, maps.

    Parameters
    ----------
    padded : Problem
        As `block_problem` gives it.
    described : tuple of str
        Tensors and copies of which it is given a tensor map.
    """
    T.func_name(name)
    T.func_attr({"tirx.noalias": True, "global_symbol": name, "calling_conv": 2, "tirx.is_global_func": True})
    pointers = {}
    for tensor in arguments:
        known = padded if tensor in padded.indices else problem
        kind = DTYPE if tensor == WORKSPACE else str(known.storage(tensor))
        pointers[tensor] = T.arg(f"arg_{tensor.strip('()')}", T.ptr(kind))
    sizes = {index: T.arg(f"extent_{index}", T.int64()) for index in problem.dynamic}
    extents = {k: i64(v) if v is not None else sizes[k] for k, v in problem.extents.items()}
    maps = {tensor: T.arg(f"map_{tensor}", T.TensorMap()) for tensor in described}
    workspace = None
    if WORKSPACE in pointers:
        workspace = T.decl_buffer((i64(1 << 40),), DTYPE, data=pointers.pop(WORKSPACE))
    return pointers, workspace, extents, maps
