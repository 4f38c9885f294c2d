"""The tensors of a block with products in generated code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ZERO, View, size_of, view_of
from dietcode.search_space.memory import Addressing
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.tir import i64, load
from dietcode.workload.products import Read


class ProductMemory(Addressing):
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
        One-dimensional, on the pointers that the function was given; constants are packed.
    """

    problem: ProductProblem

    def __init__(
        self,
        problem: ProductProblem,
        extents: Mapping[str, Any],
        pointers: Mapping[str, Any],
    ) -> None:
        super().__init__(problem, extents)
        self.buffers = {name: self._declare(name, pointer) for name, pointer in pointers.items()}

    def _declare(self, name: str, pointer: Any) -> Any:
        # Tensors of callers are rarely aligned; unaligned vector loads cost nothing where they are.
        storage = self.problem.storage(name)
        return T.decl_buffer((self.size_of(name),), str(storage), data=pointer, align=storage.itemsize)

    def size_of(self, name: str) -> Any:
        """Return the elements of a tensor as the function is given it."""
        return self.value(view_of(self.problem, name, self.problem.stored_indices(name)).size)

    def view(self, read: Read) -> View:
        """Return the layout of what is read: of a table, or of a tensor under the indices of the read."""
        if read.positions is None:
            return view_of(self.problem, read.tensor, read.indices)
        return view_of(self.problem, read.tensor)

    def begin(self, read: Read, row: Any) -> Any:
        """Return the offset of the first element that is read for a flattened row.

        Positions outside of a table read its first or its last row.
        """
        view = self.view(read)
        if read.positions is None:
            offset = self.offset(view, self.problem.rows, row)
        else:
            found = self._position(read.positions, row)
            index = self.problem.indices[read.tensor][0]
            last = self.value(size_of(self.problem, index)) - 1
            offset = tirx.max(tirx.min(found, last), i64(0)) * self.value(view.strides[index])
            rest = {k: stride for k, stride in view.strides.items() if k != index}
            if not set(self.problem.rows).isdisjoint(rest):
                offset = offset + self.offset(replace(view, strides=rest), self.problem.rows, row)
        for gate, position in read.gates:
            offset = offset + i64(position) * self.value(view.strides.get(gate, ZERO))
        return offset

    def _position(self, positions: str, row: Any) -> Any:
        where = self.offset(view_of(self.problem, positions), self.problem.rows, row)
        return tirx.Cast("int64", load(self.buffers[positions], [where], 1))

    def is_stored(self, output: str, row: Any) -> Any:
        """Return whether the table of an output has the row that it is written to, 0 or 1 as int64."""
        table, at = self.problem.into[output]
        found = self._position(at, row)
        num_rows = self.value(size_of(self.problem, self.problem.indices[table][0]))
        return tirx.Select(tirx.all(found >= i64(0), found < num_rows), i64(1), i64(0))
