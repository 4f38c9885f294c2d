"""A micro-kernel of a row block lowered to a TIR function with symbolic extents.

for task in parallel(P · CHUNKS):             # some rows each, or columns where nothing is reduced
  for some rows together:                     # where they overlap, the next ones begin before these end
    for pass: for vector: load, compute, add up, store
  for each row that is left over: the same for one row
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.chunks import Chunk, chunked, part
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.rows.across import AcrossBody
from dietcode.search_space.cpu.rows.body import RowBody
from dietcode.search_space.cpu.rows.group import Span
from dietcode.search_space.cpu.rows.micro_kernel import RowKernel
from dietcode.search_space.cpu.rows.order import emit_groups
from dietcode.search_space.cpu.rows.space import num_tasks
from dietcode.search_space.cpu.rows.streaming import finish_streams, streaming
from dietcode.search_space.partition import ceildiv, choose_partition
from dietcode.search_space.rows.memory import RowMemory
from dietcode.search_space.rows.passes import schedule
from dietcode.search_space.rows.problem import RowProblem
from dietcode.search_space.tir import CPU, INT32, TirOps, as_int64, first_lanes, i64, workspace


def lower_rows(problem: RowProblem, micro_kernel: RowKernel, limits: Limits, name: str) -> Any:
    """Return the private function ``name(inputs…, outputs…, dynamic extents…) -> status`` on raw pointers.

    Parameters
    ----------
    problem : RowProblem
        What is computed.
    micro_kernel : RowKernel
        How.
    limits : Limits
        Lanes and cores of the target.
    name : str
        Symbol of the function.

    Returns
    -------
    tvm.tirx.PrimFunc
        Pointers of inputs and outputs, then an int64 for each index of `RowProblem.dynamic`.
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
            if micro_kernel.stream:
                scopes.enter_context(streaming(limits.lanes))
            lower_row_tasks(problem, micro_kernel, limits, RowMemory(problem, extents, pointers))
        T.Return(tirx.IntImm("int32", 0))
    return builder.get()


def lower_row_tasks(problem: RowProblem, micro_kernel: RowKernel, limits: Limits, memory: RowMemory) -> None:
    """Emit the loop over tasks, within a function whose tensors are declared.

    Parameters
    ----------
    memory : RowMemory
        The tensors.
    """

    def num_steps() -> Any:
        rows, columns = (as_int64(size) for size in problem.sizes(memory.extents)[1:3])
        of_vector = len(problem.primitives) + len(problem.inputs) + len(problem.outputs)
        return tirx.truncdiv(rows * columns * of_vector, i64(limits.lanes))

    tasks = num_tasks(micro_kernel, limits)
    with chunked(tasks, num_steps, micro_kernel.serial) as (core, chunk):
        emit = _task_turned if problem.turned else _task_across if problem.inner else _task
        emit(problem, micro_kernel, limits, memory, core, chunk)


def _task(
    problem: RowProblem,
    micro_kernel: RowKernel,
    limits: Limits,
    memory: RowMemory,
    core: Any,
    chunk: Chunk,
) -> None:
    ops = TirOps()
    _, rows, columns, _ = problem.sizes(memory.extents)
    rows, columns = ops.bind(as_int64(rows)), ops.bind(as_int64(columns))
    fixed = [problem.extents[index] for index in problem.columns]
    num_columns = columns if None in fixed else int(problem.product(problem.columns, dict(problem.extents)))
    height, width, tasks = micro_kernel.rows, micro_kernel.columns, num_tasks(micro_kernel, limits)
    row_tiles = ops.bind(ceildiv(rows, height, ops))
    column_tiles = i64(1) if problem.reduces else ops.bind(ceildiv(columns, width, ops))
    grid = choose_partition(i64(1), row_tiles, column_tiles, tasks, False, ops, rows_first=True)
    row_part = ops.bind(tirx.truncdiv(core, grid.column_parts))
    column_part = ops.bind(tirx.truncmod(core, grid.column_parts))
    (first, last), chunk = chunk.cut(part(row_tiles, row_part, grid.row_parts))
    begin, end = ops.bind(first * height), ops.bind(tirx.min(last * height, rows))
    span = Span(i64(0), i64(0), is_whole=True)
    if not problem.reduces:
        span = Span(*chunk.of(part(column_tiles, column_part, grid.column_parts)), is_whole=False)
    plan = schedule(problem, micro_kernel.keep)
    with ExitStack() as buffers:
        scratch, pitch = None, i64(0)
        if plan.kept:
            pitch = ops.bind(ceildiv(columns, width, ops) * width)
            num_rows = len(plan.kept) * plan.num_groups(micro_kernel.overlap) * height
            scratch = buffers.enter_context(workspace(pitch * num_rows))
        body = RowBody(
            problem, memory, plan, limits.lanes, width, num_columns, scratch, pitch, micro_kernel.stream
        )
        body.fetch = micro_kernel.fetch
        groups = ops.bind(tirx.truncdiv(end - begin, i64(height)))
        emit_groups(body, micro_kernel.overlap, begin, height, groups, ops.bind(rows - 1), span)
        if height > 1:
            with T.serial(ops.bind(begin + groups * height), end) as row:
                body.emit([row], span)
        if micro_kernel.stream:
            finish_streams()


