"""The dtype and the symbolic shape of a value of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dietcode.graph.extent import ONE, Extent, product_of

FLOATS = ("float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
DTYPES = ("bool", *INTEGERS, *FLOATS)
HALVES = ("float16", "bfloat16")  # of inputs and outputs, which graphs have in float32
MAX_RANK = 16
Shape = tuple[Extent, ...]


class GraphError(ValueError):
    """Operands or attributes that an operator does not take; the message says which, and what is allowed."""


@dataclass(frozen=True)
class TensorType:
    """What is known of a value before any call.

    Attributes
    ----------
    dtype : str
        One of `DTYPES`.
    shape : tuple of Extent
    """

    dtype: str
    shape: Shape

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def num_elements(self) -> Extent:
        """The product of all extents."""
        return product_of(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(str(extent) for extent in self.shape)}]"


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front.

    Raises
    ------
    GraphError
        There is no such axis.
    """
    if not -rank <= axis < rank:
        raise GraphError(f"axis {axis}; allowed: {-rank} to {rank - 1}")
    return axis % rank


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Return the common shape by NumPy's rules; extents that differ have to be 1 in all operands but one.

    Raises
    ------
    GraphError
        Extents do not go together.
    """
    rank = max(len(shape) for shape in shapes)
    padded = [(ONE,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    result = []
    for extents in zip(*padded, strict=True):
        others = [extent for extent in extents if extent != ONE]
        if any(extent != others[0] for extent in others):
            given = ", ".join(f"[{', '.join(map(str, shape))}]" for shape in shapes)
            raise GraphError(f"shapes {given} do not broadcast: {others[0]} beside {others[1]}")
        result.append(others[0] if others else ONE)
    return tuple(result)
