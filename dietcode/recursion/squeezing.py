"""Axes of one element move behind what does not need them, until they meet the reshape that drops them."""

from __future__ import annotations

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Node, Value
from dietcode.models.rewriting.rewriter import Rewriter
from dietcode.recursion.kinds import ELEMENTWISE


def _narrow(r: Rewriter, value: Value) -> tuple[str, tuple[Extent, ...]] | None:
    """Return what a reshape puts axes of one element into the middle of, ``[B, H]`` -> ``[B, 1, H]``."""
    before = r.producer(value, "reshape")
    if before is None:
        return None
    source = str(before.operands[0])
    old, new = r.type(source).shape, r.type(before.result).shape
    if not 2 <= len(old) < len(new) or old[0] != new[0] or new[len(new) - len(old) + 1 :] != old[1:]:
        return None
    return (source, new) if all(one == ONE for one in new[1 : len(new) - len(old) + 1]) else None


def _rest(shape: tuple[Extent, ...], source: str, r: Rewriter) -> tuple[Extent, ...]:
    """Return the axes of one element that were put in, for a result of another last axis."""
    return shape[1 : len(shape) - r.type(source).rank + 1]


def along_last(r: Rewriter, node: Node) -> str | None:
    """``linear(reshape(x))``, norms and slices along the last axis -> ``reshape(linear(x))``."""
    if node.operator not in ("linear", "slice", "softmax", "layernorm", "rmsnorm") or not node.operands:
        return None
    found = _narrow(r, node.operands[0])
    if found is None:
        return None
    source, shape = found
    attributes, rank = dict(node.attributes), r.type(source).rank
    if "axis" in attributes:
        if attributes["axis"] % len(shape) != len(shape) - 1:
            return None
        attributes["axis"] = rank - 1
    if attributes.get("num_axes", 1) >= rank:
        return None
    made = r.add(node.operator, source, *node.operands[1:], **attributes)
    own = r.type(made).shape
    return r.reshape(made, (own[0], *_rest(shape, source, r), *own[1:]))


def elementwise(r: Rewriter, node: Node) -> str | None:
    """``f(reshape(x), reshape(y), small)`` -> ``reshape(f(x, y, small))``."""
    if node.operator not in ELEMENTWISE:
        return None
    found = [_narrow(r, one) for one in node.operands if isinstance(one, str)]
    known = next((one for one in found if one is not None), None)
    if known is None:
        return None
    source, shape = known
    rank = r.type(source).rank
    operands: list[Value] = []
    for one in node.operands:
        own = _narrow(r, one) if isinstance(one, str) else None
        if own is not None and r.type(own[0]).rank == rank and len(own[1]) == len(shape):
            operands.append(own[0])
        elif not isinstance(one, str) or r.type(one).rank < rank:
            operands.append(one)
        elif all(extent == ONE for extent in r.type(one).shape[: 1 - rank]):
            operands.append(r.reshape(one, r.type(one).shape[1 - rank :]))
        else:
            return None
    made = r.add(node.operator, *operands, **node.attributes)
    own_shape = r.type(made).shape
    if own_shape[0] != shape[0]:
        return None
    return r.reshape(made, (own_shape[0], *_rest(shape, source, r), *own_shape[1:]))


SQUEEZING = (along_last, elementwise)
