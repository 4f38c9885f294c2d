"""The tensors of a row block in generated code, and where a row of each begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.rows.problem import RowProblem, RowRead
from dietcode.search_space.tir import as_int64, i64, load
from dietcode.workload.pooling import PoolAxis, is_padded


class PartPosition(NamedTuple):
    """A position along some of the columns' indices.

    Attributes
    ----------
    first : int64 expression
        The position, flattened.
    left : int64 expression
        How many columns from this one on have the same.
    """

    first: Any
    left: Any


class RowMemory:
    """The tensors of one function.

    Parameters
    ----------
    extents : mapping of str to int64 expression
        Of every index.
    pointers : mapping of str to pointer
        By tensor name, as the function was given them.

    Attributes
    ----------
    buffers : dict of str to Buffer
        One-dimensional, on the pointers that the function was given.
    """

    def __init__(self, problem: RowProblem, extents: Mapping[str, Any], pointers: Mapping[str, Any]) -> None:
        self.problem, self.extents = problem, extents
        self.buffers = {name: self._declare(name, pointer) for name, pointer in pointers.items()}

    def _declare(self, name: str, pointer: Any) -> Any:
        size = as_int64(self.problem.product(tuple(self.problem.stored_indices(name)), self.extents))
        # Tensors of callers are rarely aligned; unaligned vector loads cost nothing where they are.
        storage = self.problem.storage(name)
        return T.decl_buffer((size,), str(storage), data=pointer, align=storage.itemsize)

    def begin(self, tensor: str, row: Any) -> Any:
        """Return the offset of the first element of a read or an output for a flattened row of the grid.

        Positions outside of a table read its first or its last row.

        Parameters
        ----------
        row : int64 expression
        """
        read = self.problem.reads.get(tensor, RowRead(tensor))
        if tensor in self.problem.into:
            read = RowRead(self.problem.into[tensor][0], positions=self.problem.into[tensor][1])
        if read.positions:
            indices = self.problem.indices[read.tensor]
            first, rest = indices[0], indices[1:]
            positions = self.buffers[read.positions]
            found = tirx.Cast("int64", load(positions, [self.begin(read.positions, row)], 1))
            last = as_int64(self.extents[first]) - 1
            width = as_int64(self.problem.product(tuple(rest), self.extents))
            begin = tirx.max(tirx.min(found, last), i64(0)) * width
            for number, index in enumerate(rest):
                if index in self.problem.rows:
                    inner = as_int64(self.problem.product(tuple(rest[number + 1 :]), self.extents))
                    begin = begin + self.position((index,), row) * inner
            return begin
        if read.at or read.taps or read.reorders:
            return self._begin_under(read, row)
        own = self.problem.indices[read.tensor]
        offset: Any = i64(0)
        for run in self._runs(own):
            last = own.index(run[-1])
            offset = offset + self.position(run, row) * self.problem.product(
                tuple(own[last + 1 :]), self.extents
            )
        return offset

    def is_stored(self, output: str, row: Any) -> Any:
        """Return whether the table of an output has the row that it is written to, 0 or 1 as int64."""
        table, at = self.problem.into[output]
        found = tirx.Cast("int64", load(self.buffers[at], [self.begin(at, row)], 1))
        num_rows = as_int64(self.extents[self.problem.indices[table][0]])
        return tirx.Select(tirx.all(found >= i64(0), found < num_rows), i64(1), i64(0))

    def _begin_under(self, read: RowRead, row: Any) -> Any:
        """Return the offset of a row in a tensor of any order; of the element of a window, that one's.

        Past an edge it is that of the nearest element, which is one of the window, too.
        """
        own, taps = self.problem.indices[read.tensor], {one.axis: (one, tap) for one, tap in read.taps}
        fixed = dict(read.at)
        offset: Any = i64(0)
        for number, index in enumerate(own):
            if index in taps:
                one, tap = taps[index]
                at = self._first(one, row) + tap
                if one.padding or one.padding_after:
                    last = as_int64(self.extents[index]) - 1
                    at = tirx.max(tirx.min(at, last), i64(0))
            elif index in fixed:
                at = i64(fixed[index])
            elif index in self.problem.rows:
                at = self.position((index,), row)
            else:
                continue
            offset = offset + at * self.problem.product(tuple(own[number + 1 :]), self.extents)
        return offset

    def _first(self, one: PoolAxis, row: Any) -> Any:
        """Return where a window begins along an axis; negative in the padding."""
        return self.position((one.output,), row) * one.stride - one.padding

    def is_inside(self, tensor: str, row: Any) -> Any | None:
        """Return whether the element of a window that is read exists; None where all do."""
        read = self.problem.reads[tensor]
        if not is_padded(tuple(one for one, _ in read.taps)):
            return None
        found = [(self._first(one, row) + tap, as_int64(self.extents[one.axis])) for one, tap in read.taps]
        return tirx.all(*(tirx.all(at >= i64(0), at < extent) for at, extent in found))

    def num_inside(self, node: str, row: Any) -> Any:
        """Return how many elements of a node's window exist, as int64."""
        count: Any = i64(1)
        for one in self.problem.pools[node]:
            first = self._first(one, row)
            last = tirx.min(first + one.window, as_int64(self.extents[one.axis]))
            count = count * (last - tirx.max(first, i64(0)))
        return count

    def position(self, run: tuple[str, ...], row: Any) -> Any:
        """Return the position along some row indices, which follow each other, flattened."""
        rows = self.problem.rows
        first, end = rows.index(run[0]), rows.index(run[-1]) + 1
        if end < len(rows):
            row = tirx.truncdiv(row, as_int64(self.problem.product(rows[end:], self.extents)))
        if first:
            row = tirx.truncmod(row, as_int64(self.problem.product(rows[first:end], self.extents)))
        return row

    def extents_of(self, indices: tuple[str, ...]) -> Any:
        """Return the product of the extents of some indices."""
        return self.problem.product(indices, self.extents)

    def along_part(self, run: tuple[str, ...], column: Any) -> PartPosition:
        """Return the position along indices of the columns that follow each other.

        Parameters
        ----------
        column : int64 expression
            Flattened.
        """
        columns = self.problem.columns
        begin, end = columns.index(run[0]), columns.index(run[-1]) + 1
        first, left = column, i64(1)
        if end < len(columns):
            inner = as_int64(self.extents_of(columns[end:]))
            first, left = tirx.truncdiv(column, inner), inner - tirx.truncmod(column, inner)
        if begin:
            first = tirx.truncmod(first, as_int64(self.extents_of(run)))
        return PartPosition(first, left)

    def _runs(self, own: str) -> list[tuple[str, ...]]:
        """Return the row indices that a tensor has, those that follow each other in the grid together."""
        found: list[tuple[str, ...]] = []
        follows = False
        for index in self.problem.rows:
            if index not in own:
                follows = False
                continue
            if follows:
                found[-1] = (*found[-1], index)
            else:
                found.append((index,))
            follows = True
        return found
