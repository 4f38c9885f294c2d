"""Sums of products of bytes, exact, by products of float32."""

from __future__ import annotations

from collections.abc import Callable

from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.builder import GraphBuilder

_EXACT = 1 << 24  # up to here float32 has every whole number
_NIBBLE = 16


def exact_sums(b: GraphBuilder, x: str, depth: int, product: Callable[[str], str], most: int = 255) -> str:
    """Return sums of products of bytes in int32.

    Float32 has each whole number up to 2²⁴ alone: where sums may be larger, one operand is taken as sixteens
    and a rest, and the products of both are added as whole numbers.

    Parameters
    ----------
    b : GraphBuilder
    x : str
        Whole numbers in float32, from -most to most.
    depth : int
        How many products a sum has.
    product : callable
        Returns the sums for such an operand.
    most : int
        What both operands are within.

    Raises
    ------
    GraphError
        Sums have so many products that they are not exact in this way either.
    """
    if depth * most * most <= _EXACT:
        return str(b.cast(product(x), "int32"))
    if depth * most * _NIBBLE > _EXACT:
        raise GraphError(f"sums of {depth} products; allowed: up to {_EXACT // (most * _NIBBLE)}")
    high = b.add("floor", b.add("mul", x, 1 / _NIBBLE))
    low = b.add("sub", x, b.add("mul", high, float(_NIBBLE)))
    sums = [b.cast(product(one), "int32") for one in (high, low)]
    return b.add("add", b.add("mul", sums[0], _NIBBLE), sums[1])
