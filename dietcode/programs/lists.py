"""What Python and PyTorch do with lists of any length, in the words that programs may have.

These functions are compiled like those of a program's file, into each place that uses them; `stacks` says
where. Sums and largest ones of tensors are taken two by two, so that n of them have a depth of log n.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

with contextlib.suppress(ModuleNotFoundError):  # who has a program has PyTorch, too
    import torch

# Their text is read as that of programs is, so they are written with loops.


def contains(one: Any, items: Sequence[Any]) -> bool:
    """Return ``one in items``."""
    for own in items:  # noqa: SIM110
        if own == one:
            return True
    return False


def total(items: Sequence[Any]) -> Any:
    """Return the sum of numbers."""
    found = 0
    for one in items:
        found = found + one
    return found


def smallest(items: Sequence[Any]) -> Any:
    """Return the first of the smallest numbers."""
    if len(items) == 0:
        raise ValueError("min() of an empty list")
    found = items[0]
    for one in items:
        found = min(found, one)
    return found


def largest(items: Sequence[Any]) -> Any:
    """Return the first of the largest numbers."""
    if len(items) == 0:
        raise ValueError("max() of an empty list")
    found = items[0]
    for one in items:
        found = max(found, one)
    return found


def total_from(items: Sequence[Any], start: Any) -> Any:
    """Return ``sum(items, start)``."""
    found = start
    for one in items:
        found = found + one
    return found


def some(items: Sequence[Any]) -> bool:
    """Return ``any(items)``."""
    for one in items:  # noqa: SIM110
        if one:
            return True
    return False


def every(items: Sequence[Any]) -> bool:
    """Return ``all(items)``."""
    for one in items:  # noqa: SIM110
        if not one:
            return False
    return True


def ordered(items: Sequence[Any]) -> list[Any]:
    """Return ``sorted(items)``."""
    return ordered_by(items, items, False)


def ordered_by(items: Sequence[Any], keys: Sequence[Any], backwards: bool) -> list[Any]:
    """Return items in the order of their keys, equal ones as they were: sorted runs are merged two by two."""
    many = len(items)
    order: list[int] = list(range(many))
    width = 1
    while width < many:
        merged: list[int] = []
        begin = 0
        while begin < many:
            left = begin
            middle = min(begin + width, many)
            right = middle
            end = min(begin + 2 * width, many)
            while left < middle and right < end:
                is_right = (
                    keys[order[left]] < keys[order[right]]
                    if backwards
                    else keys[order[right]] < keys[order[left]]
                )
                if is_right:
                    merged.append(order[right])
                    right = right + 1
                else:
                    merged.append(order[left])
                    left = left + 1
            while left < middle:
                merged.append(order[left])
                left = left + 1
            while right < end:
                merged.append(order[right])
                right = right + 1
            begin = end
        order = merged
        width = 2 * width
    found: list[Any] = []
    for at in order:
        found.append(items[at])
    return found


def smallest_by(items: Sequence[Any], keys: Sequence[Any]) -> Any:
    """Return the first of the items with the smallest key."""
    if len(items) == 0:
        raise ValueError("min() of an empty list")
    best = 0
    for at in range(1, len(items)):
        if keys[at] < keys[best]:
            best = at
    return items[best]


def largest_by(items: Sequence[Any], keys: Sequence[Any]) -> Any:
    """Return the first of the items with the largest key."""
    if len(items) == 0:
        raise ValueError("max() of an empty list")
    best = 0
    for at in range(1, len(items)):
        if keys[best] < keys[at]:
            best = at
    return items[best]


def overwrite(items: list[Any], others: Sequence[Any]) -> None:
    """Do ``items[:] = others``, of as many."""
    for at in range(len(items)):
        items[at] = others[at]


def stepped(items: Sequence[Any], low: int | None, high: int | None, step: int) -> list[Any]:
    """Return ``items[low:high:step]``."""
    many = len(items)
    begin = low
    end = high
    if begin is None:
        begin = 0 if step > 0 else many - 1
    elif begin < 0:
        begin = begin + many
    if end is None:
        end = many if step > 0 else -1
    elif end < 0:
        end = max(-1, end + many) if step < 0 else end + many
    found: list[Any] = []
    if step > 0:
        at = max(0, begin)
        while at < end and at < many:
            found.append(items[at])
            at = at + step
    else:
        at = min(begin, many - 1)
        while at > end and at >= 0:
            found.append(items[at])
            at = at + step
    return found


def repeated(items: Sequence[Any], times: int) -> list[Any]:
    """Return ``items * times``."""
    found: list[Any] = []
    for _ in range(times):
        for one in items:
            found.append(one)
    return found


def extend(items: list[Any], others: Sequence[Any]) -> None:
    """Do ``items.extend(others)``, which may be the same."""
    many = len(others)
    for at in range(many):
        items.append(others[at])


def extended(items: list[Any], others: Sequence[Any]) -> list[Any]:
    """Do ``items += others``, which may be the same."""
    many = len(others)
    for at in range(many):
        items.append(others[at])
    return items


def removed(items: list[Any], one: Any) -> None:
    """Do ``items.remove(one)``."""
    items.pop(position(items, one))


def position(items: Sequence[Any], one: Any) -> int:
    """Return ``items.index(one)``."""
    for at in range(len(items)):
        if items[at] == one:
            return at
    raise ValueError("it is not in the list")


def count(items: Sequence[Any], one: Any) -> int:
    """Return ``items.count(one)``."""
    found = 0
    for own in items:
        if own == one:
            found = found + 1
    return found


def turn(items: list[Any]) -> None:
    """Do ``items.reverse()``."""
    many = len(items)
    for at in range(many // 2):
        one = items[at]
        items[at] = items[many - 1 - at]
        items[many - 1 - at] = one


def clear(items: list[Any]) -> None:
    """Do ``items.clear()``."""
    while len(items) > 0:
        items.pop()


def insert(items: list[Any], place: int, one: Any) -> None:
    """Do ``items.insert(place, one)``."""
    at = len(items)
    place = max(0, place + at * int(place < 0))
    items.append(one)
    while at > place:
        items[at] = items[at - 1]
        at = at - 1
    items[at] = one


def pop_first(items: list[Any]) -> Any:
    """Return ``items.popleft()`` of a deque."""
    return items.pop(0)


def append_first(items: list[Any], one: Any) -> None:
    """Do ``items.appendleft(one)`` of a deque."""
    at = len(items)
    items.append(one)
    while at > 0:
        items[at] = items[at - 1]
        at = at - 1
    items[0] = one


def push(heap: list[Any], one: Any) -> None:
    """Do ``heapq.heappush(heap, one)``: it rises above larger ones."""
    at = len(heap)
    heap.append(one)
    while at > 0 and one < heap[(at - 1) // 2]:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = one


def pop_smallest(heap: list[Any]) -> Any:
    """Return ``heapq.heappop(heap)``: the last one sinks along smaller ones, and rises again."""
    one = heap.pop()
    if len(heap) == 0:
        return one
    found = heap[0]
    at = 0
    below = 1
    while below < len(heap):
        if below + 1 < len(heap) and not heap[below] < heap[below + 1]:
            below = below + 1
        heap[at] = heap[below]
        at = below
        below = 2 * at + 1
    while at > 0 and one < heap[(at - 1) // 2]:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = one
    return found


def as_heap(items: list[Any]) -> None:
    """Do ``heapq.heapify(items)``: each one from the middle back sinks as `pop_smallest` has it."""
    many = len(items)
    start = many // 2 - 1
    while start >= 0:
        one = items[start]
        at = start
        below = 2 * at + 1
        while below < many:
            if below + 1 < many and not items[below] < items[below + 1]:
                below = below + 1
            items[at] = items[below]
            at = below
            below = 2 * at + 1
        while at > start and one < items[(at - 1) // 2]:
            items[at] = items[(at - 1) // 2]
            at = (at - 1) // 2
        items[at] = one
        start = start - 1


def splice(items: list[Any], low: int, high: int, others: Sequence[Any]) -> None:
    """Do ``items[low:high] = others``."""
    many = len(items)
    low = min(max(low + many * int(low < 0), 0), many)
    high = min(max(high + many * int(high < 0), low), many)
    whole = [*items[:low], *others, *items[high:]]
    clear(items)
    for one in whole:
        items.append(one)


# ---- Tensors of one shape, as torch.stack has them ----


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


def _some_lazily(items: Sequence[Any]) -> bool:
    raise AssertionError("a loop is written in its place")


def _every_lazily(items: Sequence[Any]) -> bool:
    raise AssertionError("a loop is written in its place")


# which a list itself is given to
CHANGING = (
    *(overwrite, removed, turn, clear, insert, splice, append_first),
    *(push, pop_smallest, as_heap),
)
BY_KEYS = (ordered_by, smallest_by, largest_by)  # of which items are as many as keys
LAZY = {"any": _some_lazily, "all": _every_lazily}  # of generators, whose items are computed one by one
