"""The code of one thread block of a block of rows: some threads take each row, pass by pass.

Neighbouring threads take neighbouring columns. What a pass reduces is combined in the lanes of a warp, always
in the same order, and then in shared memory where a row has several warps. Later passes compute again what
they need of earlier ones. A row past the edge is computed as the last one is, and not written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cuda.blocks.arithmetic import call, maximum, minimum, pointwise
from dietcode.search_space.cuda.blocks.demands import threads_of_row
from dietcode.search_space.cuda.building import both, local, once, only_if, sync, wide
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.epilogue import convert, widen
from dietcode.search_space.pointwise import minus_infinity
from dietcode.search_space.rows.memory import RowMemory
from dietcode.search_space.rows.passes import Pass, Schedule
from dietcode.search_space.rows.problem import RowProblem, RowRead
from dietcode.search_space.rows.reductions import BEGIN, combine_by
from dietcode.search_space.tir import DTYPE, as_int64, i64, load, store
from dietcode.search_space.vectors import const, named
from dietcode.target.multiprocessor import WARP
from dietcode.workload.expansion import ROWS, Primitive

_ALL_LANES = 0xFFFFFFFF
_COMBINE = combine_by(maximum, minimum)


class RowBlock:
    """Code of the rows of one thread block.

    Parameters
    ----------
    schedule : Schedule
        One that keeps nothing.
    thread : int32 expression
    """

    def __init__(
        self,
        problem: RowProblem,
        micro_kernel: CudaMicroKernel,
        memory: RowMemory,
        schedule: Schedule,
        thread: Any,
    ) -> None:
        self.problem, self.micro_kernel, self.memory = problem, micro_kernel, memory
        self.schedule = schedule
        self.across = threads_of_row(micro_kernel)
        self.line = once("line", tirx.truncdiv(thread, self.across))
        self.lane = once("lane", tirx.truncmod(thread, self.across))
        _, rows, columns, _ = (as_int64(size) for size in problem.sizes(memory.extents))
        self.rows, self.columns = rows, columns
        self.warps = self.across // WARP
        self.shared: Any = None
        if self.warps > 1 and problem.reduces:
            self.shared = T.alloc_buffer((micro_kernel.rows * self.warps,), DTYPE, scope="shared")
            IRBuilder.name("of_warps", self.shared)
        self.scalars: dict[str, Any] = {}
        self.begins: dict[str, Any] = {}
        self.inside: dict[str, Any] = {}
        self.stored: dict[str, Any] = {}

    def emit(self, row: Any, first: Any, num_steps: Any) -> None:
        """Compute the rows from `row` on.

        Parameters
        ----------
        row, first, num_steps : int64 expressions
            The first row; the first step of `CudaMicroKernel.columns` columns, and how many there are.
        """
        own = once("own_row", row + wide(self.line))
        self.exists = own < self.rows
        self.row = once("row", tirx.min(own, self.rows - 1))
        self._prepare()
        for one in self.schedule.passes:
            self._pass(one, first, num_steps)
        narrow = [name for name in self.problem.outputs if not self._is_wide(name)]
        if narrow:
            with T.If(tirx.And(self.exists, self.lane < 1)), T.Then():
                for name in narrow:
                    result = convert(self.scalars[name], self.problem.dtype(name), 1)
                    store(self.memory.buffers[name], result, [self.begins[name]], 1)

    def _is_wide(self, name: str) -> bool:
        return self.problem.is_wide(self.problem.seen_as(name))

    def _prepare(self) -> None:
        """Emit where this row of each tensor begins, and the values that need no pass."""
        problem, memory = self.problem, self.memory
        averaged = {name for name in problem.pools if problem.nodes[name].operator == "avgpool"}
        for number, name in enumerate((*problem.reads, *problem.outputs)):
            self.begins[name] = once(f"begin_{number}", memory.begin(name, self.row))
        for name in problem.into:
            self.stored[name] = once("is_stored", memory.is_stored(name, self.row)) > i64(0)
        for name in problem.reads:
            if name.partition(ROWS)[0] in averaged:
                self.inside[name] = memory.is_inside(name, self.row)
            if not self._is_wide(name):
                tensor = problem.reads[name].tensor
                value = widen(memory.buffers[tensor][self.begins[name]], problem.dtype(tensor))
                self.scalars[name] = named(value, 1)
        self._narrow(self.schedule.before)

    def _narrow(self, primitives: Sequence[Primitive]) -> None:
        for p in primitives:
            if p.kind == "inside":
                value = tirx.Cast(DTYPE, self.memory.num_inside(p.option, self.row))
            else:
                operands = [self.scalars[o] if isinstance(o, str) else const(o, 1) for o in p.operands]
                value = pointwise(p.kind, operands, p.option)
            self.scalars[p.name] = named(value, 1)

    def _pass(self, one: Pass, first: Any, num_steps: Any) -> None:
        totals = {p.name: local(f"total_{n}", 1) for n, p in enumerate(one.reductions)}
        for p in one.reductions:
            store(totals[p.name], const(BEGIN[p.kind], 1), [0], 1)
        with T.serial(i64(0), num_steps) as step, T.unroll(0, self.micro_kernel.thread_columns) as turn:
            begin = (first + step) * self.micro_kernel.columns
            column = once("column", begin + wide(turn * self.across + self.lane))
            with T.If(column < self.columns), T.Then():
                self._element(one, totals, column)
        for p in one.reductions:
            value = self._across(p.kind, totals[p.name])
            if p.kind == "mean":
                value = value / tirx.Cast(DTYPE, self.columns)
            self.scalars[p.name] = named(value, 1)
        self._narrow(one.scalars)

    def _element(self, one: Pass, totals: dict[str, Any], column: Any) -> None:
        values: dict[str, Any] = {}

        def value_of(operand: str | float) -> Any:
            if isinstance(operand, float):
                return const(operand, 1)
            if operand in self.scalars:
                return self.scalars[operand]
            if operand not in values:
                values[operand] = named(self._read(operand, column), 1)
            return values[operand]

        for p in one.elements:
            operands = [value_of(operand) for operand in p.operands]
            if p.kind == "causal":
                result = self._causal(operands[0], p.option, column)
            elif p.kind == "negate-first":
                wraps, _ = self._moving(column, *p.option)
                result = tirx.Select(wraps, const(-1.0, 1) * operands[0], operands[0])
            else:
                result = pointwise(p.kind, operands, p.option)
            values[p.name] = named(result, 1)
        for p in one.reductions:
            so_far = load(totals[p.name], [0], 1)
            store(totals[p.name], _COMBINE[p.kind](1, so_far, value_of(p.operands[0])), [0], 1)
        for name in one.stores:
            with only_if(both(self.exists, self.stored.get(name))):
                result = convert(value_of(name), self.problem.dtype(name), 1)
                store(self.memory.buffers[name], result, [self.begins[name] + column], 1)

    def _causal(self, value: Any, query: str, column: Any) -> Any:
        """Return -inf for keys after the query, the last of which sees all."""
        position = self.memory.position((query,), self.row)
        num_seen = position + 1 + self.columns - self.memory.extents[query]
        return tirx.Select(column < num_seen, value, minus_infinity(1))

    def _read(self, name: str, column: Any) -> Any:
        """Return one element of what is read, as `RowRead` says."""
        read = self.problem.reads.get(name, RowRead(name))
        buffer, begin = self.memory.buffers[read.tensor], self.begins[name]
        if read.shift:
            return self._rotated(read, buffer, begin, column)
        own = self.problem.seen_as(name)
        if self.problem.is_part_of_columns(own):
            run = tuple(index for index in self.problem.columns if index in own)
            column = self.memory.along_part(run, column).first
        value = widen(buffer[begin + column], self.problem.dtype(read.tensor))
        inside = self.inside.get(name)
        return value if inside is None else tirx.Select(inside, value, const(0.0, 1))

    def _rotated(self, read: RowRead, buffer: Any, begin: Any, column: Any) -> Any:
        """Return an element of a row, or of a group of it, that is shifted to the right.

        Columns past the last whole group stay.
        """
        wraps, moves = self._moving(column, read.shift, read.within)
        group = i64(read.within) if read.within else self.columns
        shifted = column - read.shift + tirx.Select(wraps, group, i64(0))
        source = tirx.Select(moves, shifted, column)
        value = named(widen(buffer[begin + source], self.problem.dtype(read.tensor)), 1)
        return tirx.Select(wraps, const(-1.0, 1) * value, value) if read.negates else value

    def _moving(self, column: Any, count: int, within: int) -> tuple[Any, Any]:
        """Return whether a column is one of the first of its group, and whether it is in a whole group."""
        group = i64(within) if within else self.columns
        moves = column < self.columns - tirx.truncmod(self.columns, group)
        return tirx.And(moves, tirx.truncmod(column, group) < i64(count)), moves

    def _across(self, kind: str, total: Any) -> Any:
        """Return what the threads of a row have, combined; all of them get it."""
        combine, lanes = _COMBINE[kind], min(self.across, WARP)
        while lanes > 1:
            lanes //= 2
            mask, offset = tirx.IntImm("uint32", _ALL_LANES), tirx.IntImm("int32", lanes)
            other = named(call("__shfl_xor_sync", mask, load(total, [0], 1), offset), 1)
            store(total, combine(1, load(total, [0], 1), other), [0], 1)
        if self.warps <= 1:
            return load(total, [0], 1)
        sync()  # of those who still read the last ones
        with T.If(tirx.truncmod(self.lane, WARP) < 1), T.Then():
            offset = self.line * self.warps + tirx.truncdiv(self.lane, WARP)
            store(self.shared, load(total, [0], 1), [offset], 1)
        sync()
        store(total, self.shared[self.line * self.warps], [0], 1)
        with T.unroll(1, self.warps) as warp:
            other = self.shared[self.line * self.warps + warp]
            store(total, combine(1, load(total, [0], 1), other), [0], 1)
        return load(total, [0], 1)
