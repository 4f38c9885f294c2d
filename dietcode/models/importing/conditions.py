"""Conditions on sizes, as PyTorch has them: each is an extent that is positive where it holds."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from dietcode.graph.extent import ONE, Extent, floor_divide, larger, parse_extent, remainder, smaller
from dietcode.workload.text import one_line

SIGNS = {
    "Equality": "==",
    "Unequality": "!=",
    "LessThan": "<=",
    "StrictLessThan": "<",
    "GreaterThan": ">=",
    "StrictGreaterThan": ">",
}
_NODES: Mapping[type, str] = {
    ast.Eq: "Equality",
    ast.NotEq: "Unequality",
    ast.LtE: "LessThan",
    ast.Lt: "StrictLessThan",
    ast.GtE: "GreaterThan",
    ast.Gt: "StrictGreaterThan",
    ast.And: "And",
    ast.Or: "Or",
}
_REMAINDERS = ("Mod", "PythonMod")


@dataclass(frozen=True)
class Condition:
    """What sizes have to be.

    Attributes
    ----------
    value : Extent
        At least 1 where it holds, at most 0 elsewhere.
    is_of_ones : bool
        Whether it says nothing but that sizes are neither 0 nor 1, which PyTorch takes for constants, as its
        own conditions on strides do: ``w < h*w``, ``h*w != w``, ``w % (h*w) != 0``.
    """

    value: Extent
    is_of_ones: bool


def compared(kind: str, left: Extent, right: Extent) -> Condition:
    """Return a comparison, of a kind as sympy calls it."""
    difference = left - right
    if kind == "Equality":
        value = smaller(difference, difference * -1) + 1
    elif kind == "Unequality":
        value = larger(difference, difference * -1)
    else:
        value = difference if kind.endswith("GreaterThan") else difference * -1
        value = value if kind.startswith("Strict") else value + 1
    return Condition(value, is_more_than_one(kind, left, right))


def indivisible(left: Extent, right: Extent) -> Condition:
    """Return ``left % right != 0``."""
    found = compared("Unequality", remainder(left, right), Extent())
    return Condition(found.value, _quotient(right, left) is not None)


def joined(kind: str, parts: list[Condition]) -> Condition:
    """Return several conditions joined by ``And`` or ``Or``, or one that must not hold, by ``Not``."""
    if kind == "Not":
        return Condition(ONE - parts[0].value, False)
    choose = smaller if kind == "And" else larger
    return Condition(reduce(choose, (one.value for one in parts)), all(one.is_of_ones for one in parts))


def is_more_than_one(kind: str, left: Extent, right: Extent) -> bool:
    """Whether a relation says that an extent is neither 0 nor 1: alone, or as a factor, as ``w < h*w``."""
    if kind == "Unequality":
        is_small = {left, right} & {Extent(), ONE}
        return bool(is_small) or _quotient(left, right) is not None or _quotient(right, left) is not None
    if kind in ("LessThan", "StrictLessThan"):
        kind, left, right = kind.replace("Less", "Greater"), right, left
    least = {"GreaterThan": 2, "StrictGreaterThan": 1}.get(kind)
    if least is None or right == Extent():
        return False
    return right == Extent.of(least) or (least == 1 and _quotient(left, right) is not None)


def _quotient(extent: Extent, divisor: Extent) -> Extent | None:
    """Return what times the divisor an extent is; None where there is no such extent."""
    found = None if divisor == Extent() else floor_divide(extent, divisor)
    return found if found is not None and found * divisor == extent else None


def condition_of(expression: Any, extent_of: Callable[[Any], Extent]) -> Condition:
    """Return a relation of sympy's; raises what `extent_of` does, and ValueError for what is none."""
    kind = type(expression).__name__
    if kind in ("And", "Or", "Not"):
        return joined(kind, [condition_of(one, extent_of) for one in expression.args])
    if kind not in SIGNS:
        raise ValueError(f"a condition {one_line(str(expression), 80)}")
    left, right = expression.args
    if kind == "Unequality" and right == 0 and type(left).__name__ in _REMAINDERS:
        return indivisible(*map(extent_of, left.args))
    return compared(kind, extent_of(left), extent_of(right))


def read_condition(text: str) -> Condition:
    """Read a condition in Python, on extents as texts have them; raises ValueError for what is none."""
    try:
        return _read(ast.parse(text, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"a condition {one_line(text, 80)}") from None


def _read(node: ast.expr) -> Condition:
    if isinstance(node, ast.BoolOp):
        return joined(_NODES[type(node.op)], list(map(_read, node.values)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return joined("Not", [_read(node.operand)])
    match node:
        case ast.Compare(
            left=ast.BinOp(left=first, op=ast.Mod(), right=second),
            ops=[ast.NotEq()],
            comparators=[ast.Constant(value=0)],
        ):
            return indivisible(_extent(first), _extent(second))
        case ast.Compare(left=first, ops=[sign], comparators=[second]) if type(sign) in _NODES:
            return compared(_NODES[type(sign)], _extent(first), _extent(second))
    raise ValueError(f"a condition {one_line(ast.unparse(node), 80)}")


def _extent(node: ast.expr) -> Extent:
    return parse_extent(ast.unparse(node))