def _task_turned(
    problem: RowProblem,
    micro_kernel: RowKernel,
    limits: Limits,
    memory: RowMemory,
    core: Any,
    chunk: Chunk,
) -> None:
    """Emit one task of a block that transposes tensors: squares of as many rows as a vector has lanes."""
    ops, height, indices = TirOps(), micro_kernel.rows, problem.rows
    end = indices.index(problem.turned[-1]) + 1
    before = indices[: end - len(problem.turned)]
    outer, extent, stride, columns = (
        ops.bind(as_int64(problem.product(some, memory.extents)))
        for some in (before, problem.turned, indices[end:], problem.columns)
    )
    fixed = [problem.extents[index] for index in problem.columns]
    num_columns = columns if None in fixed else int(problem.product(problem.columns, dict(problem.extents)))
    tiles = ops.bind(ceildiv(extent, height, ops))
    row_tiles = ops.bind(outer * tiles * stride)
    column_tiles = ops.bind(ceildiv(columns, micro_kernel.columns, ops))
    tasks = num_tasks(micro_kernel, limits)
    grid = choose_partition(i64(1), row_tiles, column_tiles, tasks, False, ops, rows_first=True)
    row_part = ops.bind(tirx.truncdiv(core, grid.column_parts))
    column_part = ops.bind(tirx.truncmod(core, grid.column_parts))
    (first, last), chunk = chunk.cut(part(row_tiles, row_part, grid.row_parts))
    span = Span(*chunk.of(part(column_tiles, column_part, grid.column_parts)), is_whole=False)
    plan = schedule(problem, micro_kernel.keep)
    body = RowBody(problem, memory, plan, limits.lanes, micro_kernel.columns, num_columns, None, i64(0))
    body.streams = micro_kernel.stream
    with T.serial(first, last) as tile:
        group = ops.bind(tirx.truncdiv(tile, tiles))
        begin = ops.bind((tile - group * tiles) * height)
        base = ops.bind(tirx.truncdiv(group, stride) * (extent * stride) + tirx.truncmod(group, stride))
        rows = [ops.bind(base + tirx.min(begin + i, extent - 1) * stride) for i in range(height)]
        body.emit(rows, span, num_turned=ops.bind(tirx.min(extent - begin, i64(height))))
    if micro_kernel.stream:
        finish_streams()


def _task_across(
    problem: RowProblem,
    micro_kernel: RowKernel,
    limits: Limits,
    memory: RowMemory,
    core: Any,
    chunk: Chunk,
) -> None:
    """Emit one task of a block whose columns lie before its last indices: vectors of rows."""
    ops, lanes, height = TirOps(), limits.lanes, micro_kernel.rows
    outer, inner, columns = (
        ops.bind(as_int64(problem.product(indices, memory.extents)))
        for indices in (problem.outer, problem.inner, problem.columns)
    )
    tasks, tiles = num_tasks(micro_kernel, limits), ops.bind(ceildiv(inner, height, ops))
    grid = choose_partition(i64(1), outer, tiles, tasks, False, ops, rows_first=True)
    row_part = ops.bind(tirx.truncdiv(core, grid.column_parts))
    column_part = ops.bind(tirx.truncmod(core, grid.column_parts))
    (first_row, last_row), chunk = chunk.cut(part(outer, row_part, grid.row_parts))
    first, last = chunk.of(part(tiles, column_part, grid.column_parts))
    begin, end = ops.bind(first * height), ops.bind(tirx.min(last * height, inner))
    plan = schedule(problem, micro_kernel.keep)
    with ExitStack() as buffers:
        scratch, pitch = None, i64(0)
        if plan.kept:
            pitch = ops.bind(ceildiv(columns, micro_kernel.columns, ops) * micro_kernel.columns)
            scratch = buffers.enter_context(workspace(pitch * (len(plan.kept) * height)))
        body = AcrossBody(
            problem, memory, plan, lanes, micro_kernel.columns, columns, scratch, pitch, micro_kernel.stream
        )
        groups = ops.bind(tirx.truncdiv(end - begin, i64(height)))
        rest = ops.bind(begin + groups * height)
        with T.serial(first_row, last_row) as row:
            with T.serial(i64(0), groups) as group:
                at = ops.bind(begin + group * height)
                body.emit(row, [ops.bind(at + i) for i in range(0, height, lanes)])
            with T.serial(i64(0), ops.bind(ceildiv(end - rest, lanes, ops))) as number:
                at = ops.bind(rest + number * lanes)
                body.emit(row, [at], first_lanes(end - at, lanes))
        if micro_kernel.stream:
            finish_streams()
