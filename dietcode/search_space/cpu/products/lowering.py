"""A micro-kernel of a block with products lowered to a TIR function with symbolic extents.

    column tensors that are not constant are packed
    for task in parallel(P · CHUNKS):             # one rectangle of tiles each
      for block of rows that fits L2, column tile, row tile:
        accumulators[name, row, columns] = 0              # registers
        for loop: for k: accumulators[name, …] += A[row, k] · packed_B[columns // lanes, k, gate, lanes]
        functions of the accumulators and of other tensors; outputs
    for task in parallel(P · CHUNKS): what follows a reduction along rows, as a block of rows

A tile that reaches past an edge computes clamped rows and panels, and writes what exists. Blocks of rows go
over the columns forwards and backwards in turns, and so do calls whose outputs lie one behind the other, as
the steps of a recurrence: what is in a core's cache of a weight that does not fit it is read first.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import view_of
from dietcode.search_space.cpu.chunks import Chunk, chunked, part
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.packing import emit_packing
from dietcode.search_space.cpu.products.micro_kernel import ProductKernel
from dietcode.search_space.cpu.products.panels import PanelMemory
from dietcode.search_space.cpu.products.space import num_tasks, row_elements, row_kernel
from dietcode.search_space.cpu.products.tile import Edge, ProductTile
from dietcode.search_space.cpu.rows.lowering import lower_row_tasks
from dietcode.search_space.partition import ceildiv, choose_partition, row_tiles_in_l2
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.memory import RowMemory
from dietcode.search_space.tir import CPU, INT32, TirOps, address_of, as_int64, i64, workspace

_FLOAT_BYTES = 4


def lower_products(problem: ProductProblem, micro_kernel: ProductKernel, limits: Limits, name: str) -> Any:
    """Return the private function ``name(inputs…, outputs…, dynamic extents…) -> status`` on raw pointers.

    Parameters
    ----------
    problem : ProductProblem
        What is computed.
    micro_kernel : ProductKernel
        The tile.
    limits : Limits
        Lanes, cores and cache of the target.
    name : str
        Symbol of the function.

    Returns
    -------
    tvm.tirx.PrimFunc
        Pointers of inputs and outputs, then an int64 for each index of `ProductProblem.dynamic`.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True, private=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        pointers = {
            tensor: T.arg(tensor, T.ptr(str(problem.storage(tensor))))
            for tensor in (*problem.inputs, *problem.outputs)
        }
        sizes = {index: T.arg(f"extent_{index}", T.int64()) for index in problem.dynamic}
        T.func_ret(INT32)
        extents = {k: i64(v) if v is not None else sizes[k] for k, v in problem.extents.items()}
        # Local buffers need to know their device; a packed function learns it from its tensors.
        with ExitStack() as scopes:
            scopes.enter_context(T.attr(i64(0), "device_type", CPU))
            scopes.enter_context(T.attr(i64(0), "device_id", 0))
            memory = PanelMemory(problem, extents, pointers, limits.lanes)
            packed = {tensor: _panels(memory, tensor, scopes) for tensor in problem.column_tensors}
            for value in problem.halves.set_aside:
                size = memory.value(view_of(problem, value).size)
                memory.buffers[value] = scopes.enter_context(workspace(size))
            tile = ProductTile(problem, micro_kernel, memory, packed, limits.lanes, limits.num_registers)

            def num_steps() -> Any:
                _, rows, columns, depth = (as_int64(size) for size in problem.sizes(extents))
                return tirx.truncdiv(rows * columns * depth, i64(limits.lanes))

            with chunked(num_tasks(micro_kernel, limits), num_steps, micro_kernel.serial) as (core, chunk):
                _task(tile, limits, core, chunk)
            if problem.rest is not None:
                own = {n: memory.buffers[n].data for n in (*problem.rest.inputs, *problem.rest.outputs)}
                rows_memory = RowMemory(problem.rest, {k: extents[k] for k in problem.rest.extents}, own)
                lower_row_tasks(problem.rest, row_kernel(micro_kernel, limits), limits, rows_memory)
        T.Return(tirx.IntImm("int32", 0))
    return builder.get()


