"""A micro-kernel of attention lowered to a TIR function with symbolic extents.

for task in parallel(P · CHUNKS):               # some tiles of queries each
  for tiles of a group together:
    for segment of keys:
      for block of the segment:
        transpose the keys, copy the values
        for tile: scores, weights, weighted values
      combine with earlier segments
    divide by the sums

With `split` a task has some segments of some tiles instead, one tile together; what it keeps of each goes to
a buffer of the call, and a second loop over tasks combines them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.attention.memory import AttentionMemory
from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cpu.attention.body import KeyBlock, TileBody
from dietcode.search_space.cpu.attention.copying import KeyRows, copy_values, transpose_keys
from dietcode.search_space.cpu.attention.micro_kernel import BLOCK, SEGMENT, AttentionKernel
from dietcode.search_space.cpu.attention.space import num_tasks, pitch
from dietcode.search_space.cpu.chunks import Chunk, chunked, part
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.tir import CPU, INT32, TirOps, as_int64, i64, load, workspace


def lower_attention(
    problem: AttentionProblem, micro_kernel: AttentionKernel, limits: Limits, name: str
) -> Any:
    """Return the private function ``name(inputs…, output, dynamic extents…) -> status`` on raw pointers.

    Parameters
    ----------
    problem : AttentionProblem
        What is computed.
    micro_kernel : AttentionKernel
        How.
    limits : Limits
        Lanes and cores of the target.
    name : str
        Symbol of the function.

    Returns
    -------
    tvm.tirx.PrimFunc
        Pointers of inputs and output, then an int64 for each index of `AttentionProblem.dynamic`.
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
        with T.attr(i64(0), "device_type", CPU), T.attr(i64(0), "device_id", 0):
            lowering = _AttentionLowering(
                problem, micro_kernel, limits, AttentionMemory(problem, extents, pointers)
            )
            if micro_kernel.split:
                lowering.emit_split()
            else:
                lowering.emit()
        T.Return(tirx.IntImm("int32", 0))
    return builder.get()


def _bind(value: Any) -> Any:
    return TirOps().bind(value)


def _ceildiv(a: Any, b: Any) -> Any:
    return _bind(tirx.truncdiv(a + (b - 1), as_int64(b)))


@dataclass(frozen=True)
class _Grid:
    """Sizes of a call, in variables of one function; every loop over tasks becomes a function of its own.

    Attributes
    ----------
    groups, rows, keys : int64 expressions
        Groups with keys of their own, queries of each, keys of each.
    tiles : int64 expression
        Tiles of queries of each group.
    segments : int64 expression
        Of the keys of a group.
    """

    groups: Any
    rows: Any
    keys: Any
    tiles: Any
    segments: Any


@dataclass(frozen=True)
class _Scratch:
    """Where a task computes.

    Attributes
    ----------
    body : TileBody
        The code for a tile, with the task's buffers.
    keys : Buffer
        A block of keys, transposed.
    values : Buffer or None
        A block of values; None where they are read where they lie.
    """

    body: TileBody
    keys: Any
    values: Any


