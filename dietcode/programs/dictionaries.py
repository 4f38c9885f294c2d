"""Dicts that a program makes, in the words that programs may have: keys and values in two lists.

Keys stay in the order in which they came, as Python has them; an instruction of the machine finds them, one
by one. These functions are compiled as those of `dietcode.programs.lists` are. None calls another one: what
no sample reaches could not be written.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dietcode.programs import (
    integers,
    iterators,
    letters,
    lists,
    numerals,
    orders,
    sets,
    splits,
    stacked,
    statements,
    texts,
)
from dietcode.runtime.programs.instances import find
from dietcode.runtime.programs.results import DICT_RECORD

_OF_DICTS = (__name__, "dietcode.programs.counters")  # which needs this module
KEYS = "whole numbers, bools, texts, None, and tuples of them"


@dataclass(frozen=True)
class Default:
    """What ``d[key]`` of a ``defaultdict`` or a ``Counter`` is for a key that it lacks.

    Attributes
    ----------
    make : callable
        Returns the expression of a new one.
    is_kept : bool
        Whether the dict has it from then on.
    """

    make: Callable[[ast.AST], ast.expr]
    is_kept: bool = True


OF_COUNTER = Default(lambda node: ast.copy_location(ast.Constant(0), node), is_kept=False)


def default_of(factory: Any) -> Default | None:
    """Return what a ``defaultdict`` makes; None where that cannot be written as an expression.

    Parameters
    ----------
    factory : object
        A type, or the syntax tree of a lambda.
    """
    if isinstance(factory, ast.Lambda):
        return _of_lambda(factory.body) if not factory.args.args and _is_constant(factory.body) else None
    if factory is list:
        return Default(lambda node: ast.copy_location(ast.List([], ast.Load()), node))
    if any(factory is one for one in (int, float, bool)):
        return Default(lambda node: ast.copy_location(ast.Constant(factory()), node))
    library = next((own for one, own in ((dict, made), (set, sets.made)) if factory is one), None)
    return None if library is None else Default(lambda node: _empty(node, library))


def _of_lambda(body: ast.expr) -> Default:
    return Default(lambda _: copy.deepcopy(body))


def _is_constant(node: ast.expr) -> bool:
    """Whether an expression is a number or a text, or a list or tuple of such, which is made anew."""
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _is_constant(node.operand)
    if isinstance(node, ast.List | ast.Tuple):
        return all(map(_is_constant, node.elts))
    return isinstance(node, ast.Constant)


def _empty(node: ast.AST, library: Callable[..., Any]) -> ast.expr:
    """Return a call of what makes a dict or a set of no items."""
    no_items = ast.copy_location(ast.List([], ast.Load()), node)
    return statements.call(node, statements.constant(library), no_items)


@dataclass(eq=False)
class Dictionary:
    """A dict while samples run, and a record of the program's."""

    dict_keys: list[Any]
    dict_values: list[Any]

    default: ClassVar[Default | None] = None  # of one that samples make; the program's text has it
    is_ordered: ClassVar[bool] = False  # an OrderedDict, two of which are the same in one order alone

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.dict_keys)

    def __iter__(self) -> Iterator[Any]:
        """Go over the keys."""
        return iter(list(self.dict_keys))


Dictionary.__name__ = DICT_RECORD[0]  # which records are known by
DICT = ("record", DICT_RECORD[0])  # its kind


class DictView(list[Any]):
    """What ``keys``, ``values`` and ``items`` give, while samples run: it may be read, and not be kept."""


