"""A vector of what a row reads: as it lies, rotated, transposed, or along a part of the columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.rows.turning import turned
from dietcode.search_space.cpu.squares import transposed
from dietcode.search_space.rows.memory import RowMemory
from dietcode.search_space.rows.problem import RowProblem, RowRead
from dietcode.search_space.tir import (
    DTYPE,
    TirOps,
    as_int64,
    first_lanes,
    i64,
    load,
    load_masked,
    small_buffer,
    splat,
    store,
)
from dietcode.search_space.vectors import const, named


@dataclass
class RowReader:
    """Code that reads for some rows.

    Attributes
    ----------
    columns : int or int64 expression
        Extent of the columns.
    begins : mapping of (str, int) to int64 expression
        Where each row of what is read begins, by name and number of the row.
    inside : mapping of (str, int) to boolean expression or None
        Whether the element of a window exists.
    num_turned : int64 expression or None
        How many rows exist, where tensors are transposed from vectors across rows.
    """

    problem: RowProblem
    memory: RowMemory
    lanes: int
    columns: Any
    begins: Mapping[tuple[str, int], Any]
    inside: Mapping[tuple[str, int], Any]
    num_turned: Any = None

    def read(self, name: str, i: int, column: Any, mask: Any, shared: dict[Any, Any]) -> Any:
        """Return a vector of an input; that of one without rows is read once for all of them.

        Parameters
        ----------
        i : int
            Number of the row.
        column : int64 expression
            Of the first lane.
        mask : boolean vector or None
            Lanes that exist; None for all.
        shared : dict
            What was read at this column, by name, or by name and row.
        """
        if name in shared:
            return shared[name]
        read = self.problem.reads.get(name, RowRead(name))
        buffer, begin = self.memory.buffers[read.tensor], self.begins[name, i]
        if self.problem.turns(read):
            if (name, 0) not in shared:
                square = self._square(read, buffer, self.begins[name, 0], column)
                shared.update({(name, row): vector for row, vector in enumerate(square)})
            return shared[name, i]
        if read.shift:
            return self._rotated(read, buffer, begin, column, mask)
        own = self.problem.seen_as(name)
        if self.problem.is_part_of_columns(own):
            value = self._along_part(own, buffer, begin, column, shared)
        else:
            value = self._load(buffer, begin + column, mask)
        inside = self.inside.get((name, i))
        if inside is not None:
            value = tirx.Select(inside, value, const(0.0, self.lanes))
        value = named(value, self.lanes)
        if own and set(own) <= set(self.problem.columns):
            shared[name] = value
        return value

    def _load(self, buffer: Any, offset: Any, mask: Any) -> Any:
        if mask is None:
            return load(buffer, [offset], self.lanes)
        return load_masked(buffer, offset, self.lanes, mask)

    def _along_part(self, own: str, buffer: Any, begin: Any, column: Any, shared: dict[Any, Any]) -> Any:
        """Return a vector of a tensor with a part of the columns' indices: gamma of channels beside images.

        Where all lanes have one position along them, or positions that follow each other, that is one load;
        else one for each lane.
        """
        run = tuple(index for index in self.problem.columns if index in own)
        bind, is_end = TirOps().bind, run[-1] == self.problem.columns[-1]
        if run not in shared:
            position = self.memory.along_part(run, column)
            left = as_int64(self.memory.extents_of(run)) - position.first if is_end else position.left
            shared[run] = bind(position.first), bind(left)
        first, left = shared[run]
        value = small_buffer(self.lanes, DTYPE)
        with T.If(left >= self.lanes):
            with T.Then():
                same = load(buffer, [begin + first], self.lanes if is_end else 1)
                store(value, same if is_end else splat(same, self.lanes), [0], self.lanes)
            with T.Else(), T.serial(i64(0), i64(self.lanes)) as lane:
                at = tirx.min(column + lane, as_int64(self.columns) - 1)
                offset = bind(begin + self.memory.along_part(run, at).first)
                store(value, load(buffer, [offset], 1), [lane], 1)
        return load(value, [0], self.lanes)

    def _square(self, read: RowRead, buffer: Any, begin: Any, column: Any) -> list[Any]:
        """Return a vector of every row, transposed from vectors along the rows."""
        own, last = self.problem.indices[read.tensor], self.problem.columns[-1]
        later = tuple(own[own.index(last) + 1 :])
        stride = TirOps().bind(as_int64(self.problem.product(later, self.memory.extents)))
        exist = named(first_lanes(self.num_turned, self.lanes), self.lanes, "bool")
        square = []
        for j in range(self.lanes):
            at = tirx.min(column + j, as_int64(self.columns) - 1)
            vector = load_masked(buffer, TirOps().bind(begin + at * stride), self.lanes, exist)
            square.append(named(vector, self.lanes))
        return transposed(square, self.lanes)

    def _rotated(self, read: RowRead, buffer: Any, begin: Any, column: Any, mask: Any) -> Any:
        """Return a vector of a row, or of groups of it, whose columns are shifted to the right.

        The last columns of a group come to its beginning; those past the last whole group stay.
        """
        assert isinstance(self.columns, int)
        lanes, shift, group = self.lanes, read.shift, read.within or self.columns
        column, whole = as_int64(column), self.columns - self.columns % group
        if lanes % group == 0 and whole == self.columns:  # groups lie in vectors
            return turned(read, self._load(buffer, begin + column, mask), lanes, group)
        left, right = begin + column + (group - shift), begin + column - shift
        if shift % lanes == 0 and group % lanes == 0 and whole == self.columns:
            # A vector comes from one of them.
            wraps = tirx.truncmod(column, i64(group)) < i64(shift)
            value = named(self._load(buffer, tirx.Select(wraps, left, right), mask), lanes)
            if read.negates:
                value = named(tirx.Select(wraps, const(-1.0, lanes) * value, value), lanes)
            return value
        wraps, moves = self._moving(group, shift, whole, column)
        stays = tirx.bitwise_not(wraps) if moves is None else tirx.bitwise_not(wraps) & moves
        value = named(load_masked(buffer, left, lanes, _and(wraps, mask)), lanes)
        if read.negates:
            value = const(-1.0, lanes) * value
        other = load_masked(buffer, right, lanes, _and(stays, mask))
        value = named(tirx.Select(wraps, value, other), lanes)
        if moves is None:
            return value
        rest = load_masked(buffer, begin + column, lanes, _and(tirx.bitwise_not(moves), mask))
        return named(tirx.Select(moves, value, rest), lanes)

    def negated(self, value: Any, column: Any, count: int, within: int) -> Any:
        """Return a vector with the first columns of each group negated, `within` being 0 for the row."""
        assert isinstance(self.columns, int)
        group = within or self.columns
        whole = self.columns - self.columns % group
        first, _ = self._moving(group, count, whole, as_int64(column))
        return tirx.Select(first, const(-1.0, self.lanes) * value, value)

    def _moving(self, group: int, shift: int, whole: int, column: Any) -> tuple[Any, Any]:
        """Return which lanes come from the end of a group, and which ones are in a group; None for all."""
        lanes = self.lanes
        if group == self.columns:
            return named(first_lanes(i64(shift) - column, lanes), lanes, "bool"), None
        begin = tirx.Cast("int32", tirx.truncmod(column, i64(group)))
        counted = tirx.Ramp(begin, tirx.IntImm("int32", 1), lanes)
        position = tirx.truncmod(counted, tirx.Broadcast(tirx.IntImm("int32", group), lanes))
        wraps = tirx.LT(position, tirx.Broadcast(tirx.IntImm("int32", shift), lanes))
        if whole == self.columns:
            return named(wraps, lanes, "bool"), None
        moves = named(first_lanes(i64(whole) - column, lanes), lanes, "bool")
        return named(wraps & moves, lanes, "bool"), moves


def _and(mask: Any, other: Any) -> Any:
    return mask if other is None else mask & other