def _panels(memory: PanelMemory, tensor: str, scopes: ExitStack) -> Any:
    """Return the buffer of a column tensor's panels; packs them first where it is not constant."""
    if tensor in memory.problem.constants:
        return memory.buffers[tensor]
    panels = scopes.enter_context(workspace(memory.packed_size(tensor)))
    layout = memory.problem.layout(tensor)
    emit_packing(memory, tensor, layout, (memory.buffers[tensor], panels), memory.lanes)
    return panels


def _task(tile: ProductTile, limits: Limits, core: Any, chunk: Chunk) -> None:
    """Emit one task's rectangle of tiles."""
    problem, micro_kernel, ops = tile.problem, tile.micro_kernel, TirOps()
    bind, tasks = ops.bind, num_tasks(micro_kernel, limits)
    _, rows, columns, _ = (as_int64(size) for size in problem.sizes(tile.memory.extents))
    row_tiles = bind(ceildiv(rows, micro_kernel.rows, ops))
    column_tiles = bind(ceildiv(columns, micro_kernel.columns, ops))
    grid = choose_partition(i64(1), row_tiles, column_tiles, tasks, False, ops)
    column_part = bind(tirx.truncmod(core, grid.column_parts))
    row_part = bind(tirx.truncdiv(core, grid.column_parts))
    first, last = part(row_tiles, row_part, grid.row_parts)
    column_range = part(column_tiles, column_part, grid.column_parts)
    height = bind(last - first)
    elements = as_int64(row_elements(problem, tile.memory.extents))
    in_l2 = row_tiles_in_l2(elements, micro_kernel.rows, limits.l2_bytes, ops)
    num_blocks = bind(ceildiv(height, in_l2, ops))
    parity = bind(_parity(tile))
    blocks, chunk = chunk.cut((i64(0), num_blocks))
    chunk = chunk.turned(tirx.bitwise_and(parity + blocks[0], i64(1)) > i64(0))
    column_range = chunk.of(column_range)
    edge = Edge(rows, columns, bind(ceildiv(columns, tile.lanes, ops)))
    fits = _always_fits(problem, micro_kernel)
    with T.serial(*blocks) as block, T.serial(*column_range) as step:
        low, high = part(height, block, num_blocks)
        backwards = tirx.bitwise_and(parity + block, i64(1)) > i64(0)
        column_tile = bind(ops.where(backwards, column_range[0] + column_range[1] - 1 - step, step))
        column = bind(column_tile * micro_kernel.columns)
        panel = bind(column_tile * tile.vectors)
        with T.serial(bind(first + low), bind(first + high)) as row_tile:
            row = bind(row_tile * micro_kernel.rows)
            with T.If(step == column_range[0]), T.Then():
                tile.prefetch_rows(row + micro_kernel.rows, rows - 1)
            if fits:
                tile.emit(row, column, panel, None)
            else:
                whole = tirx.And(row + micro_kernel.rows <= rows, column + micro_kernel.columns <= columns)
                with T.If(whole):
                    with T.Then():
                        tile.emit(row, column, panel, None)
                    with T.Else():
                        tile.emit(row, column, panel, edge)


def _parity(tile: ProductTile) -> Any:
    """Return how many times an output fits before itself: odd and even in turns where calls fill a table."""
    output = tile.problem.outputs[0]
    size = as_int64(tile.memory.value(view_of(tile.problem, output).size))
    return tirx.truncdiv(address_of(tile.memory.buffers[output]), tirx.max(size * _FLOAT_BYTES, i64(1)))


def _always_fits(problem: ProductProblem, micro_kernel: ProductKernel) -> bool:
    """Return whether tiles never reach past an edge, whatever the dynamic extents are."""
    fixed = [
        int(
            problem.product(
                tuple(k for k in indices if problem.extents[k] is not None), dict(problem.extents)
            )
        )
        for indices in (problem.rows, problem.columns)
    ]
    return fixed[0] % micro_kernel.rows == 0 and fixed[1] % micro_kernel.columns == 0
