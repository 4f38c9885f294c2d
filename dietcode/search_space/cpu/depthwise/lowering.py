"""A micro-kernel of a depthwise convolution lowered to a TIR function with symbolic extents.

for task in parallel(P · CHUNKS):             # tiles along lines, or vectors of channels where those are few
  for line: for tile of positions: for tile of channels:         # or, with strips, channels before positions
    acc[positions, channels] = 0              # registers
    for k in the window: acc += X[positions under k, channels] · packed_F[channels // lanes, k, lanes]
    Y[positions, channels] = epilogue(acc)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import view_of
from dietcode.search_space.cpu.chunks import Chunk, chunked, part
from dietcode.search_space.cpu.depthwise.body import DepthwiseBody, Line, Tile
from dietcode.search_space.cpu.depthwise.micro_kernel import DepthwiseKernel
from dietcode.search_space.cpu.depthwise.space import num_channels, num_panels, num_tasks, window_size
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.rows.streaming import finish_streams, streaming
from dietcode.search_space.depthwise import DepthwiseProblem
from dietcode.search_space.memory import Memory
from dietcode.search_space.partition import ceildiv, choose_partition
from dietcode.search_space.tir import CPU, DTYPE, INT32, TirOps, as_int64, i64, load, store, workspace


def lower_depthwise(
    problem: DepthwiseProblem, micro_kernel: DepthwiseKernel, limits: Limits, name: str
) -> Any:
    """Return the private function ``name(inputs…, output, dynamic extents…) -> status`` on raw pointers.

    Parameters
    ----------
    problem : DepthwiseProblem
        What is computed.
    micro_kernel : DepthwiseKernel
        How.
    limits : Limits
        Lanes and cores of the target.
    name : str
        Symbol of the function.

    Returns
    -------
    tvm.tirx.PrimFunc
        Pointers of `Problem.inputs` and the output, then an int64 for each index of `Problem.dynamic`.
    """
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
        with ExitStack() as scopes:
            scopes.enter_context(T.attr(i64(0), "device_type", CPU))
            scopes.enter_context(T.attr(i64(0), "device_id", 0))
            if micro_kernel.stream:
                scopes.enter_context(streaming(limits.lanes))
            panels = i64(num_panels(problem, limits))
            memory = Memory(problem, extents, pointers, limits.lanes, panels)

            def num_steps() -> Any:
                rows = as_int64(problem.product(problem.rows, dict(memory.extents)))
                return rows * (window_size(problem) * num_panels(problem, limits))

            # Each task packs a kernel that is not constant.
            cut = num_steps if problem.column_operand_constant else None
            with chunked(num_tasks(micro_kernel, limits), cut, micro_kernel.serial) as (core, chunk):
                _task(problem, micro_kernel, limits, memory, core, chunk)
        T.Return(tirx.IntImm("int32", 0))
    return builder.get()


def _task(
    problem: DepthwiseProblem,
    micro_kernel: DepthwiseKernel,
    limits: Limits,
    memory: Memory,
    core: Any,
    chunk: Chunk,
) -> None:
    ops, lanes = TirOps(), limits.lanes
    bind, tasks, wide = ops.bind, num_tasks(micro_kernel, limits), micro_kernel.columns // lanes
    width = memory.extents[problem.rows[-1]]
    num_lines = bind(as_int64(problem.product(problem.rows[:-1], dict(memory.extents))))
    tiles = bind(ceildiv(width, micro_kernel.rows, ops))
    panels = num_panels(problem, limits)
    column_tiles = -(-panels // wide)
    grid = choose_partition(
        i64(1), bind(num_lines * tiles), i64(column_tiles), tasks, False, ops, rows_first=True
    )
    row_part = bind(tirx.truncdiv(core, grid.column_parts))
    column_part = bind(tirx.truncmod(core, grid.column_parts))
    (first, last), chunk = chunk.cut(part(num_lines * tiles, row_part, grid.row_parts))
    columns = chunk.of(part(i64(column_tiles), column_part, grid.column_parts))
    with ExitStack() as buffers:
        packed = memory.buffers[problem.column_operand]
        if not problem.column_operand_constant:
            bounds = bind(columns[0] * wide), bind(tirx.min(columns[1] * wide, panels))
            packed = buffers.enter_context(_packed(problem, limits, memory, bounds))
        body = DepthwiseBody(problem, memory, packed, micro_kernel.rows, lanes, micro_kernel.stream)
        first_line = bind(tirx.truncdiv(first, tiles))
        with T.serial(first_line, bind(ceildiv(last, tiles, ops))) as number:
            line = _line(body, number)
            begin = bind(tirx.max(first - number * tiles, 0))
            end = bind(tirx.min(last - number * tiles, tiles))

            def tile(row_tile: Any, panel: Any, vectors: int, channels: int, line: Line = line) -> None:
                one = Tile(bind(row_tile * micro_kernel.rows), panel, vectors, channels)
                with T.If(body.is_inside(line, one)):
                    with T.Then():
                        body.emit(line, one, inside=True)
                    with T.Else():
                        body.emit(line, one, inside=False)

            def over_columns(emit: Callable[[Any, int, int], None]) -> None:
                _over_columns(emit, columns, wide, num_channels(problem), lanes)

            if micro_kernel.strips:

                def strip(panel: Any, vectors: int, channels: int) -> None:
                    with T.serial(begin, end) as row_tile:
                        tile(row_tile, panel, vectors, channels)

                over_columns(strip)
            else:
                with T.serial(begin, end) as row_tile:
                    over_columns(lambda panel, vectors, channels: tile(row_tile, panel, vectors, channels))
        if micro_kernel.stream:
            finish_streams()


def _over_columns(
    emit: Callable[[Any, int, int], None], bounds: tuple[Any, Any], wide: int, channels: int, lanes: int
) -> None:
    """Emit the tiles of channels; the last one is narrower where they are no multiple of the others.

    Parameters
    ----------
    emit : callable
        ``(first panel, vectors, channels of the last vector)``.
    bounds : tuple of int64 expressions
        First tile, and the one after the last.
    """
    bind, whole = TirOps().bind, channels // (wide * lanes)
    left = channels - whole * wide * lanes
    if whole:
        with T.serial(bounds[0], bind(tirx.min(bounds[1], whole)) if left else bounds[1]) as number:
            emit(bind(number * wide), wide, lanes)
    if left:
        with T.If(bounds[1] > whole), T.Then():
            vectors = -(-left // lanes)
            emit(i64(whole * wide), vectors, left - (vectors - 1) * lanes)


def _line(body: DepthwiseBody, number: Any) -> Line:
    """Return a line of the output by its number."""
    bind, problem, across = TirOps().bind, body.problem, body.across
    image, top = number, i64(0)
    if across is not None:
        height = body.memory.extents[across.output]
        image = bind(tirx.truncdiv(number, height))
        top = bind(tirx.truncmod(number, height) * across.stride - across.padding)
    axes = [window.axis for window in problem.spatial]
    pixels = problem.product((*axes, problem.columns[0]), dict(body.memory.extents))
    width = body.memory.extents[problem.rows[-1]]
    return Line(bind(image * pixels), bind(number * width), top)


@contextmanager
def _packed(problem: DepthwiseProblem, limits: Limits, memory: Memory, bounds: tuple[Any, Any]) -> Any:
    """Pack the panels of one task; a kernel that is not constant is small, and each task packs its own."""
    lanes, size, channels = limits.lanes, window_size(problem), num_channels(problem)
    operand = problem.column_operand
    view, source = view_of(problem, operand), memory.buffers[operand]
    with workspace(i64(num_panels(problem, limits) * size * lanes)) as panels:
        with (
            T.serial(*bounds) as panel,
            T.serial(i64(0), i64(size)) as k,
            T.serial(i64(0), i64(lanes)) as lane,
        ):
            # Clamped, so that lanes past the end read an element that exists, and drop it.
            column = panel * lanes + lane
            offset = memory.offset(view, problem.columns, tirx.min(column, channels - 1))
            value = load(source, [offset + memory.offset(view, problem.reduction, k)], 1)
            value = tirx.Select(column < channels, value, tirx.const(0, DTYPE))
            store(panels, value, [(panel * size + k) * lanes + lane], 1)
        yield panels
