"""Sizes that steps tell: checked when they are known, and what follows them prepared once for each value."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from dietcode.errors import ShapeError

MAX_TAILS = 64
Tail = TypeVar("Tail")


class Continuations(Generic[Tail]):
    """What was prepared for values of sizes, the last `MAX_TAILS` of them."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Tail] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Tail]) -> Tail:
        """Return what was made for a key, or make it."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = make()
            if len(self._known) > MAX_TAILS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return found


def bounded(name: str, low: int, high: int, source: str) -> Callable[[int], None]:
    """Return a check of a size, which raises a ShapeError for one out of bounds."""
    where = f" ({source})" if source else ""
    allowed = f"{low}" if low == high else f"{low}…{high}"

    def check(count: int) -> None:
        if not low <= count <= high:
            raise ShapeError(f"{name}{where} is {count}; allowed: {allowed}")

    return check
