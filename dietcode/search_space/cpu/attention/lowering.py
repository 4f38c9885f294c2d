"""A micro-kernel of attention lowered to a TIR function with symbolic extents.

for task in parallel(P):                        # some tiles of queries each
  for tiles of a group together:
    for segment of keys:
      for block of the segment:
        transpose the keys, copy the values
        for tile: scores, weights, weighted values
      combine with earlier segments
    divide by the sums
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, ExitStack
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cpu.attention.body import Block, Body
from dietcode.search_space.cpu.attention.copying import copy_values, transpose_keys
from dietcode.search_space.cpu.attention.memory import AttentionMemory
from dietcode.search_space.cpu.attention.micro_kernel import BLOCK, SEGMENT, AttentionKernel
from dietcode.search_space.cpu.attention.space import num_tasks
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.partition import ceildiv
from dietcode.search_space.tir import CPU, INT32, TirOps, as_int64, i64, workspace


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
            _Lowering(problem, micro_kernel, limits, AttentionMemory(problem, extents, pointers)).emit()
        T.Return(tirx.IntImm("int32", 0))
    return builder.get()


class _Lowering:
    """The loops around a `Body`."""

    def __init__(
        self, problem: AttentionProblem, micro_kernel: AttentionKernel, limits: Limits, memory: AttentionMemory
    ) -> None:
        self.problem, self.micro_kernel, self.limits, self.memory = problem, micro_kernel, limits, memory
        self.lanes, self.num_tasks = limits.lanes, num_tasks(micro_kernel, limits)

    def emit(self) -> None:
        with self._tasks() as task:
            self._sizes()
            first, last = self._part(self.groups * self.tiles_of_group, task)
            begin = tirx.truncdiv(first, self.tiles_of_group)
            end = tirx.truncdiv(last + self.tiles_of_group - 1, self.tiles_of_group)
            height, together = self.micro_kernel.rows, self.micro_kernel.tiles
            bind = TirOps().bind
            with self._body(2 * height * together) as (body, keys, values):
                with T.serial(bind(begin), bind(end)) as group:
                    before = bind(group * self.tiles_of_group)
                    tile = bind(tirx.max(first - before, i64(0)))
                    tile_end = bind(tirx.min(last - before, self.tiles_of_group))
                    at = self.memory.positions(self.problem.plan.groups, group)
                    num_parts = bind(tirx.truncdiv(tile_end - tile + (together - 1), i64(together)))
                    with T.serial(i64(0), num_parts) as part:
                        own = bind(tile + part * together)
                        count = bind(tirx.min(tile_end - own, i64(together)))
                        self._tiles(body, keys, values, at, own, count)

    @contextmanager
    def _tasks(self) -> Iterator[Any]:
        loop = T.serial if self.micro_kernel.serial else T.parallel
        with loop(i64(0), i64(self.num_tasks), annotations={"dietcode.tasks": self.num_tasks}) as task:
            yield task

    def _sizes(self) -> None:
        """Give the sizes of the grid names, in each function that the loop over tasks becomes."""
        bind, ops = TirOps().bind, TirOps()
        groups, rows, _, keys = self.problem.sizes(self.memory.extents)
        self.groups, self.num_rows, self.num_keys = (bind(as_int64(size)) for size in (groups, rows, keys))
        self.tiles_of_group = bind(ceildiv(self.num_rows, self.micro_kernel.rows, ops))

    def _part(self, total: Any, task: Any) -> tuple[Any, Any]:
        bind = TirOps().bind
        return (
            bind(tirx.truncdiv(task * total, i64(self.num_tasks))),
            bind(tirx.truncdiv((task + 1) * total, i64(self.num_tasks))),
        )

    @contextmanager
    def _body(self, num_states: int) -> Iterator[tuple[Body, Any, Any]]:
        """Yield the code for a tile, and where keys and values are copied to."""
        depth = self.problem.head[0]
        with ExitStack() as buffers:
            scores = buffers.enter_context(workspace(i64(self.micro_kernel.rows * BLOCK)))
            keys = buffers.enter_context(workspace(i64(depth * BLOCK)))
            shape = Body(self.problem, self.memory, self.micro_kernel, self.lanes, scores, None)
            values = None
            if self.micro_kernel.tiles > 1:
                values = buffers.enter_context(workspace(i64(shape.width * BLOCK)))
            states = buffers.enter_context(workspace(i64(num_states * shape.pitch)))
            yield (
                Body(self.problem, self.memory, self.micro_kernel, self.lanes, scores, states),
                keys,
                values,
            )

    def _tiles(self, body: Body, keys: Any, values: Any, at: Any, first: Any, count: Any) -> None:
        """Compute some tiles of a group from begin to end, `first` being the first one's number."""
        bind, height = TirOps().bind, self.micro_kernel.rows
        later = height * self.micro_kernel.tiles * body.pitch
        num_keys = bind(self._num_seen(first + count))
        num_segments = bind(tirx.truncdiv(num_keys + (SEGMENT - 1), i64(SEGMENT)))
        body.clear(i64(0), count * height)
        with T.serial(i64(0), num_segments) as segment:
            states = bind(tirx.Select(segment > i64(0), i64(later), i64(0)))
            with T.If(segment > i64(0)), T.Then():
                body.clear(states, count * height)
            begin = bind(segment * SEGMENT)
            self._segment(body, keys, values, at, begin, bind(tirx.min(begin + SEGMENT, num_keys)), first, count, states)
            with T.If(segment > i64(0)), T.Then(), T.serial(i64(0), count * height) as row:
                body.combine(bind(row * body.pitch), bind(states + row * body.pitch))
        with T.serial(i64(0), count) as tile:
            rows = body.rows(at, (first + tile) * height, self.num_rows)
            for i, row in enumerate(rows):
                body.finish(bind((tile * height + i) * body.pitch), row.output)

    def _num_seen(self, tiles: Any) -> Any:
        """Return how many keys the queries of a group's first tiles see at most."""
        if self.problem.plan.rows != self.problem.plan.causal:  # queries of several heads: the last one of a tile may be any
            return self.num_keys
        last = tirx.min(tiles * self.micro_kernel.rows, self.num_rows)
        return tirx.max(tirx.min(last + self.num_keys - self.num_rows, self.num_keys), i64(0))

    def _segment(
        self, body: Body, keys: Any, values: Any, at: Any, begin: Any, end: Any, first: Any, count: Any, states: Any
    ) -> None:
        bind, memory, plan = TirOps().bind, self.memory, self.problem.plan
        key_stride, value_stride = (
            as_int64(memory.stride(name, plan.keys)) for name in (plan.key, plan.value)
        )
        key_buffer, value_buffer = memory.buffers[plan.key], memory.buffers[plan.value]
        num_blocks = bind(tirx.truncdiv(end - begin + (BLOCK - 1), i64(BLOCK)))
        with T.serial(i64(0), num_blocks) as number:
            key = bind(begin + number * BLOCK)
            num = bind(tirx.min(end - key, i64(BLOCK)))
            place = {**at, plan.keys: key}
            offset = memory.offset(plan.key, place)
            depth, width = self.problem.head
            transpose_keys(key_buffer, offset, key_stride, num, depth, keys, self.lanes)
            offset = memory.offset(plan.value, place)
            if values is None:
                block = Block(key, num, keys, (value_buffer, offset, value_stride), width % self.lanes == 0)
            else:
                copy_values(value_buffer, offset, value_stride, num, width, values, self.lanes)
                block = Block(key, num, keys, (values, i64(0), i64(body.width)), True)
            with T.serial(i64(0), count) as tile:
                rows = body.rows(at, (first + tile) * self.micro_kernel.rows, self.num_rows)
                body.attend(rows, block, bind(states + tile * (self.micro_kernel.rows * body.pitch)))
