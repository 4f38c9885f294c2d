"""Equality of objects, which dataclasses and named tuples compare field by field."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Sequence
from dataclasses import dataclass

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
