"""Masks of attention that hide what comes later, as models spell them out: attention has a word for it."""

from __future__ import annotations

import math

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Node, Value
from dietcode.models.rewriting.rewriter import Rewriter

_HIDDEN = -1e30  # a mask's number at most: what it is added to vanishes


def causal(r: Rewriter, node: Node) -> str | None:
    """``attention(q, k, v, where(key <= query, 0, -inf))`` -> ``attention(q, k, v)`` with ``causal``."""
    mask = node.operands[3] if node.operator == "attention" and len(node.operands) > 3 else None
    if mask is None or node.attributes["causal"] != "none":
        return None
    length, keys = r.type(node.operands[0]).shape[-2], r.type(node.operands[1]).shape[-2]
    if (keys - length).bounds(r.graph.ranges)[0] < 0 or not _hides_later(r, mask, length, keys):
        return None
    operands, attributes = node.operands[:3], dict(node.attributes)
    return r.add("attention", *operands, **{**attributes, "causal": "first" if keys == length else "last"})


def _hides_later(r: Rewriter, mask: Value, length: Extent, keys: Extent) -> bool:
    """Whether a mask is 0 up to the position of each query, the last one being that of the last key."""
    mask = _without_ones(r, mask)
    triangle = r.producer(mask, "triangle")
    if triangle is not None:
        filled = r.producer(triangle.operands[0], "full")
        above = triangle.attributes["side"] == "upper" and triangle.attributes["diagonal"] == 1
        is_hidden = filled is not None and filled.attributes["value"] <= _HIDDEN
        return above and is_hidden and r.type(mask).shape == (length, keys) and length == keys
    node = r.producer(mask, "where")
    if node is None:
        return False
    first, second = (_number(r, one) for one in node.operands[1:])
    if second == 0 and first <= _HIDDEN:
        return _is_visible(r, node.operands[0], length, keys, negated=True)
    return first == 0 and second <= _HIDDEN and _is_visible(r, node.operands[0], length, keys)


def _number(r: Rewriter, value: Value) -> float:
    """Return the number that a value is everywhere; NaN where it is none."""
    if isinstance(value, int | float):
        return float(value)
    node = r.producer(_without_ones(r, value), "full")
    return math.nan if node is None else float(node.attributes["value"])


def _is_visible(r: Rewriter, condition: Value, length: Extent, keys: Extent, negated: bool = False) -> bool:
    """Whether a condition holds, or does not, of a key and a query where the key comes no later."""
    condition = _without_ones(r, condition)
    node = r.producer(condition, "less_equal", "less", "not", "triangle")
    if node is None:
        return False
    if node.operator == "not":
        return _is_visible(r, node.operands[0], length, keys, not negated)
    if node.operator == "triangle":
        filled = r.producer(node.operands[0], "full")
        side = ("upper", 1) if negated else ("lower", 0)
        is_side = side == (node.attributes["side"], node.attributes["diagonal"])
        is_true = filled is not None and bool(filled.attributes["value"])
        return is_side and is_true and length == keys and r.type(condition).shape == (length, keys)
    key, query = node.operands if node.operator == "less_equal" else node.operands[::-1]
    if negated != (node.operator == "less"):
        return False
    return _counts(r, key, -1, Extent(), keys) and _counts(r, query, -2, keys - length, keys)


def _counts(r: Rewriter, value: Value, axis: int, start: Extent, stop: Extent) -> bool:
    """Whether a value is ``arange(start, stop)`` along an axis, and has one position along all others."""
    if not isinstance(value, str):
        return False
    shape = list(r.type(value).shape)
    node = r.producer(_without_ones(r, value), "arange")
    if node is None or node.attributes["step"] != 1 or len(shape) < -axis:
        return False
    if (node.attributes["start"], node.attributes["stop"]) != (start, stop):
        return False
    extent = shape.pop(axis)
    return extent == stop - start and all(one == ONE for one in shape)


def _without_ones(r: Rewriter, value: Value) -> Value:
    """Return what a value is with axes of one position added or taken away, or repeated along these."""
    while True:
        node = r.producer(value, "reshape", "expand")
        if node is None:
            return value
        before, after = ([e for e in r.type(one).shape if e != ONE] for one in (node.operands[0], value))
        if node.operator == "reshape" and before != after:
            return value
        value = node.operands[0]
