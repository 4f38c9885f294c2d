"""The packed layout of a constant, and the function that packs.

``packed[batch, n // lanes, k, n % lanes] = B[batch, n, k]``, zero where n is past the end. One layout serves
every micro-kernel of a library, whatever its width: a tile of v vectors reads v panels side by side.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import size_of, view_of
from dietcode.search_space.memory import Addressing
from dietcode.search_space.partition import ceildiv
from dietcode.search_space.problem import AnyProblem, PackedLayout
from dietcode.search_space.tir import DTYPE, INT32, TirOps, i64, load, store


def packed_shape(
    problem: AnyProblem, layout: PackedLayout, extents: dict[str, Any], lanes: int
) -> tuple[Any, Any, Any, Any]:
    """Return ``(batch, panels, reduction, lanes)`` for TIR extents, or numbers."""
    batch, columns, reduction = (
        problem.product(indices, extents) for indices in (layout.batch, layout.columns, layout.reduction)
    )
    return batch, ceildiv(columns, lanes, TirOps()), reduction, lanes


def lower_packing(problem: AnyProblem, operand: str, lanes: int, name: str) -> Any:
    """Return the private function ``name(operand, packed, dynamic extents…) -> status`` on raw pointers."""
    layout = problem.packed[operand]
    with IRBuilder() as builder, T.prim_func(s_tir=True, private=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True})
        source_pointer = T.arg(operand, T.ptr(DTYPE))
        packed_pointer = T.arg("packed", T.ptr(DTYPE))
        sizes = {index: T.arg(f"extent_{index}", T.int64()) for index in problem.dynamic}
        T.func_ret(INT32)
        extents = {k: i64(v) if v is not None else sizes[k] for k, v in problem.extents.items()}
        batch, panels, reduction, _ = packed_shape(problem, layout, extents, lanes)
        memory = Addressing(problem, extents)
        source = T.decl_buffer(
            (memory.value(view_of(problem, operand).size),), DTYPE, data=source_pointer, align=4
        )
        packed = T.decl_buffer((batch * panels * reduction * lanes,), DTYPE, data=packed_pointer, align=4)
        emit_packing(memory, operand, layout, (source, packed), lanes)
        T.Return(tirx.IntImm("int32", 0))
    return builder.get()


def emit_packing(
    memory: Addressing, operand: str, layout: PackedLayout, buffers: tuple[Any, Any], lanes: int
) -> None:
    """Emit a parallel loop that packs.

    Parameters
    ----------
    buffers : (Buffer, Buffer)
        Of the operand, and of what is packed.
    """
    problem, (source, packed) = memory.problem, buffers
    batch, panels, reduction, _ = packed_shape(problem, layout, dict(memory.extents), lanes)
    view = view_of(problem, operand)
    columns = memory.value(size_of(problem, layout.columns))
    with T.parallel(i64(0), batch * panels) as index:
        start = memory.offset(view, layout.batch, tirx.truncdiv(index, panels))
        first = tirx.truncmod(index, panels) * lanes
        with T.serial(i64(0), reduction) as k, T.serial(i64(0), i64(lanes)) as lane:
            column = first + lane
            # Clamped, so that padded lanes read an element that exists, and drop it.
            offset = memory.offset(view, layout.columns, tirx.min(column, columns - 1))
            offset = start + offset + memory.offset(view, layout.reduction, k)
            padded = tirx.Select(column < columns, load(source, [offset], 1), tirx.const(0, DTYPE))
            store(packed, padded, [(index * reduction + k) * lanes + lane], 1)
