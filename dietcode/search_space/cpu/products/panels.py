"""The tensors of a block with products on a CPU, where those of the columns lie in panels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode.search_space.cpu.packing import packed_shape
from dietcode.search_space.products.memory import ProductMemory
from dietcode.search_space.products.problem import ProductProblem
from dietcode.workload.products import Gates


class PanelMemory(ProductMemory):
    """The tensors of one function; constants are packed.

    Parameters
    ----------
    extents : mapping of str to int64 expression
        Of every index.
    pointers : mapping of str to pointer
        By tensor name, as the function was given them.
    lanes : int
        Of a vector.
    """

    def __init__(
        self,
        problem: ProductProblem,
        extents: Mapping[str, Any],
        pointers: Mapping[str, Any],
        lanes: int,
    ) -> None:
        self.lanes = lanes
        super().__init__(problem, extents, pointers)

    def size_of(self, name: str) -> Any:
        """Return the elements of a tensor as the function is given it."""
        return self.packed_size(name) if name in self.problem.constants else super().size_of(name)

    def packed_size(self, tensor: str) -> Any:
        """Return the elements of a packed column tensor."""
        _, panels, reduction, lanes = packed_shape(
            self.problem, self.problem.layout(tensor), dict(self.extents), self.lanes
        )
        return panels * reduction * lanes

    def gate_offset(self, tensor: str, gates: Gates) -> int:
        """Return the flattened position among the innermost indices of a packed column tensor."""
        result, position = 0, dict(gates)
        for index in self.problem.layout(tensor).reduction:
            if index in self.problem.gates:
                extent = self.problem.extents[index]
                assert extent is not None
                result = result * extent + position.get(index, 0)
        return result

    def num_gates(self, tensor: str) -> int:
        """Return the positions along all of its gates."""
        gates = [k for k in self.problem.layout(tensor).reduction if k in self.problem.gates]
        return int(self.problem.product(tuple(gates), dict(self.problem.extents)))
