"""What PyTorch does with stacks of any length, in the words that programs may have: lists of their rows.

These functions are compiled as those of `dietcode.programs.lists` are. Sums and largest ones of tensors are
taken two by two, so that n of them have a depth of log n.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from dietcode.programs.lists import insert

with contextlib.suppress(ModuleNotFoundError):  # who has a program has PyTorch, too
    import torch


def folded(function: Callable[[Any, Any], Any], items: Sequence[Any]) -> Any:
    """Return what an associative function of two makes of all: the sum, the largest, the smallest."""
    if len(items) == 0:
        raise ValueError("a sum, a largest or a smallest of no tensors; give one at least")
    level = items
    while len(level) > 1:
        above: list[Any] = []
        for at in range(0, len(level) - 1, 2):
            above.append(function(level[at], level[at + 1]))
        if len(level) % 2 == 1:
            above.append(level[len(level) - 1])
        level = above
    return level[0]


def unbound(items: Sequence[Any]) -> list[Any]:
    """Return the rows of tensors, one tensor behind the other, as ``torch.cat`` has them."""
    found: list[Any] = []
    for one in items:
        for row in one.unbind():
            found.append(row)
    return found


def added(items: Sequence[Any]) -> Any:
    """Return the sum of tensors."""
    return folded(torch.add, items)


def mean(items: Sequence[Any]) -> Any:
    """Return the mean of tensors."""
    return added(items) / len(items)


def each(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Return a function of each tensor."""
    return [function(one) for one in items]


def each_before(function: Callable[[Any, Any], Any], items: Sequence[Any], other: Any) -> list[Any]:
    """Return a function of each tensor and another value."""
    return [function(one, other) for one in items]


def each_behind(function: Callable[[Any, Any], Any], other: Any, items: Sequence[Any]) -> list[Any]:
    """Return a function of another value and each tensor."""
    return [function(other, one) for one in items]


def each_of_both(
    function: Callable[[Any, Any], Any], items: Sequence[Any], others: Sequence[Any]
) -> list[Any]:
    """Return a function of the tensors of two lists of one length."""
    return [function(one, other) for one, other in zip(items, others, strict=True)]


def softmax(items: Sequence[Any]) -> list[Any]:
    """Return the softmax over a list of tensors."""
    top = folded(torch.maximum, items)
    powers = [torch.exp(one - top) for one in items]
    whole = added(powers)
    return [one / whole for one in powers]


def log_softmax(items: Sequence[Any]) -> list[Any]:
    """Return the logarithms of the softmax over a list of tensors."""
    top = folded(torch.maximum, items)
    whole = top + torch.log(added([torch.exp(one - top) for one in items]))
    return [one - whole for one in items]


def weighted(weights: Sequence[Any], items: Sequence[Any]) -> Any:
    """Return ``weights @ items``: weights are numbers as tensors."""
    return added([weight * one for weight, one in zip(weights, items, strict=True)])


def best(items: Sequence[Any]) -> int:
    """Return where the first of the largest numbers, each a tensor, is."""
    values = [one.item() for one in items]
    found = 0
    for at, value in enumerate(values):
        if value > values[found]:
            found = at
    return found


def most(row: Any, many: int) -> tuple[list[Any], list[int]]:
    """Return the largest numbers of a row as tensors, the first of equal ones first, and where they are."""
    scores = row.tolist()
    if many < 0 or many > len(scores):
        raise ValueError("topk of more numbers than there are; allowed: from 0 to their number")
    places: list[int] = []
    for at in range(len(scores)):
        place = len(places)
        while place > 0 and scores[places[place - 1]] < scores[at]:
            place = place - 1
        if place < many:
            insert(places, place, at)
        if len(places) > many:
            places.pop()
    return [row[at] for at in places], places


def numbers(items: Sequence[Any]) -> list[float]:
    """Return tensors of one number as numbers."""
    return [one.item() for one in items]


def extreme(function: Callable[[Any, Any], Any], items: Sequence[Any]) -> tuple[Any, None]:
    """Return the largest or smallest of tensors as ``max(dim=0)`` does, but where they are."""
    return folded(function, items), None
