"""Iterators that a program makes by ``iter`` and ``itertools.count``, in the words that programs may have.

An iterator of a list has the list itself and a place in it. These functions are compiled as those of
`dietcode.programs.lists` are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class ListIterator:
    """An iterator while samples run, and a record of the program's."""

    iterated: list[Any]
    place: int


@dataclass(eq=False)
class NumberIterator:
    """``itertools.count`` while samples run, and a record of the program's."""

    number: int
    step: int


ListIterator.__name__ = "iterator"  # which records are known by
NumberIterator.__name__ = "itertools.count"
ITERATOR, NUMBERS = (("record", own.__name__) for own in (ListIterator, NumberIterator))  # their kinds


def made(items: Sequence[Any]) -> ListIterator:
    """Return ``iter(items)``."""
    return ListIterator(items, 0)  # type: ignore[arg-type]  # whose items come as they are asked for


def numbers(first: int, step: int) -> NumberIterator:
    """Return ``itertools.count(first, step)``."""
    return NumberIterator(first, step)


def following(own: ListIterator) -> Any:
    """Return ``next(own)``."""
    if own.place >= len(own.iterated):
        raise StopIteration
    found = own.iterated[own.place]
    own.place = own.place + 1
    return found


def following_or(own: ListIterator, otherwise: Any) -> Any:
    """Return ``next(own, otherwise)``."""
    if own.place >= len(own.iterated):
        return otherwise
    found = own.iterated[own.place]
    own.place = own.place + 1
    return found


def rest(own: ListIterator) -> list[Any]:
    """Return ``list(own)``."""
    found: list[Any] = []
    while own.place < len(own.iterated):
        found.append(own.iterated[own.place])
        own.place = own.place + 1
    return found


def following_number(own: NumberIterator) -> int:
    """Return ``next(own)`` of numbers."""
    found = own.number
    own.number = own.number + own.step
    return found
