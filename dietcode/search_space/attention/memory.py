"""The tensors of an attention in generated code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.tir import TirOps, as_int64, i64


class AttentionMemory:
    """The tensors of one function.

    Parameters
    ----------
    extents : mapping of str to int or int64 expression
        Of every index.
    pointers : mapping of str to pointer
        By tensor name, as the function was given them.

    Attributes
    ----------
    buffers : dict of str to Buffer
        One-dimensional, on the pointers that the function was given.
    """

    def __init__(
        self, problem: AttentionProblem, extents: Mapping[str, Any], pointers: Mapping[str, Any]
    ) -> None:
        self.problem, self.extents = problem, extents
        self.buffers = {name: self._declare(name, pointer) for name, pointer in pointers.items()}

    def _declare(self, name: str, pointer: Any) -> Any:
        size = as_int64(self.problem.product(tuple(self.problem.indices[name]), self.extents))
        storage = self.problem.storage(name)
        return T.decl_buffer((size,), str(storage), data=pointer, align=storage.itemsize)

    def stride(self, tensor: str, index: str) -> Any:
        """Return the elements from one position along an index to the next; 0 where the tensor lacks it."""
        own = self.problem.indices[tensor]
        if index not in own:
            return 0
        return self.problem.product(tuple(own[own.index(index) + 1 :]), self.extents)

    def positions(self, indices: Sequence[str], flat: Any) -> dict[str, Any]:
        """Return the position along each index of a flattened one, in variables."""
        bind, found = TirOps().bind, {}
        for number, index in enumerate(indices):
            inner = as_int64(self.problem.product(tuple(indices[number + 1 :]), self.extents))
            last = number == len(indices) - 1
            found[index] = flat if last else bind(tirx.truncdiv(flat, inner))
            if not last:
                flat = bind(flat - found[index] * inner)
        return found

    def offset(self, tensor: str, positions: Mapping[str, Any]) -> Any:
        """Return what positions add to the offset of an element, in a variable."""
        offset: Any = i64(0)
        for index, position in positions.items():
            stride = self.stride(tensor, index)
            if not (isinstance(stride, int) and stride == 0):
                offset = offset + position * as_int64(stride)
        return TirOps().bind(offset)