class _AttentionLowering:
    """The loops around a `TileBody`."""

    def __init__(
        self,
        problem: AttentionProblem,
        micro_kernel: AttentionKernel,
        limits: Limits,
        memory: AttentionMemory,
    ) -> None:
        self.problem, self.plan, self.micro_kernel, self.memory = problem, problem.plan, micro_kernel, memory
        self.lanes, self.num_tasks = limits.lanes, num_tasks(micro_kernel, limits)
        self.pitch, self.height = pitch(problem, limits.lanes), micro_kernel.rows

    def emit(self) -> None:
        """Emit the loop over tasks that have all keys of their queries."""
        together = self.micro_kernel.tiles
        with self._tasks() as (core, chunk):
            grid = self._grid()
            first, last = part(grid.groups * grid.tiles, core, self.num_tasks)
            groups = _bind(tirx.truncdiv(first, grid.tiles)), _ceildiv(last, grid.tiles)
            groups, within = chunk.cut(groups)
            with self._scratch() as scratch, T.serial(*groups) as group:
                before = _bind(group * grid.tiles)
                tile = _bind(tirx.max(first - before, i64(0)))
                tile_end = _bind(tirx.min(last - before, grid.tiles))
                at = self.memory.positions(self.plan.groups, group)
                # Tiles together read their keys once: these are not cut.
                with T.serial(*within.of((i64(0), _ceildiv(tile_end - tile, together)))) as number:
                    own = _bind(tile + number * together)
                    self._tiles(scratch, grid, at, own, _bind(tirx.min(tile_end - own, i64(together))))

    def emit_split(self) -> None:
        """Emit a loop over tasks that have some segments, and one that combines them."""
        grid = self._grid()
        num_tiles = _bind(grid.groups * grid.tiles)
        of_tile = self.height * self.pitch
        with workspace(_bind(num_tiles * grid.segments * of_tile)) as partial:
            with self._tasks() as (core, chunk):
                own = self._grid()
                segments = part(own.groups * own.tiles * own.segments, core, self.num_tasks)
                first, last = chunk.of(segments)
                with self._scratch(partial) as scratch, T.serial(first, last) as number:
                    tile = _bind(tirx.truncdiv(number, own.segments))
                    segment = _bind(number - tile * own.segments)
                    group = _bind(tirx.truncdiv(tile, own.tiles))
                    at = self.memory.positions(self.plan.groups, group)
                    states = _bind(number * of_tile)
                    scratch.body.clear(states, i64(self.height))
                    begin = _bind(segment * SEGMENT)
                    end = _bind(tirx.min(begin + SEGMENT, self._num_keys(own, at)))
                    tiles = (_bind(tile - group * own.tiles), i64(1))
                    self._segment(scratch, own, at, (begin, end), tiles, states)
            with self._tasks() as (core, chunk):
                own = self._grid()
                first, last = chunk.of(part(own.groups * own.tiles, core, self.num_tasks))
                body = TileBody(self.problem, self.memory, self.micro_kernel, self.lanes, None, partial)
                with T.serial(first, last) as tile:
                    states = _bind(tile * own.segments * of_tile)
                    with T.serial(i64(1), own.segments) as segment, T.serial(i64(0), i64(self.height)) as row:
                        state = _bind(states + row * self.pitch)
                        body.combine(state, _bind(state + segment * of_tile))
                    group = _bind(tirx.truncdiv(tile, own.tiles))
                    at = self.memory.positions(self.plan.groups, group)
                    self._finish(body, own, at, _bind(tile - group * own.tiles), states)

    def _tasks(self) -> AbstractContextManager[tuple[Any, Chunk]]:
        def num_steps() -> Any:
            groups, rows, _, keys = (as_int64(n) for n in self.problem.sizes(self.memory.extents))
            return tirx.truncdiv(groups * rows * keys * sum(self.problem.head), i64(self.lanes))

        return chunked(self.num_tasks, num_steps, self.micro_kernel.serial)

    def _grid(self) -> _Grid:
        groups, rows, _, keys = self.problem.sizes(self.memory.extents)
        groups, rows, keys = (_bind(as_int64(size)) for size in (groups, rows, keys))
        return _Grid(groups, rows, keys, _ceildiv(rows, self.height), _ceildiv(keys, SEGMENT))

    @contextmanager
    def _scratch(self, states: Any = None) -> Iterator[_Scratch]:
        """Yield the buffers of a task, with those of its queries unless they are given."""
        (depth, _), tiles = self.problem.head, self.micro_kernel.tiles
        with ExitStack() as buffers:

            def allocate(size: int) -> Any:
                return buffers.enter_context(workspace(i64(size)))

            scores, keys = allocate(self.height * BLOCK), allocate(depth * BLOCK)
            values = allocate((self.pitch - 2 * self.lanes) * BLOCK) if tiles > 1 else None
            if states is None:
                states = allocate(2 * self.height * tiles * self.pitch)
            body = TileBody(self.problem, self.memory, self.micro_kernel, self.lanes, scores, states)
            yield _Scratch(body, keys, values)

    def _tiles(self, scratch: _Scratch, grid: _Grid, at: Mapping[str, Any], first: Any, count: Any) -> None:
        """Compute some tiles of a group from begin to end, `first` being the first one's number."""
        body, later = scratch.body, self.height * self.micro_kernel.tiles * self.pitch
        num_rows = _bind(count * self.height)
        num_keys = _bind(tirx.min(self._num_seen(grid, first + count), self._num_keys(grid, at)))
        body.clear(i64(0), num_rows)
        with T.serial(i64(0), _ceildiv(num_keys, SEGMENT)) as segment:
            states = _bind(tirx.Select(segment > i64(0), i64(later), i64(0)))
            with T.If(segment > i64(0)), T.Then():
                body.clear(states, num_rows)
            begin = _bind(segment * SEGMENT)
            end = _bind(tirx.min(begin + SEGMENT, num_keys))
            self._segment(scratch, grid, at, (begin, end), (first, count), states)
            with T.If(segment > i64(0)), T.Then(), T.serial(i64(0), num_rows) as row:
                state = _bind(row * self.pitch)
                body.combine(state, _bind(state + later))
        with T.serial(i64(0), count) as tile:
            self._finish(body, grid, at, first + tile, _bind(tile * (self.height * self.pitch)))

    def _finish(self, body: TileBody, grid: _Grid, at: Mapping[str, Any], tile: Any, states: Any) -> None:
        for i, row in enumerate(body.rows(at, tile * self.height, grid.rows)):
            body.finish(_bind(states + i * self.pitch), row.output)

    def _num_keys(self, grid: _Grid, at: Mapping[str, Any]) -> Any:
        """Return how many keys of a group exist, by its length if it has one."""
        name = self.plan.lengths
        if name is None:
            return grid.keys
        length = load(self.memory.buffers[name], [self.memory.offset(name, at)], 1)
        return tirx.max(tirx.min(tirx.Cast("int64", length), grid.keys), i64(0))

    def _num_seen(self, grid: _Grid, tiles: Any) -> Any:
        """Return how many keys the queries of a group's first tiles see at most."""
        if self.plan.rows != self.plan.causal:  # queries of several heads: the last one of a tile may be any
            return grid.keys
        last = tirx.min(tiles * self.height, grid.rows)
        return tirx.max(tirx.min(last + grid.keys - grid.rows, grid.keys), i64(0))

    def _segment(
        self,
        scratch: _Scratch,
        grid: _Grid,
        at: Mapping[str, Any],
        bounds: tuple[Any, Any],
        tiles: tuple[Any, Any],
        states: Any,
    ) -> None:
        """Add some keys to some tiles of a group.

        Parameters
        ----------
        at : mapping of str to int64 expression
            The group's position along each of its indices.
        bounds : (int64 expression, int64 expression)
            The first key, and the one after the last.
        tiles : (int64 expression, int64 expression)
            The number of the first tile, and how many there are.
        states : int64 expression
            Offset of what is kept of the first tile.
        """
        (begin, end), (first, count), plan = bounds, tiles, self.plan
        (depth, width), body = self.problem.head, scratch.body
        with T.serial(i64(0), _ceildiv(end - begin, BLOCK)) as number:
            key = _bind(begin + number * BLOCK)
            num = _bind(tirx.min(end - key, i64(BLOCK)))
            keys, values = (self._key_rows(name, {**at, plan.keys: key}) for name in (plan.key, plan.value))
            ahead = values if scratch.values is None else None
            step = body.micro_kernel.columns
            transpose_keys(keys, num, depth, scratch.keys, self.lanes, step, ahead)
            if scratch.values is not None:
                copy_values(values, num, width, scratch.values, self.lanes)
                values = KeyRows(scratch.values, i64(0), i64(self.pitch - 2 * self.lanes))
            block = KeyBlock(key, num, scratch.keys, values, scratch.values is not None)
            with T.serial(i64(0), count) as tile:
                rows = body.rows(at, (first + tile) * self.height, grid.rows)
                body.attend(rows, block, _bind(states + tile * (self.height * self.pitch)))

    def _key_rows(self, tensor: str, at: Mapping[str, Any]) -> KeyRows:
        stride = _bind(as_int64(self.memory.stride(tensor, self.plan.keys)))
        return KeyRows(self.memory.buffers[tensor], self.memory.offset(tensor, at), stride)
