"""Dicts, lists and sets of constants that a program looks things up in.

What is a number, a text or None is looked up in a table. Modules, functions and weights are chosen by a chain
of comparisons: ``layers[k](x)`` becomes ``layers[0](x) if k == 0 else layers[1](x)``.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dietcode.programs.nested_functions import as_value
from dietcode.programs.sources import is_module
from dietcode.programs.statements import at, name_of
from dietcode.runtime.programs.instances import plain_value

MISSING = object()
_SCALARS = bool | int | float | str | None


def items_of(container: Any) -> dict[Any, Any] | None:
    """Return the items of a constant dict, list, tuple or container of modules by key; None for all else.

    Lists have those that count from the end too.
    """
    is_mapping = isinstance(container, Mapping) or (is_module(container) and hasattr(container, "keys"))
    if is_mapping:
        return {_plain(key): _plain(container[key]) for key in container.keys()}  # noqa: SIM118  (ModuleDict)
    is_list = isinstance(container, list | tuple) or (is_module(container) and hasattr(container, "append"))
    if not is_list or hasattr(container, "_fields"):
        return None
    many = len(container)
    return {k: _plain(container[k]) for k in range(-many, many)}


def _plain(value: Any) -> Any:
    """Return a member of an Enum as a program has it, and anything else as it is."""
    return plain_value(value) if isinstance(value, Enum) else value


def members_of(container: Any) -> list[Any] | None:
    """Return what is in a constant container, as ``in`` asks; None where it is none of numbers and texts."""
    if isinstance(container, Mapping) or (is_module(container) and hasattr(container, "keys")):
        container = container.keys()
    elif not isinstance(container, list | tuple | set | frozenset):
        return None
    members = list(map(_plain, container))
    return list(dict.fromkeys(members)) if are_scalars(members) else None


def are_scalars(values: Iterable[Any]) -> bool:
    """Whether all values are numbers, texts or None."""
    return all(
        isinstance(one, _SCALARS) and not (isinstance(one, float) and math.isnan(one)) for one in values
    )


@dataclass(frozen=True)
class TableLookup:
    """What a table of constants is asked.

    Attributes
    ----------
    key : expression
        Of the text.
    items : mapping
    otherwise : object
        What stands for a key that is not there: a value, an expression, or `MISSING` for an error.
    error : type
        The class of that error.
    """

    key: ast.expr
    items: Mapping[Any, Any]
    otherwise: Any = MISSING
    error: type = KeyError


@dataclass(frozen=True)
class Chain:
    """An item of a constant container, or a call of it, as a chain of comparisons.

    Attributes
    ----------
    key : expression
        Of the text.
    positions : mapping
        From each key to which item it is.
    position : str
        The variable of the item's number.
    given : tuple of (str, expression)
        The variables of arguments.
    body : expression
    """

    key: ast.expr
    positions: Mapping[Any, int]
    position: str
    given: tuple[tuple[str, ast.expr], ...]
    body: ast.expr


def chain_of(node: ast.Subscript, container: Any, called: ast.Call | None, is_static: Any) -> Chain | None:
    """Return what ``container[k]`` or ``container[k](…)`` is in a program's words; None for an empty one.

    Parameters
    ----------
    node : Subscript
    container : object
    called : Call or None
        Of the item.
    is_static : callable
        Whether an argument is the same for every instance, and stays where it is.
    """
    items = items_of(container)
    if not items:
        return None
    is_list = not isinstance(next(iter(items)), str) and min(items, key=lambda one: isinstance(one, str)) < 0
    many = len(items) // 2 if is_list else len(items)
    keys = list(range(many)) if is_list else list(items)
    positions = {key: key % many if is_list else k for k, key in enumerate(items)}
    name = name_of(node, "position")
    given, arguments = [], []
    for k, one in enumerate([*called.args, *(own.value for own in called.keywords)] if called else ()):
        if is_static(one):
            arguments.append(one)
            continue
        given.append((name_of(node, f"given {k}"), one))
        arguments.append(at(one, ast.Name(given[-1][0], ast.Load())))
    body: ast.expr | None = None
    for k in range(many - 1, -1, -1):
        own: ast.expr = at(node, ast.Subscript(node.value, at(node, ast.Constant(keys[k])), ast.Load()))
        if called is not None:
            own = at(called, ast.Call(own, arguments[: len(called.args)], _named(called, arguments)))
        elif callable(items[keys[k]]) and not isinstance(items[keys[k]], type):
            own = as_value(own)
        if body is not None:
            test = ast.Compare(at(node, ast.Name(name, ast.Load())), [ast.Eq()], [at(node, ast.Constant(k))])
            own = at(own, ast.IfExp(at(node, test), own, body))
        body = own
    assert body is not None  # there is an item
    return Chain(node.slice, positions, name, tuple(given), ast.fix_missing_locations(body))


def _named(called: ast.Call, arguments: list[ast.expr]) -> list[ast.keyword]:
    rest = arguments[len(called.args) :]
    return [ast.keyword(own.arg, value) for own, value in zip(called.keywords, rest, strict=True)]
