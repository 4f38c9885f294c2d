"""What Python does with an order: sorted lists, smallest and largest items, heaps, places in sorted lists.

These functions are compiled as those of `dietcode.programs.lists` are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def place_before(items: Sequence[Any], one: Any) -> int:
    """Return ``bisect.bisect_left(items, one)``."""
    low = 0
    high = len(items)
    while low < high:
        middle = (low + high) // 2
        if items[middle] < one:
            low = middle + 1
        else:
            high = middle
    return low


def place_behind(items: Sequence[Any], one: Any) -> int:
    """Return ``bisect.bisect_right(items, one)``."""
    low = 0
    high = len(items)
    while low < high:
        middle = (low + high) // 2
        if one < items[middle]:
            high = middle
        else:
            low = middle + 1
    return low


def insert_behind(items: list[Any], one: Any) -> None:
    """Do ``bisect.insort(items, one)``."""
    at = len(items)
    items.append(one)
    while at > 0 and one < items[at - 1]:
        items[at] = items[at - 1]
        at = at - 1
    items[at] = one


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


def push(heap: list[Any], one: Any) -> None:
    """Do ``heapq.heappush(heap, one)``: it rises above larger ones."""
    at = len(heap)
    heap.append(one)
    while at > 0 and one < heap[(at - 1) // 2]:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = one


def pop_smallest(heap: list[Any]) -> Any:
    """Return ``heapq.heappop(heap)``: the last one takes the place of the smallest."""
    one = heap.pop()
    if len(heap) == 0:
        return one
    return replace_smallest(heap, one)


def replace_smallest(heap: list[Any], one: Any) -> Any:
    """Return ``heapq.heapreplace(heap, one)``: it sinks along smaller ones, and rises again."""
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


def push_and_pop(heap: list[Any], one: Any) -> Any:
    """Return ``heapq.heappushpop(heap, one)``, which is `replace_smallest` where one is not the smallest."""
    if len(heap) == 0 or not heap[0] < one:
        return one
    return replace_smallest(heap, one)


def as_heap(items: list[Any]) -> None:
    """Do ``heapq.heapify(items)``: each one from the middle back sinks as `replace_smallest` has it."""
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


def smallest_object(items: Sequence[Any]) -> Any:
    """Return the first of the smallest objects."""
    return smallest_by(items, items)


def largest_object(items: Sequence[Any]) -> Any:
    """Return the first of the largest objects."""
    return largest_by(items, items)


CHANGING = (
    push,
    pop_smallest,
    replace_smallest,
    push_and_pop,
    as_heap,
    insert_behind,
)  # which a list itself is given to
BY_KEYS = (ordered_by, smallest_by, largest_by)  # of which items are as many as keys
