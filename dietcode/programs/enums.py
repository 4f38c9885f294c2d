"""Members of Enums in a program's text: made of their values, and asked for their values and names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum
from typing import Any

from dietcode.programs.containers import MISSING, TableLookup, are_scalars
from dietcode.programs.nested_functions import NestedFunction
from dietcode.programs.statements import is_read_alone
from dietcode.runtime.programs.instances import plain_value


def is_enum(given: Any) -> bool:
    """Whether something is a class of constants."""
    return isinstance(given, type) and issubclass(given, Enum)


def member_of(node: ast.Call, cls: type[Enum]) -> TableLookup | None:
    """Return ``Color(2)`` as a lookup; None where values are no numbers and texts."""
    values = [one.value for one in cls]
    if len(node.args) != 1 or node.keywords or not are_scalars(values):
        return None
    return TableLookup(node.args[0], {one.value: plain_value(one) for one in cls}, error=ValueError)


def read_of_member(node: ast.Attribute, function: Any) -> TableLookup | None:
    """Return ``member.value`` and ``member.name`` as a lookup among the Enums that a function may name.

    None where there is none of them; members that a program cannot tell apart are left out.
    """
    found: dict[Any, Any] = {}
    several = set()
    for cls in dict.fromkeys(_enums(function)):
        for one in cls:
            key, own = plain_value(one), one.value if node.attr == "value" else one.name
            if found.setdefault(key, own) != own:
                several.add(key)
    for key in several:
        del found[key]
    if not found or not are_scalars(found.values()):
        return None
    is_itself = node.attr == "value" and is_read_alone(node.value)
    return TableLookup(node.value, found, node.value if is_itself else MISSING)


def _enums(function: Any) -> Iterator[type[Enum]]:
    if isinstance(function, NestedFunction):
        yield from _enums(function.outer.function)
        return
    known = [*function.__globals__.values()]
    for cell in function.__closure__ or ():
        try:
            known.append(cell.cell_contents)
        except ValueError:  # it is not assigned yet
            continue
    yield from filter(is_enum, known)