def is_key(value: Any) -> bool:
    """Whether a value may be a key of a program's dict: floats that are no numbers are never found again."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return all(map(is_key, value))
    return isinstance(value, bool | int | str | None)


def is_library(function: Any) -> bool:
    """Whether a function is of `lists`, `orders`, `stacked`, `sets` or this module: each line is compiled."""
    own = (lists, orders, sets, stacked, iterators, texts, splits, letters, numerals, integers)
    return getattr(function, "__module__", "") in (*(one.__name__ for one in own), *_OF_DICTS)


def is_of_dicts(function: Callable[..., Any]) -> bool:
    """Whether a function takes dicts and Counters as they are."""
    return function.__module__ in _OF_DICTS


def of_given(given: Any) -> Dictionary:
    """Return ``dict(given)``; what a sample gives says which of the next two it is."""
    return copied(given) if isinstance(given, Dictionary) else made(given)


def made(pairs: Sequence[Any]) -> Dictionary:
    """Return ``dict(pairs)``."""
    own = Dictionary([], [])
    for key, value in pairs:
        at = find(own.dict_keys, key)
        if at < 0:
            own.dict_keys.append(key)
            own.dict_values.append(value)
        else:
            own.dict_values[at] = value
    return own


def copied(own: Dictionary) -> Dictionary:
    """Return ``own.copy()``."""
    return Dictionary(list(own.dict_keys), list(own.dict_values))


def with_pairs(own: Dictionary, pairs: Sequence[Any]) -> Dictionary:
    """Return a dict that gets pairs, too."""
    for key, value in pairs:
        at = find(own.dict_keys, key)
        if at < 0:
            own.dict_keys.append(key)
            own.dict_values.append(value)
        else:
            own.dict_values[at] = value
    return own


def united(own: Dictionary, other: Dictionary) -> Dictionary:
    """Return a dict that gets what another one has, too."""
    for one in range(len(other.dict_keys)):
        at = find(own.dict_keys, other.dict_keys[one])
        if at < 0:
            own.dict_keys.append(other.dict_keys[one])
            own.dict_values.append(other.dict_values[one])
        else:
            own.dict_values[at] = other.dict_values[one]
    return own


def put(own: Dictionary, key: Any, value: Any) -> None:
    """Do ``own[key] = value``."""
    at = find(own.dict_keys, key)
    if at < 0:
        own.dict_keys.append(key)
        own.dict_values.append(value)
    else:
        own.dict_values[at] = value


def item(own: Dictionary, key: Any) -> Any:
    """Return ``own[key]``."""
    at = find(own.dict_keys, key)
    if at < 0:
        raise KeyError("a key that the dict lacks")
    return own.dict_values[at]


def has(key: Any, own: Dictionary) -> bool:
    """Return ``key in own``."""
    return find(own.dict_keys, key) >= 0


def got(own: Dictionary, key: Any, otherwise: Any) -> Any:
    """Return ``own.get(key, otherwise)``."""
    at = find(own.dict_keys, key)
    if at < 0:
        return otherwise
    return own.dict_values[at]


def got_or_none(own: Dictionary, key: Any) -> Any:
    """Return ``own.get(key)``."""
    at = find(own.dict_keys, key)
    if at < 0:
        return None
    return own.dict_values[at]


def kept(own: Dictionary, key: Any, otherwise: Any) -> Any:
    """Return ``own.setdefault(key, otherwise)``."""
    at = find(own.dict_keys, key)
    if at < 0:
        own.dict_keys.append(key)
        own.dict_values.append(otherwise)
        return otherwise
    return own.dict_values[at]


def taken(own: Dictionary, key: Any) -> Any:
    """Return ``own.pop(key)``."""
    at = find(own.dict_keys, key)
    if at < 0:
        raise KeyError("a key that the dict lacks")
    own.dict_keys.pop(at)
    return own.dict_values.pop(at)


def taken_or(own: Dictionary, key: Any, otherwise: Any) -> Any:
    """Return ``own.pop(key, otherwise)``."""
    at = find(own.dict_keys, key)
    if at < 0:
        return otherwise
    own.dict_keys.pop(at)
    return own.dict_values.pop(at)


def last_taken(own: Dictionary) -> Any:
    """Return ``own.popitem()``."""
    if len(own.dict_keys) == 0:
        raise KeyError("popitem(): the dict is empty")
    return own.dict_keys.pop(), own.dict_values.pop()


def first_taken(own: Dictionary) -> Any:
    """Return ``own.popitem(last=False)`` of an OrderedDict."""
    if len(own.dict_keys) == 0:
        raise KeyError("dictionary is empty")
    return own.dict_keys.pop(0), own.dict_values.pop(0)


def moved_last(own: Dictionary, key: Any) -> None:
    """Do ``own.move_to_end(key)`` of an OrderedDict."""
    at = find(own.dict_keys, key)
    if at < 0:
        raise KeyError("a key that the dict lacks")
    own.dict_keys.append(own.dict_keys.pop(at))
    own.dict_values.append(own.dict_values.pop(at))


def moved_first(own: Dictionary, key: Any) -> None:
    """Do ``own.move_to_end(key, last=False)`` of an OrderedDict."""
    at = find(own.dict_keys, key)
    if at < 0:
        raise KeyError("a key that the dict lacks")
    own.dict_keys = [own.dict_keys.pop(at), *own.dict_keys]
    own.dict_values = [own.dict_values.pop(at), *own.dict_values]


def merged(own: Dictionary, other: Dictionary) -> Dictionary:
    """Return ``own | other``."""
    return united(copied(own), other)


def same(own: Dictionary, other: Dictionary) -> bool:
    """Return ``own == other``."""
    if len(own.dict_keys) != len(other.dict_keys):
        return False
    for one in range(len(own.dict_keys)):
        at = find(other.dict_keys, own.dict_keys[one])
        if at < 0 or own.dict_values[one] != other.dict_values[at]:
            return False
    return True


def differs(own: Dictionary, other: Dictionary) -> bool:
    """Return ``own != other``."""
    return not same(own, other)


def in_order(own: Dictionary) -> Dictionary:
    """Return a dict that is an OrderedDict."""
    return own


def clear(own: Dictionary) -> None:
    """Do ``own.clear()``."""
    own.dict_keys = []
    own.dict_values = []


def keys(own: Dictionary) -> list[Any]:
    """Return ``list(own)``."""
    return list(own.dict_keys)


def values(own: Dictionary) -> list[Any]:
    """Return ``list(own.values())``."""
    return list(own.dict_values)


def pairs(own: Dictionary) -> list[Any]:
    """Return ``list(own.items())``."""
    found: list[Any] = []
    for at in range(len(own.dict_keys)):
        found.append((own.dict_keys[at], own.dict_values[at]))
    return found


OF_ENDS: dict[tuple[str, int, bool], Callable[..., Any]] = {  # by whether it is the last one
    ("popitem", 0, True): last_taken,
    ("popitem", 0, False): first_taken,
    ("move_to_end", 1, True): moved_last,
    ("move_to_end", 1, False): moved_first,
}
OPERATORS: dict[str, Callable[..., Any]] = {"or_": merged, "eq": same, "ne": differs}  # by names in operator
VIEWS = {"keys": keys, "values": values, "items": pairs}
METHODS: dict[tuple[str, int], Callable[..., Any]] = {  # by how many arguments there are
    ("get", 1): got_or_none,
    ("get", 2): got,
    ("setdefault", 2): kept,
    ("pop", 1): taken,
    ("pop", 2): taken_or,
    ("popitem", 0): last_taken,
    ("move_to_end", 1): moved_last,
    ("update", 1): united,
    ("copy", 0): copied,
    ("clear", 0): clear,
    **{(name, 0): function for name, function in VIEWS.items()},
}
