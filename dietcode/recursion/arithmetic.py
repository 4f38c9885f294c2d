"""Operators that no block has, by those that blocks have: truth values are 0 and 1, powers are products.

Whole numbers that depend on a node are float32, which has all up to 2^24.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import reduce

from dietcode.graph.extent import Extent
from dietcode.graph.graph import Node, Value
from dietcode.models.rewriting.rewriter import Rewriter, Rule
from dietcode.recursion.choosing import chosen
from dietcode.recursion.functions import FUNCTIONS
from dietcode.recursion.kinds import ELEMENTWISE

_MOST_FACTORS = 16
_MOST = 1e30  # of a number in a block
_WHOLE = ("int32", "int64")


def _number(r: Rewriter, value: Value) -> Value:
    """Return a truth value as 0 or 1."""
    if not isinstance(value, str):
        return float(value) if isinstance(value, bool) else value
    return r.add("cast", value, dtype="float32") if r.type(value).dtype == "bool" else value


def with_floats(r: Rewriter, operands: Sequence[Value], constants: AbstractSet[str]) -> list[Value]:
    """Return operands beside a float32 value, whole constants among them as float32 too."""
    is_float = any(isinstance(one, str) and r.type(one).dtype == "float32" for one in operands)
    return [
        r.add("cast", one, dtype="float32")
        if is_float and isinstance(one, str) and one in constants and r.type(one).dtype in _WHOLE
        else one
        for one in operands
    ]


def _is_float(r: Rewriter, *values: Value) -> bool:
    return all(not isinstance(one, str) or r.type(one).dtype == "float32" for one in values)


def _compared(r: Rewriter, node: Node) -> str | None:
    """``a < b`` -> 1 or 0; ``a == b`` -> ``(a <= b) * (b <= a)``."""
    a, b = (_tensor(r, _number(r, one)) for one in node.operands)
    if node.attributes["dtype"] not in (None, *_WHOLE, "float32") or not _is_float(r, a, b):
        return None
    if node.operator in ("less", "less_equal"):
        return r.add(node.operator, a, b, dtype="float32")
    both = (r.add("less_equal", *pair, dtype="float32") for pair in ((a, b), (b, a)))
    same = r.add("mul", *both)
    return same if node.operator == "equal" else r.add("sub", 1.0, same)


def _combined(r: Rewriter, node: Node) -> str | None:
    a, *rest = (_number(r, one) for one in node.operands)
    if node.operator == "not":
        return r.add("sub", 1.0, a)
    if node.operator == "xor":
        return r.add("abs", r.add("sub", a, *rest))
    return r.add({"and": "mul", "or": "maximum"}[node.operator], a, *rest)


def _cast(r: Rewriter, node: Node) -> str | None:
    """A cast to float32 -> the value; one to whole numbers -> without what follows the point.

    One to truth values -> whether it is not 0.
    """
    dtype, value = node.attributes["dtype"], str(node.operands[0])
    if r.type(value).dtype != "float32" or dtype not in ("float32", "bool", *_WHOLE):
        return None
    if dtype == "float32" or (dtype != "bool" and _is_whole(r, value)):
        return value
    if dtype != "bool":
        below, above = r.add("floor", value), r.add("ceil", value)
        is_negative = r.add("less", value, 0.0, dtype="float32")
        return r.add("where", is_negative, above, below, dtype="float32")
    both = (r.add("less_equal", *pair, dtype="float32") for pair in ((value, 0.0), (0.0, value)))
    return r.add("sub", 1.0, r.add("mul", *both))


def _is_whole(r: Rewriter, value: str) -> bool:
    """Whether a value is computed as a whole number."""
    node = r.producer(value, *_MAKE_WHOLE, *_KEEP_WHOLE)
    if node is None:
        return False
    kept = node.operands[1:] if node.operator == "where" else node.operands
    return node.operator in _MAKE_WHOLE or all(
        _is_whole(r, one) if isinstance(one, str) else float(one or 0).is_integer() for one in kept
    )


def _quotient(r: Rewriter, node: Node) -> str | None:
    """``a // b`` -> ``floor(a / b)``; ``a % b`` -> ``a - (a // b) * b``."""
    if not _is_float(r, *node.operands):
        return None
    whole = r.add("floor", r.add("div", *node.operands))
    if node.operator == "floor_divide":
        return whole
    return r.add("sub", node.operands[0], r.add("mul", whole, node.operands[1]))


def _where(r: Rewriter, node: Node) -> str | None:
    condition, *values = (_number(r, one) for one in node.operands)
    values = [_tensor(r, one) for one in values]
    is_right = (condition, *values) == node.operands and node.attributes["dtype"] in (None, "float32")
    if not _is_float(r, *values) or is_right:
        return None
    return r.add("where", condition, *values, dtype="float32")


