"""Lists that all calls share: defaults of parameters, and those of the file. A program only reads them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from dietcode.errors import ModelError
from dietcode.programs import lists, orders

_METHODS = (
    *("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse", "popleft", "appendleft"),
    *("add", "discard", "update", "setdefault", "popitem"),
)
_FUNCTIONS = (*lists.CHANGING, *orders.CHANGING, lists.pop_first)


class SharedLists:
    """Lists that a program has not made, as they were when its samples first had them."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any, ModelError]] = {}

    def note(self, value: Any, refusal: Callable[[], ModelError]) -> None:
        """Note a list, and what to raise where something has changed it."""
        if type(value) is list and id(value) not in self._known:
            self._known[id(value)] = value, _items(value), refusal()

    def check(self) -> None:
        """Raise what was noted with the first list that has other items now."""
        for value, before, refusal in self._known.values():
            if not _are_same(value, before):
                raise refusal


def _items(value: Any) -> Any:
    return [_items(one) for one in value] if type(value) is list else value


def _are_same(value: Any, before: Any) -> bool:
    if type(value) is not list:
        return value is before
    return len(value) == len(before) and all(map(_are_same, value, before))


def is_changed_by(tree: ast.AST, name: str) -> bool:
    """Whether a text changes the value of a variable, which it does not assign to."""
    names, added = {name}, [one.target for one in ast.walk(tree) if isinstance(one, ast.AugAssign)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_of(node.value, names):  # a copy that `x[i] += 1` makes
            names |= {one.id for one in node.targets if isinstance(one, ast.Name) and " " in one.id}
    found = False
    for node in ast.walk(tree):
        is_own = isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        if is_own and not any(node is one for one in added):
            return False
        found |= _changes(node, names)
    return found


def _changes(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.AugAssign):
        return _is_of(node.target, names)
    if isinstance(node, ast.Subscript | ast.Attribute):
        return not isinstance(node.ctx, ast.Load) and _is_of(node.value, names)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
        return _is_of(node.func.value, names)
    function: Any = node.func.value if isinstance(node.func, ast.Constant) else None
    is_own = any(function is one for one in _FUNCTIONS)
    return is_own and bool(node.args) and _is_of(node.args[0], names)


def _is_of(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names
