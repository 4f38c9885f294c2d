"""Comparisons of objects: field by field in dataclasses and named tuples, or by methods of their class."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from dietcode.programs.roles import is_users
from dietcode.programs.statements import at, call, constant, name_of


@dataclass(frozen=True)
class Fieldwise:
    """What ``a == b`` or ``a != b`` of two objects is.

    Attributes
    ----------
    left, right : str
        Variables of the two.
    body : expression
    """

    left: str
    right: str
    body: ast.expr


def compared_fields(cls: type) -> list[str] | None:
    """Return the fields that decide whether two objects of a class are equal.

    There are none where each object equals itself alone; None where the class has its own ``__eq__``.
    """
    if hasattr(cls, "_fields"):
        return list(cls._fields) if getattr(cls, "__eq__", None) is tuple.__eq__ else None
    own = inspect.getattr_static(cls, "__eq__", None)
    if own is object.__eq__:
        return []
    is_made = inspect.isfunction(own) and own.__code__.co_filename == "<string>"  # by `dataclass`
    if not dataclasses.is_dataclass(cls) or not is_made:
        return None
    return [one.name for one in dataclasses.fields(cls) if one.compare]


def compared(node: ast.Compare, cls: type) -> Fieldwise | None:
    """Return what a comparison of objects of a class is; None where the class has none.

    ``a < b`` calls ``a.__lt__(b)`` or ``b.__gt__(a)``, whichever the class has of its own; what
    ``functools.total_ordering`` adds is said by ``__lt__``; dataclasses with ``order=True`` and named tuples
    compare tuples of their fields.
    """
    (op,) = node.ops
    names = name_of(node, "left"), name_of(node, "right")
    left, right = (at(node, ast.Name(one, ast.Load())) for one in names)
    body: ast.expr | None
    if isinstance(op, ast.Eq | ast.NotEq):
        if _has_own(cls, "__eq__"):
            body = _called(node, left, "__eq__", right)
            if isinstance(op, ast.NotEq):
                body = at(node, ast.UnaryOp(ast.Not(), body))
        else:
            fields = compared_fields(cls)
            return None if fields is None else by_fields(node, cls, fields)
    else:
        body = _ordered(node, cls, left, right)
    return None if body is None else Fieldwise(*names, ast.fix_missing_locations(body))


def _ordered(node: ast.Compare, cls: type, left: ast.expr, right: ast.expr) -> ast.expr | None:
    own, reflected = _METHODS[type(node.ops[0])]
    if _has_own(cls, own):
        return _called(node, left, own, right)
    fields = _ordered_fields(cls)
    if fields is not None:
        sides = [_fields_of(node, one, fields) for one in (left, right)]
        return at(node, ast.Compare(sides[0], node.ops, [sides[1]]))
    is_total = getattr(getattr(cls, own, None), "__module__", "") == functools.__name__
    if is_total and _has_own(cls, "__lt__"):
        less = _called(node, left, "__lt__", right)
        same = at(node, ast.Compare(left, [ast.Eq()], [right]))
        if own == "__le__":
            return at(node, ast.BoolOp(ast.Or(), [less, same]))
        more = at(node, ast.UnaryOp(ast.Not(), less))
        other = at(node, ast.UnaryOp(ast.Not(), same))
        return more if own == "__ge__" else at(node, ast.BoolOp(ast.And(), [more, other]))
    return _called(node, right, reflected, left) if _has_own(cls, reflected) else None


_METHODS = {
    ast.Lt: ("__lt__", "__gt__"),
    ast.Gt: ("__gt__", "__lt__"),
    ast.LtE: ("__le__", "__ge__"),
    ast.GtE: ("__ge__", "__le__"),
}


def _has_own(cls: type, name: str) -> bool:
    """Whether a class has a method that is written in a file of the user's."""
    found = inspect.getattr_static(cls, name, None)
    return inspect.isfunction(found) and found.__code__.co_filename != "<string>" and is_users(found)


def _ordered_fields(cls: type) -> list[str] | None:
    if hasattr(cls, "_fields"):
        return list(cls._fields) if getattr(cls, "__lt__", None) is tuple.__lt__ else None
    is_ordered = dataclasses.is_dataclass(cls) and cls.__dataclass_params__.order  # type: ignore[attr-defined]
    return [one.name for one in dataclasses.fields(cls) if one.compare] if is_ordered else None


def _called(node: ast.AST, owner: ast.expr, name: str, other: ast.expr) -> ast.expr:
    return call(node, at(node, ast.Attribute(owner, name, ast.Load())), other)


def _fields_of(node: ast.AST, owner: ast.expr, fields: Sequence[str]) -> ast.expr:
    parts: list[ast.expr] = [at(node, ast.Attribute(owner, one, ast.Load())) for one in fields]
    return at(node, ast.Tuple(parts, ast.Load()))


def by_fields(node: ast.Compare, cls: type, names: Sequence[str]) -> Fieldwise:
    """Return a comparison of what may be two objects of a class as one of each field, in order.

    It is ``a is b or (isinstance(a, C) and isinstance(b, C) and a.x == b.x)``.

    Parameters
    ----------
    node : Compare
    cls : type
    names : sequence of str
        Its fields that are compared.
    """
    names_of = name_of(node, "left"), name_of(node, "right")

    def read(side: int) -> ast.expr:
        return at(node, ast.Name(names_of[side], ast.Load()))

    def field(side: int, name: str) -> ast.expr:
        return at(node, ast.Attribute(read(side), name, ast.Load()))

    body: ast.expr = at(node, ast.Compare(read(0), [ast.Is()], [read(1)]))
    if names:
        parts = [call(node, "isinstance", read(side), constant(cls)) for side in (0, 1)]
        parts += [at(node, ast.Compare(field(0, one), [ast.Eq()], [field(1, one)])) for one in names]
        body = at(node, ast.BoolOp(ast.Or(), [body, at(node, ast.BoolOp(ast.And(), parts))]))
    if isinstance(node.ops[0], ast.NotEq):
        body = at(node, ast.UnaryOp(ast.Not(), body))
    return Fieldwise(*names_of, ast.fix_missing_locations(body))
