"""The packed layout of the column operand, and the function that packs.

``packed[batch, n // lanes, k, n % lanes] = B[batch, n, k]``, zero where n is past the end. One layout serves
every micro-kernel of a library, whatever its width: a tile of v vectors reads v panels side by side.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.partition import ceildiv
from dietcode.search_space.problem import Problem
from dietcode.search_space.tir import DTYPE, INT32, TirOps, i64, load, store, unflatten


def packed_shape(problem: Problem, extents: dict[str, Any], lanes: int) -> tuple[Any, Any, Any, Any]:
    """``(batch, panels, reduction, lanes)`` for TIR extents."""
    batch, _, columns, reduction = (i64(s) if isinstance(s, int) else s for s in problem.sizes(extents))
    return batch, ceildiv(columns, lanes, TirOps()), reduction, i64(lanes)


def lower_packing(problem: Problem, lanes: int, name: str) -> Any:
    """The private function ``name(operand, packed, dynamic extents…) -> status`` on raw pointers."""
    operand = problem.column_operand
    with IRBuilder() as builder, T.prim_func(s_tir=True, private=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        source_pointer = T.arg(operand, T.ptr(DTYPE))
        packed_pointer = T.arg("packed", T.ptr(DTYPE))
        sizes = {letter: T.arg(f"extent_{letter}", T.int64()) for letter in problem.dynamic}
        T.func_ret(INT32)
        extents = {k: i64(v) if v is not None else sizes[k] for k, v in problem.extents.items()}
        letters = problem.subscripts[operand]
        source = T.decl_buffer(tuple(extents[k] for k in letters), DTYPE, data=source_pointer, align=4)
        shape = packed_shape(problem, extents, lanes)
        packed = T.decl_buffer(shape, DTYPE, data=packed_pointer, align=4)
        columns = problem.product(problem.columns, extents)
        with T.parallel(i64(0), shape[0] * shape[1]) as index:
            batch, panel = tirx.truncdiv(index, shape[1]), tirx.truncmod(index, shape[1])
            with T.serial(i64(0), shape[2]) as k, T.serial(i64(0), i64(lanes)) as lane:
                column = panel * lanes + lane
                # Clamped, so that the padded lanes read something that exists and then drop it.
                where = (
                    unflatten(batch, problem.batch, extents)
                    | unflatten(tirx.min(column, columns - 1), problem.columns, extents)
                    | unflatten(k, problem.reduction, extents)
                )
                value = load(source, [where[letter] for letter in letters], 1)
                padded = tirx.Select(column < columns, value, tirx.const(0, DTYPE))
                store(packed, padded, [batch, panel, k, lane], 1)
        T.Return(tirx.IntImm("int32", 0))
    return builder.get()
