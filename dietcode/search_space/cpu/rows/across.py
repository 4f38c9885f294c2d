"""Some rows of a block whose columns are not its last indices: vectors lie across rows, one in each lane.

for block of columns: for column of it: for vector of rows: load, compute, add up

The order of additions is the same for every micro-kernel and however many rows there are: in blocks of
`BLOCK` columns, column c of one is added to accumulator c mod 4; blocks follow each other, and the four are
added in pairs at the end. So a row has the same bits whatever it was computed with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.rows.body import COMBINE, NUM_ACCUMULATORS
from dietcode.search_space.cpu.rows.functions import pointwise
from dietcode.search_space.cpu.rows.streaming import stream
from dietcode.search_space.pointwise import minus_infinity
from dietcode.search_space.rows.memory import RowMemory
from dietcode.search_space.rows.passes import Pass, Schedule
from dietcode.search_space.rows.problem import RowProblem, RowRead
from dietcode.search_space.rows.reductions import BEGIN
from dietcode.search_space.tir import (
    DTYPE,
    TirOps,
    as_int64,
    i64,
    load,
    load_masked,
    small_buffer,
    splat,
    store,
    store_masked,
)
from dietcode.search_space.vectors import const, named
from dietcode.workload.expansion import Primitive

BLOCK = 256
"""Columns that are added up before they are added to those of earlier blocks; a multiple of every step."""


@dataclass(frozen=True)
class Access:
    """Where the elements of a value lie for one row of the outer indices.

    Attributes
    ----------
    tensor : str
    begin : int64 expression
        Offset of the first column's first element.
    run : tuple of str
        Its indices of the columns, which follow each other.
    stride : int64 expression
        From one position along them to the next; 0 for a value without columns.
    has_lanes : bool
        Whether neighbouring rows have elements of their own, which follow each other.
    positions : Access or None
        Of a value that is gathered, where the positions lie.
    """

    tensor: str
    begin: Any
    run: tuple[str, ...]
    stride: Any
    has_lanes: bool
    positions: Access | None = None


@dataclass
class AcrossBody:
    """Code for some vectors of rows at once.

    Attributes
    ----------
    columns : int64 expression
        Extent of the columns.
    step : int
        Columns that are computed together.
    scratch : Buffer or None
        Where values are kept between passes, `pitch` vectors for each vector of rows of each value.
    streams : bool
        Whether outputs that no pass reads are written past the caches.
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
    _access: dict[str, Access] = field(default_factory=dict, init=False)
    _narrow_values: dict[tuple[str, int], Any] = field(default_factory=dict, init=False)
    _firsts: list[Any] = field(default_factory=list, init=False)
    _mask: Any = field(default=None, init=False)

    def emit(self, outer: Any, firsts: Sequence[Any], mask: Any = None) -> None:
        """Compute some vectors of rows.

        Parameters
        ----------
        outer : int64 expression
            Position along the outer indices, flattened.
        firsts : sequence of int64 expression
            Position along the inner indices, flattened, of the first lane of each vector.
        mask : boolean vector or None
            Lanes that exist of the only vector; None for all.
        """
        self._firsts, self._narrow_values = list(firsts), {}
        self._mask = None if mask is None else named(mask, self.lanes, "bool")
        self._access = {
            name: self._find(name, outer) for name in (*self.problem.reads, *self.problem.outputs)
        }
        for i in range(len(firsts)):
            for name in self.problem.reads:
                if not self._is_wide(name):
                    dtype = str(self.problem.storage(self.problem.reads[name].tensor))
                    self._narrow_values[name, i] = named(self._load(name, i, i64(0)), self.lanes, dtype)
            self._narrow(self.schedule.before, i)
        for one in self.schedule.passes:
            self._pass(one)
        for name in self.problem.outputs:
            if not self._is_wide(name):
                for i in range(len(firsts)):
                    self._store(name, self._narrow_values[name, i], i, i64(0))

    def _is_wide(self, name: str) -> bool:
        return self.problem.is_wide(self.problem.seen_as(name))

    def _find(self, name: str, outer: Any) -> Access:
        """Return where a value that is read or written lies."""
        read = self.problem.reads.get(name, RowRead(name))
        own, at = self.problem.indices[read.tensor], self._positions(outer)
        if read.positions:
            positions = self._access_of(read.positions, self.problem.indices[read.positions], at)
            return self._access_of(read.tensor, own, at, positions)
        return self._access_of(read.tensor, own, at | {index: i64(where) for index, where in read.at})

    def _positions(self, outer: Any) -> dict[str, Any]:
        """Return the position along each outer index."""
        found, indices = {}, self.problem.outer
        for number, index in enumerate(indices):
            inside = as_int64(self.problem.product(indices[number + 1 :], self.memory.extents))
            found[index] = TirOps().bind(tirx.truncdiv(outer, inside))
            outer = outer - found[index] * inside
        return found

    def _access_of(
        self, tensor: str, own: str, at: Mapping[str, Any], positions: Access | None = None
    ) -> Access:
        def stride(index: str) -> Any:
            later = tuple(own[own.index(index) + 1 :])
            return as_int64(self.problem.product(later, self.memory.extents))

        begin: Any = i64(0)
        for index, position in at.items():
            if index in own:
                begin = begin + position * stride(index)
        run = tuple(index for index in self.problem.columns if index in own)
        step = stride(run[-1]) if run else i64(0)
        has_lanes = bool(set(own) & set(self.problem.inner))
        return Access(tensor, TirOps().bind(begin), run, TirOps().bind(step), has_lanes, positions)

    def _offset(self, access: Access, i: int, column: Any) -> Any:
        """Return the offset of a column's element for the first lane of a vector."""
        position = column
        if 0 < len(access.run) < len(self.problem.columns):
            position = TirOps().bind(self.memory.along_part(access.run, column).first)
        offset = access.begin + position * access.stride
        if access.positions is not None:
            own = self.problem.indices[access.tensor]
            held = self.memory.buffers[access.positions.tensor]
            found = tirx.Cast("int64", load(held, [self._offset(access.positions, i, column)], 1))
            last = as_int64(self.memory.extents[own[0]]) - 1
            width = as_int64(self.problem.product(tuple(own[1:]), self.memory.extents))
            offset = offset + tirx.max(tirx.min(found, last), i64(0)) * width
        return TirOps().bind(offset + self._firsts[i] if access.has_lanes else offset)

    def _load(self, name: str, i: int, column: Any) -> Any:
        access = self._access[name]
        buffer, offset = self.memory.buffers[access.tensor], self._offset(access, i, column)
        if not access.has_lanes:
            return splat(load(buffer, [offset], 1), self.lanes)
        if self._mask is None:
            return load(buffer, [offset], self.lanes)
        return load_masked(buffer, offset, self.lanes, self._mask)

    def _store(self, name: str, value: Any, i: int, column: Any) -> None:
        buffer, offset = self.memory.buffers[name], self._offset(self._access[name], i, column)
        if self._mask is not None:
            store_masked(buffer, value, offset, self._mask)
        elif self.streams and not any(name in one.loads for one in self.schedule.passes):
            stream(buffer, value, offset)
        else:
            store(buffer, value, [offset], self.lanes)

    def _narrow(self, primitives: Sequence[Primitive], i: int) -> None:
        for p in primitives:
            operands = [self._narrow_value(operand, i) for operand in p.operands]
            value = pointwise(p.kind, operands, self.lanes, p.option)
            self._narrow_values[p.name, i] = named(value, self.lanes)

    def _narrow_value(self, operand: str | float, i: int) -> Any:
        return self._narrow_values[operand, i] if isinstance(operand, str) else const(operand, self.lanes)

    def _pass(self, one: Pass) -> None:
        vectors = range(len(self._firsts))
        keys = [(p, i, j) for p in one.reductions for i in vectors for j in range(NUM_ACCUMULATORS)]
        totals = {(p.name, i, j): small_buffer(self.lanes) for p, i, j in keys}
        for p, i, j in keys:
            store(totals[p.name, i, j], const(BEGIN[p.kind], self.lanes), [0], self.lanes)
        bind = TirOps().bind
        with T.serial(i64(0), bind(tirx.truncdiv(self.columns + (BLOCK - 1), i64(BLOCK)))) as block:
            begin = bind(block * BLOCK)
            end = bind(tirx.min(begin + BLOCK, self.columns))
            parts = {key: small_buffer(self.lanes) for key in totals}
            for p, i, j in keys:
                store(parts[p.name, i, j], const(BEGIN[p.kind], self.lanes), [0], self.lanes)
            self._columns(one, parts, begin, end)
            for p, i, j in keys:
                total, part = (load(held[p.name, i, j], [0], self.lanes) for held in (totals, parts))
                store(totals[p.name, i, j], COMBINE[p.kind](self.lanes, total, part), [0], self.lanes)
        for p in one.reductions:
            for i in vectors:
                self._narrow_values[p.name, i] = self._combined(p, [totals[p.name, i, j] for j in range(4)])
        for i in vectors:
            self._narrow(one.scalars, i)

    def _combined(self, p: Primitive, slots: Sequence[Any]) -> Any:
        found = [load(slot, [0], self.lanes) for slot in slots]
        while len(found) > 1:
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [named(COMBINE[p.kind](self.lanes, a, b), self.lanes) for a, b in pairs]
        if p.kind != "mean":
            return found[0]
        return named(found[0] / splat(tirx.Cast(DTYPE, self.columns), self.lanes), self.lanes)

    def _columns(self, one: Pass, parts: Mapping[tuple[str, int, int], Any], begin: Any, end: Any) -> None:
        """Emit some columns: whole steps, then one by one."""
        bind, step = TirOps().bind, self.step
        num_steps = bind(tirx.truncdiv(end - begin, i64(step)))
        with T.serial(i64(0), num_steps) as number:
            first = bind(begin + number * step)
            for j in range(step):
                self._column(one, parts, bind(first + j), j)
        rest = bind(begin + num_steps * step)
        for j in range(step - 1):
            with T.If(rest + j < end), T.Then():
                self._column(one, parts, bind(rest + j), j)

    def _column(self, one: Pass, parts: Mapping[tuple[str, int, int], Any], column: Any, j: int) -> None:
        """Emit one column of every vector of rows, `j` being its number within a step."""
        shared: dict[str, Any] = {}  # values that all rows have in common
        for i in range(len(self._firsts)):
            values: dict[str, Any] = {}

            def value_of(operand: str | float, i: int = i, values: dict[str, Any] = values) -> Any:
                if isinstance(operand, float):
                    return const(operand, self.lanes)
                if (operand, i) in self._narrow_values:
                    return self._narrow_values[operand, i]
                if operand not in values:
                    values[operand] = self._read(operand, i, column, shared)
                return values[operand]

            for name in one.loads:
                values[name] = self._read_kept(name, i, column)
            for p in one.elements:
                operands = [value_of(operand) for operand in p.operands]
                if p.kind == "hide":
                    result = self._hidden(operands[0], self._narrow_values[p.option, i], column)
                else:
                    result = pointwise(p.kind, operands, self.lanes, p.option)
                values[p.name] = named(result, self.lanes)
            for p in one.reductions:
                slot = parts[p.name, i, j % NUM_ACCUMULATORS]
                value = COMBINE[p.kind](self.lanes, load(slot, [0], self.lanes), value_of(p.operands[0]))
                store(slot, value, [0], self.lanes)
            for name in one.stores:
                self._write(name, value_of(name), i, column)

    def _hidden(self, value: Any, lengths: Any, column: Any) -> Any:
        """Return -inf from each lane's length on."""
        exists = splat(tirx.Cast("int32", column), self.lanes) < lengths
        return tirx.Select(exists, value, minus_infinity(self.lanes))

    def _read(self, name: str, i: int, column: Any, shared: dict[str, Any]) -> Any:
        if name in shared:
            return shared[name]
        value = named(self._load(name, i, column), self.lanes)
        if not self._access[name].has_lanes:
            shared[name] = value
        return value

    def _kept_at(self, name: str, i: int, column: Any) -> Any:
        vector = self.schedule.kept.index(name) * len(self._firsts) + i
        return (vector * self.pitch + column) * self.lanes

    def _read_kept(self, name: str, i: int, column: Any) -> Any:
        if name in self.schedule.kept:
            return named(load(self.scratch, [self._kept_at(name, i, column)], self.lanes), self.lanes)
        return self._read(name, i, column, {})

    def _write(self, name: str, value: Any, i: int, column: Any) -> None:
        if name in self.schedule.kept:
            store(self.scratch, value, [self._kept_at(name, i, column)], self.lanes)
        if name in self.problem.outputs:
            self._store(name, value, i, column)
