"""The device functions of a micro-kernel of attention: its blocks, and what combines parts of the keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.attention.memory import AttentionMemory
from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cuda.blocks.arithmetic import call
from dietcode.search_space.cuda.blocks.attention import AttentionTile, Write
from dietcode.search_space.cuda.blocks.attention_layout import STATE_THREADS, TOTALS, WEIGHTED, vector_width
from dietcode.search_space.cuda.blocks.attention_shape import AttentionShape
from dietcode.search_space.cuda.blocks.attention_simt import SimtAttention
from dietcode.search_space.cuda.blocks.attention_tensor import TensorAttention
from dietcode.search_space.cuda.blocks.functions import attention_functions
from dietcode.search_space.cuda.blocks.signature import DeviceOps, begin_function
from dietcode.search_space.cuda.building import aligned, local, once, wide
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.epilogue import convert
from dietcode.search_space.tir import DTYPE, as_int64, i64, load, small_buffers_in, store
from dietcode.search_space.vectors import const, named
from dietcode.target.multiprocessor import WARP
from dietcode.workload.attention import AttentionPlan

_TILES: dict[str, type[AttentionTile]] = {tile.unit: tile for tile in (SimtAttention, TensorAttention)}


def lower_attention(problem: AttentionProblem, micro_kernel: CudaMicroKernel, symbol: str) -> Any:
    """Return one of `attention_functions` as a ``tvm.tirx.PrimFunc`` with symbolic extents."""
    function = next(one for one in attention_functions(problem, micro_kernel) if one.symbol == symbol)
    if symbol != micro_kernel.symbol:
        return _lower_combination(problem, micro_kernel, symbol, function.arguments)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        pointers, extents = begin_function(problem, symbol, function.arguments)
        shape = AttentionShape(problem, micro_kernel, extents, DeviceOps())
        with (
            T.launch_thread("blockIdx.x", as_int64(shape.grid.blocks)) as block,
            T.launch_thread("blockIdx.y", i64(micro_kernel.splits)) as part,
            T.launch_thread("threadIdx.x", micro_kernel.threads) as thread,
            small_buffers_in("local"),
        ):
            parts = {name: _floats(pointers.pop(name)) for name in shape.regions}
            memory = AttentionMemory(problem, extents, pointers)
            tiles = once("row_tiles", as_int64(shape.grid.row_tiles))
            group = once("group", tirx.truncdiv(wide(block), tiles))
            number = once("row_tile", wide(block) - group * tiles)
            if problem.plan.causal is not None:  # those that see most keys begin first
                number = tiles - 1 - number
            first = once("first_row", number * micro_kernel.rows)
            tile = _TILES[micro_kernel.unit](problem, micro_kernel, memory, thread, group, first)
            seen = _tiles_of(tile.num_seen(), micro_kernel)
            own = once("part_tiles", as_int64(shape.part_tiles))
            low = once("low", wide(part) * own)
            tile.emit(low, once("high", tirx.max(low, tirx.min(low + own, seen))))
            tile.write(_to_output(tile) if micro_kernel.splits == 1 else _to_parts(tile, parts, wide(part)))
    return builder.get()


def _floats(pointer: Any) -> Any:
    return T.decl_buffer((i64(1 << 40),), DTYPE, data=pointer)


def _tiles_of(keys: Any, micro_kernel: CudaMicroKernel) -> Any:
    return tirx.truncdiv(keys + (micro_kernel.columns - 1), i64(micro_kernel.columns))


def _runs(tile: AttentionTile, value: Any, offset: Any, column: Any, buffer: Any, run: int) -> None:
    """Emit the stores of a run of elements of a result, those that exist.

    Parameters
    ----------
    value : callable
        ``number in the run -> float32 expression``.
    offset : int64 expression
        Of the first element of the result.
    """
    dtype = tile.problem.dtype(tile.problem.outputs[0]) if str(buffer.dtype) != DTYPE else DTYPE
    width = min(run, vector_width(tile.width))
    for first in range(0, run, width):
        with T.If(column + first < tile.width), T.Then():
            values = local("result", width, str(buffer.dtype))
            for u in range(width):
                store(values, convert(value(first + u), dtype, 1), [u], 1)
            at = aligned(offset + wide(column + first), width)
            store(buffer, load(values, [0], width), [at], width)


def _to_output(tile: AttentionTile) -> Write:
    name = tile.problem.outputs[0]
    buffer = tile.memory.buffers[name]

    def write(at: Any, column: Any, row: Any, slot: Any, run: int) -> None:
        inverse, own = tile.inverse(slot), tile.accumulators
        _runs(tile, lambda u: own[at + u] * inverse, tile.offset(name, row), column, buffer, run)

    return write


def _to_parts(tile: AttentionTile, parts: Mapping[str, Any], part: Any) -> Write:
    """Return what writes one part of the keys to the workspace: [part, group, row], of values and of sums."""

    def write(at: Any, column: Any, row: Any, slot: Any, run: int) -> None:
        line = once("line", (part * tile.groups + tile.group) * tile.rows + row)
        own, start = tile.accumulators, line * tile.width
        _runs(tile, lambda u: own[at + u], start, column, parts[WEIGHTED], run)
        with T.If(column < 1), T.Then():
            store(parts[TOTALS], tile.highest[slot], [line * 2], 1)
            store(parts[TOTALS], tile.totals[slot], [line * 2 + 1], 1)

    return write


def _lower_combination(
    problem: AttentionProblem, micro_kernel: CudaMicroKernel, symbol: str, arguments: tuple[str, ...]
) -> Any:
    """Return the function that combines the parts of each query: a warp for each."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        pointers, extents = begin_function(problem, symbol, arguments)
        shape = AttentionShape(problem, micro_kernel, extents, DeviceOps())
        (_, (blocks, _)) = shape.grids
        with (
            T.launch_thread("blockIdx.x", as_int64(blocks)) as block,
            T.launch_thread("threadIdx.x", STATE_THREADS) as thread,
            small_buffers_in("local"),
        ):
            parts = {name: _floats(pointers.pop(name)) for name in shape.regions}
            memory = AttentionMemory(problem, extents, pointers)
            groups, rows, width, _ = (as_int64(size) for size in problem.sizes(extents))
            lines = once("lines", groups * rows)
            own = wide(block) * (STATE_THREADS // WARP) + wide(tirx.truncdiv(thread, WARP))
            line, lane = once("line", own), once("lane", tirx.truncmod(thread, WARP))
            with T.If(line < lines), T.Then():
                factors = _factors(problem.plan, parts[TOTALS], micro_kernel.splits, line, lines)
                group = once("group", tirx.truncdiv(line, rows))
                at = memory.positions(problem.plan.groups, group)
                at = at | memory.positions(problem.plan.rows, once("row", line - group * rows))
                (name,) = problem.outputs
                offset, value = memory.offset(name, at), local("value", 1)
                with T.serial(i64(0), tirx.truncdiv(width + (WARP - 1), i64(WARP))) as turn:
                    column = once("column", turn * WARP + wide(lane))
                    with T.If(column < width), T.Then():
                        store(value, const(0.0, 1), [0], 1)
                        with T.unroll(0, micro_kernel.splits) as part:
                            where = (wide(part) * lines + line) * width + column
                            store(value, value[0] + factors[part] * parts[WEIGHTED][where], [0], 1)
                        result = convert(value[0], problem.dtype(name), 1)
                        store(memory.buffers[name], result, [offset + column], 1)
    return builder.get()


def _factors(plan: AttentionPlan, totals: Any, splits: int, line: Any, lines: Any) -> Any:
    """Return what each part's values are multiplied with: e^(m - max of m) over the sum of all weights."""
    factors, highest, total = local("factors", splits), local("highest", 1), local("total", 1)
    store(highest, const(-math.inf, 1), [0], 1)
    store(total, const(0.0, 1), [0], 1)

    def at(part: Any) -> Any:
        return (wide(part) * lines + line) * 2

    with T.unroll(0, splits) as part:
        store(highest, call("fmaxf", highest[0], totals[at(part)]), [0], 1)
    base = named(tirx.Select(highest[0] <= const(-math.inf, 1), const(0.0, 1), highest[0]), 1)
    with T.unroll(0, splits) as part:
        store(factors, call("expf", totals[at(part)] - base), [part], 1)
        store(total, total[0] + factors[part] * totals[at(part) + 1], [0], 1)
    inverse = named(plan.inverse(total[0], const(1.0, 1), const(0.0, 1), tirx.Select), 1)
    with T.unroll(0, splits) as part:
        store(factors, factors[part] * inverse, [part], 1)
    return factors
