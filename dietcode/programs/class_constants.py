"""What a class has for all of its objects, read by a method: ``self.MOVES``."""

from __future__ import annotations

import ast
import dis
import inspect
from collections.abc import Iterator
from typing import Any

from dietcode.programs.statements import Outside, at, constant

_KINDS = (dict, list, tuple, set, frozenset)


def class_constant(node: ast.Attribute, tree: ast.FunctionDef, outside: Outside) -> ast.expr | None:
    """Return ``self.MOVES`` as the container that it is; None for fields, and where classes differ in it.

    Parameters
    ----------
    node : Attribute
    tree : FunctionDef
        The outermost function around it, whose first parameter is the object.
    outside : callable
        Whether a name that is not local stands for something, and that.
    """
    own, names = node.value, [one.arg for one in tree.args.args[:1]]
    is_read = isinstance(node.ctx, ast.Load) and isinstance(own, ast.Name) and own.id in names
    if not is_read or node.attr != node.attr.upper():
        return None
    cls = outside("__class__")[1]
    if not isinstance(cls, type):
        return None
    family = list(dict.fromkeys(_family(cls)))
    values = [vars(one)[node.attr] for one in family if node.attr in vars(one)]
    if len(values) != 1 or type(values[0]) not in _KINDS:
        return None
    is_field = any(node.attr in getattr(one, "__dataclass_fields__", ()) for one in family)
    is_assigned = any(_assigns(one, node.attr) for one in family)
    return None if is_field or is_assigned else at(node, constant(values[0]))


def class_of_text(function: Any) -> type | None:
    """Return the class in whose text a function of a file stands; None for others."""
    *path, _ = function.__qualname__.split(".")
    found: Any = function.__globals__.get(path[0]) if path else None
    for word in path[1:]:
        found = getattr(found, word, None)
    return found if isinstance(found, type) and function.__name__ in vars(found) else None


def _family(cls: type) -> Iterator[type]:
    """Return the classes that an object may have where a method of one runs."""
    for parent in cls.__mro__[:-1]:
        yield parent
        yield from _below(parent)


def _below(cls: type) -> Iterator[type]:
    below: list[type] = type.__subclasses__(cls)
    for one in below:
        yield one
        yield from _below(one)


def _assigns(cls: type, name: str) -> bool:
    """Whether a method of a class assigns to a field."""
    functions = (one for one in vars(cls).values() if inspect.isfunction(one))
    return any(
        one.opname == "STORE_ATTR" and one.argval == name
        for function in functions
        for one in dis.get_instructions(function)
    )
