"""Dicts that a program makes, in the words that programs may have: keys and values in two lists.

Keys stay in the order in which they came, as Python has them; an instruction of the machine finds them, one
by one. These functions are compiled as those of `dietcode.programs.lists` are. None calls another one: what
no sample reaches could not be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.programs import lists, sets
from dietcode.runtime.programs.instances import find
from dietcode.runtime.programs.results import DICT_RECORD

KEYS = "whole numbers, bools, texts, None, and tuples of them"


@dataclass(eq=False)
class Dictionary:
    """A dict while samples run, and a record of the program's."""

    dict_keys: list[Any]
    dict_values: list[Any]

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
    """Whether a function is one of `lists`, `sets` or this module, of which each line is compiled."""
    return getattr(function, "__module__", "") in (lists.__name__, sets.__name__, __name__)


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


VIEWS = {"keys": keys, "values": values, "items": pairs}
METHODS: dict[tuple[str, int], Callable[..., Any]] = {  # by how many arguments there are
    ("get", 1): got_or_none,
    ("get", 2): got,
    ("setdefault", 2): kept,
    ("pop", 1): taken,
    ("pop", 2): taken_or,
    ("popitem", 0): last_taken,
    ("update", 1): united,
    ("copy", 0): copied,
    ("clear", 0): clear,
    **{(name, 0): function for name, function in VIEWS.items()},
}
