"""Norms over groups of channels where channels come last: nothing is transposed for them.

Elements of a group lie apart then. The means of single channels become those of groups by a product with a
constant matrix, which gives each channel the mean of its group at once.
"""

from __future__ import annotations

from dietcode.graph.extent import ONE, Extent, product_of
from dietcode.graph.graph import Node
from dietcode.models.rewriting.convolutions import channels_last_twin, given_back
from dietcode.models.rewriting.rewriter import Rewriter, Rule


def group_norm(r: Rewriter, node: Node) -> str | None:
    """``layernorm(reshape(x, [n, groups, …]))`` of a transpose -> the same of what has channels last.

    Three passes over the elements: a mean, the mean of squares of what is left, the quotient.
    """
    if node.operator != "layernorm" or len(node.operands) > 1 or node.attributes["num_axes"] != 1:
        return None
    merged = r.producer(node.operands[0], "reshape")
    twin = None if merged is None else channels_last_twin(r, merged.operands[0])
    if merged is None or twin is None or r.type(twin).dtype != "float32":
        return None
    batch, *spatial, channels = r.type(twin).shape
    rows = r.type(node.operands[0]).shape
    if len(rows) != 3 or rows[0] != batch or not (rows[1].is_constant and channels.is_constant):
        return None
    groups, count = rows[1].constant, channels.constant
    if count % groups or rows[2] != product_of(spatial) * (count // groups):
        return None
    mean = _of_groups(r, twin, groups)
    square = r.add("square", r.add("sub", twin, mean))
    spread = r.add("add", _of_groups(r, square, groups), node.attributes["eps"])
    # The difference is computed again rather than kept, which would be as many elements to write and read.
    result = r.add("mul", r.add("sub", twin, mean), r.add("rsqrt", spread))
    return r.reshape(given_back(r, result), rows)


def _of_groups(r: Rewriter, x: str, groups: int) -> str:
    """Return for each channel the mean of its group, ``[n, 1…, c]``."""
    batch, *spatial, channels = r.type(x).shape
    mean = r.add("mean", x, axes=tuple(range(1, len(spatial) + 1)), keep=False)
    if groups != channels.constant:
        mean = r.add("linear", mean, _shares(r, channels, channels.constant // groups))
    return r.reshape(mean, (batch, *(ONE for _ in spatial), channels))


def _shares(r: Rewriter, channels: Extent, width: int) -> str:
    """Return ``[c, c]``: 1 / width for two channels of one group, else 0."""
    number = r.add("floor_divide", r.add("arange", stop=channels), width)
    same = r.add("equal", r.reshape(number, (channels, ONE)), number)
    return r.add("mul", r.add("cast", same, dtype="float32"), 1.0 / width)


GROUP_NORMS: tuple[Rule, ...] = (group_norm,)
