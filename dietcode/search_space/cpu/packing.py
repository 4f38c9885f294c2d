"""The packed layout of a constant column operand, and the function that packs.

``packed[batch, n // lanes, k, n % lanes] = B[batch, n, k]``, zero where n is past the end. One layout serves
every micro-kernel of a library, whatever its width: a tile of v vectors reads v panels side by side.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import size_of, view_of
from dietcode.search_space.memory import Memory
from dietcode.search_space.partition import ceildiv
from dietcode.search_space.problem import Problem
from dietcode.search_space.tir import DTYPE, INT32, TirOps, i64, load, store


def packed_batch(problem: Problem) -> tuple[str, ...]:
    """Return the batch indices of the column operand: it is packed once for the others."""
    return tuple(k for k in problem.batch if k in problem.indices[problem.column_operand])


def packed_shape(problem: Problem, extents: dict[str, Any], lanes: int) -> tuple[Any, Any, Any, Any]:
    """Return ``(batch, panels, reduction, lanes)`` for TIR extents, or numbers."""
    batch, columns, reduction = (
        problem.product(indices, extents)
        for indices in (packed_batch(problem), problem.columns, problem.reduction)
    )
    return batch, ceildiv(columns, lanes, TirOps()), reduction, lanes


def lower_packing(problem: Problem, lanes: int, name: str) -> Any:
    """Return the private function ``name(operand, packed, dynamic extents…) -> status`` on raw pointers."""
    operand = problem.column_operand
    with IRBuilder() as builder, T.prim_func(s_tir=True, private=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        source_pointer = T.arg(operand, T.ptr(DTYPE))
        packed_pointer = T.arg("packed", T.ptr(DTYPE))
        sizes = {index: T.arg(f"extent_{index}", T.int64()) for index in problem.dynamic}
        T.func_ret(INT32)
        extents = {k: i64(v) if v is not None else sizes[k] for k, v in problem.extents.items()}
        batch, panels, reduction, _ = packed_shape(problem, extents, lanes)
        memory = Memory(problem, extents, {}, lanes, panels)
        view = view_of(problem, operand)
        source = T.decl_buffer((memory.value(view.size),), DTYPE, data=source_pointer, align=4)
        packed = T.decl_buffer((batch * panels * reduction * lanes,), DTYPE, data=packed_pointer, align=4)
        columns = memory.value(size_of(problem, problem.columns))
        with T.parallel(i64(0), batch * panels) as index:
            start = memory.offset(view, packed_batch(problem), tirx.truncdiv(index, panels))
            first = tirx.truncmod(index, panels) * lanes
            with T.serial(i64(0), reduction) as k, T.serial(i64(0), i64(lanes)) as lane:
                column = first + lane
                # Clamped, so that padded lanes read an element that exists, and drop it.
                offset = memory.offset(view, problem.columns, tirx.min(column, columns - 1))
                offset = start + offset + memory.offset(view, problem.reduction, k)
                padded = tirx.Select(column < columns, load(source, [offset], 1), tirx.const(0, DTYPE))
                store(packed, padded, [(index * reduction + k) * lanes + lane], 1)
        T.Return(tirx.IntImm("int32", 0))
    return builder.get()
