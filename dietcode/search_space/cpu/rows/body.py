"""Some rows of a block, pass by pass.

The order of additions is the same for every micro-kernel and however many rows there are: column c of a row
is added to accumulator (c div lanes) mod 4, lane c mod lanes; the four are added in pairs, and then the
halves of what remains. So a row has the same bits whatever it was computed with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.rows.functions import across_lanes, maximum, minimum, pointwise
from dietcode.search_space.cpu.rows.group import Key, RowGroup, Span
from dietcode.search_space.cpu.rows.micro_kernel import FETCHES
from dietcode.search_space.cpu.rows.reading import RowReader
from dietcode.search_space.cpu.rows.streaming import stream
from dietcode.search_space.pointwise import minus_infinity
from dietcode.search_space.rows.memory import RowMemory
from dietcode.search_space.rows.passes import Pass, Schedule
from dietcode.search_space.rows.problem import RowProblem
from dietcode.search_space.rows.reductions import BEGIN, combine_by
from dietcode.search_space.tir import (
    DTYPE,
    TirOps,
    as_int64,
    first_lanes,
    i64,
    load,
    prefetch,
    small_buffer,
    splat,
    store,
    store_masked,
)
from dietcode.search_space.vectors import const, named
from dietcode.workload.expansion import ROWS, Primitive

NUM_ACCUMULATORS = 4
"""Vectors that a reduction along a row is added up in, before those are combined."""

_LINE = 16  # elements of a line of a cache

COMBINE = combine_by(maximum, minimum)
"""How two values of a reduction become one, by its kind."""


@dataclass
class RowBody:
    """Code for some rows at once.

    Attributes
    ----------
    columns : int or int64 expression
        Extent of the columns.
    step : int
        Columns of a step.
    scratch : Buffer or None
        Where values are kept between passes, `pitch` elements for each row of each value.
    streams : bool
        Whether outputs that no pass reads are written past the caches.
    fetch : str
        Of `RowKernel`.
    ahead : dict of str to list of int64 expression
        Where the rows begin that are fetched meanwhile, by the name of what is read.
    """

    problem: RowProblem
    memory: RowMemory
    schedule: Schedule
    lanes: int
    step: int
    columns: Any
    scratch: Any = None
    pitch: Any = 0
    streams: bool = False
    fetch: str = FETCHES[0]
    ahead: dict[str, list[Any]] = field(default_factory=dict, init=False)
    _num_turned: Any = field(default=None, init=False)
    _now: RowGroup = field(init=False)
    _reader: RowReader = field(init=False)

    def emit(self, rows: Sequence[Any], span: Span, num_turned: Any = None) -> None:
        """Compute some rows.

        Parameters
        ----------
        rows : sequence of int64 expression
            Flattened; as many as the code takes together.
        span : Span
            The columns; all of them where the block reduces.
        num_turned : int64 expression or None
            How many rows exist, where they are as many as a vector has lanes, the last one again in the
            place of the others; None where nothing is transposed.
        """
        self._num_turned = num_turned
        group = RowGroup(rows)
        self.enter(group)
        for one in self.schedule.passes:
            self.go_through([(one, group)], span)
        self.leave(group)

    def enter(self, group: RowGroup) -> None:
        """Compute what is known of some rows before the first pass."""
        bind, rows = TirOps().bind, group.rows
        group.begins = group.begins or self.begins(rows)
        averaged = {n for n in self.problem.pools if self.problem.nodes[n].operator == "avgpool"}
        self._resume(group)
        for i, row in enumerate(rows):
            for name in self.problem.into:
                group.stored[name, i] = bind(self.memory.is_stored(name, row))
            for name in self.problem.reads:
                if name.partition(ROWS)[0] in averaged:
                    group.inside[name, i] = self.memory.is_inside(name, row)
                if not self.problem.is_wide(self.problem.seen_as(name)):
                    tensor = self.problem.reads[name].tensor
                    value = load(self.memory.buffers[tensor], [group.begins[name, i]], 1)
                    group.scalars[name, i] = named(value, 1, str(self.problem.storage(tensor)))
            self._narrow(self.schedule.before, i)

    def _resume(self, group: RowGroup) -> None:
        """Go on with rows that were begun."""
        self._now = group
        self._reader = RowReader(
            self.problem,
            self.memory,
            self.lanes,
            self.columns,
            group.begins,
            group.inside,
            self._num_turned,
        )

    def leave(self, group: RowGroup) -> None:
        """Write the outputs that rows have one of."""
        for name in self.problem.outputs:
            if not self.problem.is_wide(self.problem.indices[name]):
                for i in range(len(group.rows)):
                    value, begin = group.scalars[name, i], group.begins[name, i]
                    store(self.memory.buffers[name], value, [begin], 1)

    def begin_keys(self, height: int) -> list[Key]:
        """Return the keys of `begins`."""
        names = (*self.problem.reads, *self.problem.outputs)
        return [(name, i) for name in names for i in range(height)]

    def begins(self, rows: Sequence[Any]) -> dict[Key, Any]:
        """Return where rows of all that is read and written begin."""
        found = self.begins_of(rows, [*self.problem.reads, *self.problem.outputs])
        return {(name, i): begin for name, begins in found.items() for i, begin in enumerate(begins)}

    def begins_of(self, rows: Sequence[Any], names: Sequence[str]) -> dict[str, list[Any]]:
        """Return where rows of some of that begin, by name."""
        bind = TirOps().bind
        return {name: [bind(self.memory.begin(name, row)) for row in rows] for name in names}

    @property
    def _fetching(self) -> int:
        """The pass that fetches the next rows, by its number: a middle one, since the last one writes."""
        return (len(self.schedule.passes) - 1) // 2

    @property
    def _written_later(self) -> list[str]:
        """Outputs that a pass after that one writes: their lines come while it computes.

        A store to a line of another cache waits for it, and few can wait at once: on a Xeon softmax of rows
        beyond L2 took twice as long. A Zen 4 loses a tenth by it.
        """
        later = {name for one in self.schedule.passes[self._fetching + 1 :] for name in one.stores}
        is_asked = self.fetch == "all" and not self.streams
        return [name for name in self.problem.outputs if is_asked and name in later]

    def _fetch(self, column: Any) -> None:
        """Fetch a line of each of the next rows, and of these rows of what is written later."""
        for name, begins in self.ahead.items():
            for begin in begins:
                prefetch(self.memory.buffers[self.problem.reads[name].tensor], begin + column)
        for name in self._written_later:
            for i in range(len(self._now.rows)):
                prefetch(self.memory.buffers[name], self._now.begins[name, i] + column, for_writing=True)

    def _narrow(self, primitives: Sequence[Primitive], i: int) -> None:
        for p in primitives:
            if p.kind == "inside":
                count = self.memory.num_inside(p.option, self._now.rows[i])
                self._now.scalars[p.name, i] = named(tirx.Cast(DTYPE, count), 1)
                continue
            operands = [self._scalar(operand, i) for operand in p.operands]
            self._now.scalars[p.name, i] = named(pointwise(p.kind, operands, 1, p.option), 1)

    def _scalar(self, operand: str | float, i: int) -> Any:
        return self._now.scalars[operand, i] if isinstance(operand, str) else const(operand, 1)

    def go_through(self, parts: Sequence[tuple[Pass, RowGroup]], span: Span) -> None:
        """Emit passes, each over a group of its own, in one loop: a step of each, in turn."""
        opened = [self._open(one, group) for one, group in parts]

        def vectors(begin: Any, j: int, mask: Any) -> None:
            for (one, group), accumulators in zip(parts, opened, strict=True):
                self._resume(group)
                self._vectors(one, accumulators, begin, j, mask)

        num_vectors, step, lanes = self.step // self.lanes, self.step, self.lanes
        full = (
            self.columns // step if isinstance(self.columns, int) else tirx.truncdiv(self.columns, i64(step))
        )
        last = as_int64(full) if span.is_whole else TirOps().bind(tirx.min(span.last, as_int64(full)))
        with T.serial(as_int64(span.first), last) as number:
            begin = TirOps().bind(number * step)
            for j in range(num_vectors):
                vectors(begin + j * lanes, j, None)
        self._tail(vectors, span, full)
        for (one, group), accumulators in zip(parts, opened, strict=True):
            self._resume(group)
            self._close(one, accumulators)
            for i in range(len(group.rows)):
                self._narrow(one.scalars, i)

    def _tail(self, emit: Callable[[Any, int, Any], None], span: Span, full: Any) -> None:
        """Emit what is left of a row after its whole steps: a vector at a time, the last one cut off."""
        lanes, step = self.lanes, self.step

        def vectors() -> None:
            for j in range(step // lanes):
                begin = as_int64(full * step + j * lanes)
                if not isinstance(self.columns, int):
                    with T.If(begin < self.columns), T.Then():
                        emit(begin, j, first_lanes(self.columns - begin, lanes))
                    continue
                left = self.columns - full * step - j * lanes
                if left > 0:
                    mask = None if left >= lanes else first_lanes(i64(left), lanes)
                    emit(begin, j, mask)

        if isinstance(self.columns, int) and self.columns % step == 0:
            return
        if span.is_whole:
            vectors()
            return
        with T.If(span.last > as_int64(full)), T.Then():
            vectors()

    def _open(self, one: Pass, group: RowGroup) -> dict[tuple[str, int, int], Any]:
        accumulators = {}
        for p in one.reductions:
            for i in range(len(group.rows)):
                for j in range(NUM_ACCUMULATORS):
                    slot = small_buffer(self.lanes, DTYPE)
                    store(slot, const(BEGIN[p.kind], self.lanes), [0], self.lanes)
                    accumulators[p.name, i, j] = slot
        return accumulators

    def _close(self, one: Pass, accumulators: dict[tuple[str, int, int], Any]) -> None:
        for p in one.reductions:
            combine = COMBINE[p.kind]
            for i in range(len(self._now.rows)):
                vectors = [load(accumulators[p.name, i, j], [0], self.lanes) for j in range(NUM_ACCUMULATORS)]
                while len(vectors) > 1:
                    pairs = zip(vectors[::2], vectors[1::2], strict=True)
                    vectors = [named(combine(self.lanes, a, b), self.lanes) for a, b in pairs]
                value = across_lanes(vectors[0], self.lanes, combine)
                if p.kind == "mean":
                    value = value / tirx.Cast(DTYPE, as_int64(self.columns))
                self._now.scalars[p.name, i] = named(value, 1)

    def _vectors(self, one: Pass, accumulators: Any, column: Any, j: int, mask: Any) -> None:
        """Emit one vector of every row.

        Parameters
        ----------
        column : int64 expression
            Of its first lane.
        j : int
            Its number within a step.
        mask : boolean vector or None
            Lanes that exist; None for all.
        """
        shared: dict[Any, Any] = {}  # by name, or by name and row
        mask = None if mask is None else named(mask, self.lanes, "bool")
        if one is self.schedule.passes[self._fetching] and j * self.lanes % _LINE == 0:
            self._fetch(column)
        for i in range(len(self._now.rows)):
            values: dict[str, Any] = {}

            def value_of(operand: str | float, i: int = i, values: dict[str, Any] = values) -> Any:
                if isinstance(operand, float):
                    return const(operand, self.lanes)
                if operand in values:
                    return values[operand]
                if (operand, i) in self._now.scalars:
                    return splat(self._now.scalars[operand, i], self.lanes)
                values[operand] = self._reader.read(operand, i, column, mask, shared)
                return values[operand]

            for name in one.loads:
                values[name] = self._read_kept(name, i, column, mask)
            for p in one.elements:
                operands = [value_of(operand) for operand in p.operands]
                if p.kind == "causal":
                    result = self._causal(operands[0], p.option, i, column)
                elif p.kind == "negate-first":
                    result = self._reader.negated(operands[0], column, *p.option)
                elif p.kind == "hide":
                    result = self._hidden(operands[0], self._now.scalars[p.option, i], column)
                else:
                    result = pointwise(p.kind, operands, self.lanes, p.option)
                values[p.name] = named(result, self.lanes)
            for p in one.reductions:
                self._accumulate(
                    p, accumulators[p.name, i, j % NUM_ACCUMULATORS], value_of(p.operands[0]), mask
                )
            for name in one.stores:
                self._write(name, value_of(name), i, column, mask)

    def _accumulate(self, p: Primitive, slot: Any, value: Any, mask: Any) -> None:
        if mask is not None:
            value = tirx.Select(mask, value, const(BEGIN[p.kind], self.lanes))
        so_far = load(slot, [0], self.lanes)
        store(slot, COMBINE[p.kind](self.lanes, so_far, value), [0], self.lanes)

    def _causal(self, value: Any, query: str, i: int, column: Any) -> Any:
        """Return -inf for keys after the query, the last of which sees all."""
        position = self.memory.position((query,), self._now.rows[i])
        num_seen = position + 1 + self.columns - self.memory.extents[query]
        return tirx.Select(first_lanes(num_seen - column, self.lanes), value, minus_infinity(self.lanes))

    def _hidden(self, value: Any, length: Any, column: Any) -> Any:
        """Return -inf from a length on."""
        num_seen = tirx.Cast("int64", length)
        return tirx.Select(first_lanes(num_seen - column, self.lanes), value, minus_infinity(self.lanes))

    def _kept_at(self, name: str, i: int, column: Any) -> Any:
        row = self.schedule.kept.index(name) * len(self._now.rows) + i
        return self._now.scratch + row * self.pitch + column

    def _read_kept(self, name: str, i: int, column: Any, mask: Any) -> Any:
        if name not in self.schedule.kept:
            return self._reader.read(name, i, column, mask, {})
        return named(load(self.scratch, [self._kept_at(name, i, column)], self.lanes), self.lanes)

    def _write(self, name: str, value: Any, i: int, column: Any, mask: Any) -> None:
        if name in self.schedule.kept:  # whose rows are whole vectors
            store(self.scratch, value, [self._kept_at(name, i, column)], self.lanes)
        if name not in self.problem.outputs:
            return
        offset, buffer = self._now.begins[name, i] + column, self.memory.buffers[name]
        is_read = any(name in one.loads for one in self.schedule.passes)
        with ExitStack() as inside:
            if self._num_turned is not None and i:  # a row that does not exist has no vector
                inside.enter_context(T.If(self._num_turned > i64(i)))
                inside.enter_context(T.Then())
            if name in self.problem.into:
                inside.enter_context(T.If(self._now.stored[name, i] > i64(0)))
                inside.enter_context(T.Then())
            if mask is not None:
                store_masked(buffer, value, offset, mask)
            elif self.streams and not is_read and name not in self.problem.into:
                stream(buffer, value, offset)
            else:
                store(buffer, value, [offset], self.lanes)
