"""The device functions of a micro-kernel of a block.

products   a tile of all sums of a block, and the functions of them
rows       rows by themselves; or what follows a reduction along rows of products, over what was
               set aside
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.cuda.blocks.demands import rest_kernel
from dietcode.search_space.cuda.blocks.functions import aside, product_functions
from dietcode.search_space.cuda.blocks.product_tensor import TensorProducts
from dietcode.search_space.cuda.blocks.products import SimtProducts
from dietcode.search_space.cuda.blocks.rows import RowBlock
from dietcode.search_space.cuda.blocks.shape import BlockShape
from dietcode.search_space.cuda.blocks.signature import DeviceOps, begin_function
from dietcode.search_space.cuda.building import narrow, once, wide
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.raster import tile_in_group, tile_in_row
from dietcode.search_space.products.memory import ProductMemory
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.memory import RowMemory
from dietcode.search_space.rows.passes import schedule
from dietcode.search_space.rows.problem import RowProblem
from dietcode.search_space.tir import DTYPE, as_int64, small_buffers_in


def lower_products(problem: ProductProblem, micro_kernel: CudaMicroKernel, symbol: str) -> Any:
    """Return one of `product_functions` as a ``tvm.tirx.PrimFunc`` with symbolic extents."""
    rest = problem.rest
    if symbol != micro_kernel.symbol and rest is not None:
        (*_, function) = product_functions(problem, micro_kernel)
        arguments = function.arguments
        return _lower_rows(rest, rest_kernel(problem), symbol, arguments, problem)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        (function, *_) = product_functions(problem, micro_kernel)
        pointers, extents = begin_function(problem, symbol, function.arguments)
        grid = BlockShape(problem, micro_kernel, extents, DeviceOps()).grid
        with (
            T.launch_thread("blockIdx.x", as_int64(grid.blocks)) as block,
            T.launch_thread("threadIdx.x", micro_kernel.threads) as thread,
            small_buffers_in("local"),
        ):
            tiles, index = narrow(as_int64(grid.column_tiles)), narrow(block)
            tile_of = tile_in_group if micro_kernel.is_tensor else tile_in_row
            _, row_tile, column_tile = tile_of(index, narrow(as_int64(grid.row_tiles)), tiles)
            row, column = wide(row_tile) * micro_kernel.rows, wide(column_tile) * micro_kernel.columns
            copies = {name: pointers.pop(aside(name)) for name in problem.kept}
            memory = ProductMemory(problem, extents, pointers)
            for name, pointer in copies.items():
                memory.buffers[aside(name)] = T.decl_buffer((memory.size_of(name),), DTYPE, data=pointer)
            tile = TensorProducts if micro_kernel.is_tensor else SimtProducts
            tile(problem, micro_kernel, memory, thread, row, column).emit()
    return builder.get()


def lower_rows(problem: RowProblem, micro_kernel: CudaMicroKernel, symbol: str) -> Any:
    """Return the function of a block of rows as a ``tvm.tirx.PrimFunc`` with symbolic extents."""
    return _lower_rows(problem, micro_kernel, symbol, (*problem.inputs, *problem.outputs), problem)


def _lower_rows(
    problem: RowProblem,
    micro_kernel: CudaMicroKernel,
    symbol: str,
    arguments: tuple[str, ...],
    whole: BlockProblem,
) -> Any:
    """Return a function over rows.

    Parameters
    ----------
    arguments : tuple of str
        The pointers that it takes.
    whole : BlockProblem
        Whose dynamic extents it takes.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        pointers, extents = begin_function(whole, symbol, arguments)
        pointers = dict(zip((*problem.inputs, *problem.outputs), pointers.values(), strict=True))
        own = {index: extents[index] for index in problem.extents}
        shape = BlockShape(problem, micro_kernel, own, DeviceOps())
        with (
            T.launch_thread("blockIdx.x", as_int64(shape.grid.blocks)) as block,
            T.launch_thread("threadIdx.x", micro_kernel.threads) as thread,
            small_buffers_in("local"),
        ):
            memory = RowMemory(problem, own, pointers)
            tiles, index = narrow(as_int64(shape.grid.column_tiles)), narrow(block)
            row = wide(once("row_tile", tirx.truncdiv(index, tiles))) * micro_kernel.rows
            first = wide(once("column_tile", tirx.truncmod(index, tiles)))
            plan = schedule(problem, "none")
            RowBlock(problem, micro_kernel, memory, plan, thread).emit(row, first, as_int64(shape.num_steps))
    return builder.get()
