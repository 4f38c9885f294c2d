"""The tensors of a row block in generated code, and where a row of each begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.rows.problem import RowProblem
from dietcode.search_space.tir import as_int64, i64, load
from dietcode.workload.expansion import ROWS


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
        size = as_int64(self.problem.product(tuple(self.problem.indices[name]), self.extents))
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
        node = tensor.removesuffix(ROWS)
        if tensor != node and node in self.problem.gathers:
            table, positions = self.problem.gathers[node]
            first, rest = self.problem.indices[table][0], self.problem.indices[table][1:]
            found = tirx.Cast("int64", load(self.buffers[positions], [self.begin(positions, row)], 1))
            last = as_int64(self.extents[first]) - 1
            width = as_int64(self.problem.product(tuple(rest), self.extents))
            return tirx.max(tirx.min(found, last), i64(0)) * width
        own = self.problem.indices[tensor]
        offset: Any = i64(0)
        for run in self._runs(own):
            last = own.index(run[-1])
            offset = offset + self.position(run, row) * self.problem.product(
                tuple(own[last + 1 :]), self.extents
            )
        return offset

    def position(self, run: tuple[str, ...], row: Any) -> Any:
        """Return the position along some row indices, which follow each other, flattened."""
        rows = self.problem.rows
        first, end = rows.index(run[0]), rows.index(run[-1]) + 1
        if end < len(rows):
            row = tirx.truncdiv(row, as_int64(self.problem.product(rows[end:], self.extents)))
        if first:
            row = tirx.truncmod(row, as_int64(self.problem.product(rows[first:end], self.extents)))
        return row

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