def _tensor(r: Rewriter, value: Value) -> Value:
    """Return a number that is too large for a block as a tensor, as -inf of a mask."""
    if isinstance(value, str) or value is None or abs(value) <= _MOST:
        return value
    return r.add("full", shape=(Extent.of(1),), value=value, dtype="float32")


def _reduced(r: Rewriter, node: Node) -> str | None:
    """``any`` -> ``max``, ``all`` and ``min`` -> ``-max(-x)``, ``prod`` -> products of slices."""
    value = str(_number(r, node.operands[0]))
    if r.type(value).dtype != "float32":
        return None
    if node.operator == "any":
        return r.add("max", value, **node.attributes)
    if node.operator != "prod":
        return r.add("neg", r.add("max", r.add("neg", value), **node.attributes))
    rank = r.type(value).rank
    axes = [axis % rank for axis in node.attributes["axes"] or range(rank)]
    count = r.type(value).shape[axes[0]]
    if len(axes) != 1 or not count.is_constant or count.constant > _MOST_FACTORS:
        return None
    parts = (r.add("slice", value, axis=axes[0], start=k, stop=k + 1, step=1) for k in range(count.constant))
    product = reduce(lambda a, b: r.add("mul", a, b), parts)
    shape = r.type(product).shape
    kept = shape if node.attributes["keep"] else shape[: axes[0]] + shape[axes[0] + 1 :]
    return r.reshape(product, kept)


def _cumsum(r: Rewriter, node: Node) -> str | None:
    """``cumsum(x)`` -> a product with a triangle of ones."""
    value = str(node.operands[0])
    shape = r.type(value).shape
    axis = node.attributes["axis"] % len(shape)
    if r.type(value).dtype != "float32" or not shape[axis].is_constant:
        return None
    ones = r.add("full", shape=(shape[axis], shape[axis]), value=1.0, dtype="float32")
    triangle = r.add("triangle", ones, side="lower", diagonal=0)
    order = [one for one in range(len(shape)) if one != axis] + [axis]
    made = r.add("linear", r.transpose(value, order), triangle)
    return r.transpose(made, [order.index(one) for one in range(len(shape))])


def _power(r: Rewriter, node: Node) -> str | None:
    value, exponent = node.operands
    if not isinstance(value, str) or isinstance(exponent, str) or exponent is None:
        return None
    if abs(exponent) in (0.5, 1.5):
        root = r.add("sqrt", value)
        made = root if abs(exponent) == 0.5 else r.add("mul", value, root)
    elif exponent == math.floor(exponent) and 1 <= abs(exponent) <= _MOST_FACTORS:
        made = reduce(lambda a, b: r.add("mul", a, b), [value] * int(abs(exponent)))
    else:
        return None
    return made if exponent > 0 else r.add("div", 1.0, made)


def _sign(r: Rewriter, node: Node) -> str | None:
    value = node.operands[0]
    pairs = ((0.0, value), (value, 0.0))
    return r.add("sub", *(r.add("less", *pair, dtype="float32") for pair in pairs))


def _formula(r: Rewriter, node: Node) -> str | None:
    return FUNCTIONS[node.operator](r, *node.operands) if _is_float(r, *node.operands) else None


_MAKE_WHOLE = ("floor", "ceil", "round", "less", "less_equal")
_KEEP_WHOLE = ("add", "sub", "mul", "neg", "abs", "max", "where", "reshape", "expand", "maximum", "minimum")
_RULES: Mapping[str, Callable[[Rewriter, Node], str | None]] = {
    **dict.fromkeys(("less", "less_equal", "equal", "not_equal"), _compared),
    **dict.fromkeys(("and", "or", "xor", "not"), _combined),
    **dict.fromkeys(("any", "all", "min", "prod"), _reduced),
    **dict.fromkeys(("floor_divide", "remainder"), _quotient),
    "cast": _cast,
    "where": _where,
    "cumsum": _cumsum,
    "pow": _power,
    "sign": _sign,
    **dict.fromkeys(FUNCTIONS, _formula),
}


def arithmetic(constants: set[str]) -> Rule:
    """Return a rule for the values that depend on a node; `constants` are computed on the host."""

    def rule(r: Rewriter, node: Node) -> str | None:
        if node.result in constants:
            return None
        operands = with_floats(r, node.operands, constants) if node.operator in ELEMENTWISE else node.operands
        current = replace(node, operands=tuple(operands))
        form = _RULES.get(node.operator)
        found = form(r, current) if form is not None else chosen(r, current, constants)
        if found is None and current.operands != node.operands:
            return r.add(node.operator, *current.operands, **node.attributes)
        return found

    return rule
