"""Positions that depend on a node's values, by what blocks have: comparisons with a row of whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

import numpy as np

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Node
from dietcode.models.rewriting.rewriter import Rewriter

_MOST_ROWS = 4096  # of a table that is taken from by a product
_LARGEST = float(np.finfo(np.float32).max)


def chosen(r: Rewriter, node: Node, constants: AbstractSet[str]) -> str | None:
    """Return what stands for a node that finds positions, or reads at computed ones; None for other nodes."""
    form = _RULES.get(node.operator)
    return None if form is None else form(r, node, constants)


def _counted(r: Rewriter, extent: Extent) -> str:
    """Return 0, 1, 2, … as float32; a constant."""
    ones = r.add("full", shape=(extent,), value=1.0, dtype="float32")
    return r.add("sub", r.add("cumsum", ones, axis=0), 1.0)


def _position(r: Rewriter, node: Node, constants: AbstractSet[str]) -> str | None:
    """``argmax(x)`` -> the least of the positions whose element is as large as the largest."""
    value = str(node.operands[0])
    type_ = r.type(value)
    axis = node.attributes["axis"] % type_.rank
    extent = type_.shape[axis]
    if type_.dtype != "float32" or not extent.is_constant:
        return None
    if node.operator == "argmin":
        value = r.add("neg", value)
    most = r.add("max", value, axes=(axis,), keep=True)
    is_most = r.add("less_equal", most, value, dtype="float32")
    places = r.add("neg", _counted(r, extent))
    places = r.reshape(places, (extent, *(ONE,) * (type_.rank - axis - 1)))
    found = r.add("where", is_most, places, -float(extent.constant), dtype="float32")
    return r.add("neg", r.add("max", found, axes=(axis,), keep=node.attributes["keep"]))


def _log_softmax(r: Rewriter, node: Node, constants: AbstractSet[str]) -> str | None:
    """``log_softmax(x)`` -> ``y - log(sum(exp(y)))`` of y, x less its largest element."""
    value, axis = str(node.operands[0]), node.attributes["axis"]
    lower = r.add("sub", value, r.add("max", value, axes=(axis,), keep=True))
    total = r.add("sum", r.add("exp", lower), axes=(axis,), keep=True)
    return r.add("sub", lower, r.add("log", total))


def _taken(r: Rewriter, node: Node, constants: AbstractSet[str]) -> str | None:
    """Rows of a constant at computed positions -> a product with it, of numbers that are 0 at all others.

    That number is 2, and the table is halved: what is infinite in it becomes the largest number, which the
    product doubles, and which 0 leaves out.
    """
    table, positions = map(str, node.operands)
    shape, at = r.type(table).shape, r.type(positions)
    is_small = shape[0].is_constant and shape[0].constant <= _MOST_ROWS
    if table not in constants or at.dtype != "float32" or node.attributes["axis"] or not is_small:
        return None
    if node.attributes["wraps"]:
        behind = r.add("add", positions, float(shape[0].constant))
        is_negative = r.add("less", positions, 0.0, dtype="float32")
        positions = r.add("where", is_negative, behind, positions, dtype="float32")
    counted = _counted(r, shape[0])
    wide = r.reshape(positions, (*at.shape, ONE))
    below, above = (
        r.add("less_equal", *pair, dtype="float32") for pair in ((wide, counted), (counted, wide))
    )
    twice = r.add("mul", below, r.add("mul", above, 2.0))
    width = Extent.of(1)
    for extent in shape[1:]:
        width = width * extent
    flat = r.reshape(table, (shape[0], width))
    halved = r.add("clip", r.add("mul", flat, 0.5), low=-_LARGEST, high=_LARGEST)
    return r.reshape(r.add("matmul", twice, halved), (*at.shape, *shape[1:]))


_RULES: Mapping[str, Callable[[Rewriter, Node, AbstractSet[str]], str | None]] = {
    **dict.fromkeys(("argmax", "argmin"), _position),
    "log_softmax": _log_softmax,
    "take": _taken,
}
