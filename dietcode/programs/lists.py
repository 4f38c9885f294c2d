"""What Python and PyTorch do with lists of any length, in the words that programs may have.

These functions are compiled like those of a program's file, into each place that uses them; `stacks` says
where.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dietcode.runtime.programs.instances import concatenated

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


def product(items: Sequence[Any]) -> Any:
    """Return ``math.prod(items)``."""
    found = 1
    for one in items:
        found = found * one
    return found


def grouped(items: Sequence[Any], keys: Sequence[Any]) -> list[Any]:
    """Return ``[(key, list(group)) for key, group in itertools.groupby(items, key)]``."""
    found: list[Any] = []
    for at in range(len(items)):
        if len(found) == 0 or keys[at] != found[-1][0]:
            found.append((keys[at], [items[at]]))
        else:
            found[-1][1].append(items[at])
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


def first(items: Sequence[Any]) -> Any:
    """Return ``next(iter(items))``."""
    if len(items) == 0:
        raise StopIteration
    return items[0]


def first_or(items: Sequence[Any], otherwise: Any) -> Any:
    """Return ``next(iter(items), otherwise)``."""
    if len(items) == 0:
        return otherwise
    return items[0]


def every(items: Sequence[Any]) -> bool:
    """Return ``all(items)``."""
    for one in items:  # noqa: SIM110
        if not one:
            return False
    return True


def of_length(items: Sequence[Any], many: int) -> Sequence[Any]:
    """Return items, which have to be so many."""
    if len(items) != many:
        raise TypeError("* of another number of items than samples have")
    return items


def columns(rows: Sequence[Any]) -> list[Any]:
    """Return ``zip(*rows)``, with lists in the place of tuples."""
    found: list[Any] = []
    if len(rows) > 0:
        many = len(rows[0])
        for row in rows:
            many = min(many, len(row))
        for at in range(many):
            found.append([row[at] for row in rows])
    return found


def columns_of_longest(rows: Sequence[Any], filler: Any) -> list[Any]:
    """Return ``list(zip_longest(*rows, fillvalue=filler))``."""
    many = 0
    for row in rows:
        many = max(many, len(row))
    found: list[Any] = []
    for at in range(many):
        found.append(tuple([row[at] if at < len(row) else filler for row in rows]))
    return found


def joined(separator: str, items: Sequence[Any]) -> str:
    """Return ``separator.join(items)``."""
    pieces: list[str] = []
    for at in range(len(items)):
        if at > 0:
            pieces.append(separator)
        pieces.append(items[at])
    return concatenated(pieces)


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


def cycled(items: Sequence[Any], many: int) -> list[Any]:
    """Return ``list(islice(cycle(items), many))``."""
    found: list[Any] = []
    if len(items) > 0:
        for at in range(many):
            found.append(items[at % len(items)])
    return found


def repeated_tuple(items: Sequence[Any], times: int) -> tuple[Any, ...]:
    """Return ``items * times`` of a tuple."""
    return tuple(repeated(items, times))


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


def position_from(items: Sequence[Any], one: Any, low: int) -> int:
    """Return ``items.index(one, low)``."""
    many = len(items)
    for at in range(max(low + many * int(low < 0), 0), many):
        if items[at] == one:
            return at
    raise ValueError("it is not in the list")


def position_between(items: Sequence[Any], one: Any, low: int, high: int) -> int:
    """Return ``items.index(one, low, high)``."""
    many = len(items)
    for at in range(max(low + many * int(low < 0), 0), min(high + many * int(high < 0), many)):
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


def extend_first(items: list[Any], others: Sequence[Any]) -> None:
    """Do ``items.extendleft(others)`` of a deque, which may be the same."""
    many = len(items)
    more = len(others)
    before = list(others)
    for at in range(more):
        items.append(before[at])
    for at in range(many - 1, -1, -1):
        items[at + more] = items[at]
    for at in range(more):
        items[at] = before[more - 1 - at]


def rotate(items: list[Any], steps: int) -> None:
    """Do ``items.rotate(steps)`` of a deque."""
    before = list(items)
    many = len(before)
    for at in range(many):
        items[(at + steps) % many] = before[at]


def rotate_once(items: list[Any]) -> None:
    """Do ``items.rotate()`` of a deque."""
    before = list(items)
    many = len(before)
    for at in range(many):
        items[(at + 1) % many] = before[at]


def last_of(items: Sequence[Any], many: int) -> list[Any]:
    """Return ``list(deque(items, maxlen=many))``."""
    return list(items[max(0, len(items) - many) :])


def append_within(items: list[Any], one: Any, many: int) -> None:
    """Do ``items.append(one)`` of a deque of so many items at most."""
    items.append(one)
    if len(items) > many:
        items.pop(0)


def splice(items: list[Any], low: int, high: int, others: Sequence[Any]) -> None:
    """Do ``items[low:high] = others``."""
    many = len(items)
    low = min(max(low + many * int(low < 0), 0), many)
    high = min(max(high + many * int(high < 0), low), many)
    whole = [*items[:low], *others, *items[high:]]
    clear(items)
    for one in whole:
        items.append(one)


def _some_lazily(items: Sequence[Any]) -> bool:
    raise AssertionError("a loop is written in its place")


def _every_lazily(items: Sequence[Any]) -> bool:
    raise AssertionError("a loop is written in its place")


def _first_lazily(items: Sequence[Any], *otherwise: Any) -> Any:
    raise AssertionError("a loop is written in its place")


CHANGING = (
    overwrite,
    removed,
    turn,
    clear,
    insert,
    splice,
    append_first,
    append_within,
    extend_first,
    rotate,
    rotate_once,
)  # which a list itself is given to
LAZY = {  # of generators, whose items are computed one by one
    "any": _some_lazily,
    "all": _every_lazily,
    "next": _first_lazily,
}
