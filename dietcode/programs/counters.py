"""Counters that a program makes: dicts of numbers, in the words that programs may have.

These functions are compiled as those of `dietcode.programs.lists` are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dietcode.programs.dictionaries import Dictionary
from dietcode.runtime.programs.instances import find


def counted(items: Sequence[Any]) -> Dictionary:
    """Return ``Counter(items)``."""
    own = Dictionary([], [])
    count_more(own, items)
    return own


def count_more(own: Dictionary, items: Sequence[Any]) -> None:
    """Do ``own.update(items)`` of a Counter."""
    for key in items:
        at = find(own.dict_keys, key)
        if at < 0:
            own.dict_keys.append(key)
            own.dict_values.append(1)
        else:
            own.dict_values[at] = own.dict_values[at] + 1


def commonest(own: Dictionary, many: int) -> list[Any]:
    """Return ``own.most_common(many)`` of a Counter: equal ones as they came."""
    return all_by_number(own)[:many]


def all_by_number(own: Dictionary) -> list[Any]:
    """Return ``own.most_common()`` of a Counter: equal ones as they came."""
    found: list[Any] = []
    for at in range(len(own.dict_keys)):
        place = len(found)
        found.append((own.dict_keys[at], own.dict_values[at]))
        while place > 0 and found[place - 1][1] < own.dict_values[at]:
            found[place] = found[place - 1]
            place = place - 1
        found[place] = (own.dict_keys[at], own.dict_values[at])
    return found


def same_counts(own: Dictionary, other: Dictionary) -> bool:
    """Return ``own == other`` of two Counters: what one lacks it has 0 times."""
    for one in range(len(own.dict_keys)):
        at = find(other.dict_keys, own.dict_keys[one])
        if own.dict_values[one] != (0 if at < 0 else other.dict_values[at]):
            return False
    for one in range(len(other.dict_keys)):
        if find(own.dict_keys, other.dict_keys[one]) < 0 and other.dict_values[one] != 0:
            return False
    return True


def other_counts(own: Dictionary, other: Dictionary) -> bool:
    """Return ``own != other`` of two Counters."""
    return not same_counts(own, other)


def count_all(own: Dictionary, other: Dictionary) -> None:
    """Do ``own.update(other)`` of two Counters."""
    for one in range(len(other.dict_keys)):
        at = find(own.dict_keys, other.dict_keys[one])
        if at < 0:
            own.dict_keys.append(other.dict_keys[one])
            own.dict_values.append(other.dict_values[one])
        else:
            own.dict_values[at] = own.dict_values[at] + other.dict_values[one]


def all_counted(own: Dictionary) -> int:
    """Return ``own.total()`` of a Counter."""
    found = 0
    for one in own.dict_values:
        found = found + one
    return found


METHODS: dict[tuple[str, int], Callable[..., Any]] = {
    ("most_common", 0): all_by_number,
    ("most_common", 1): commonest,
    ("update", 1): count_more,
    ("total", 0): all_counted,
}
OPERATORS: dict[str, Callable[..., Any]] = {"eq": same_counts, "ne": other_counts}
