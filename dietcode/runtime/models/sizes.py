"""Sizes that steps tell: checked when they are known, and what follows them prepared once for each value."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from dietcode.errors import ShapeError
from dietcode.graph.extent import Extent
from dietcode.runtime.models.executable import Executable, HostStep

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


@dataclass(frozen=True)
class SizeBounds:
    """What a size that a step tells may be.

    Attributes
    ----------
    name : str
        Of the size, with the line of the model's source where that is known.
    low, high : int
    """

    name: str
    low: int
    high: int

    def check(self, count: int) -> None:
        """Raise a ShapeError for a size out of bounds."""
        if not self.low <= count <= self.high:
            allowed = f"{self.low}" if self.low == self.high else f"{self.low}…{self.high}"
            raise ShapeError(f"{self.name} is {count}; allowed: {allowed}")


def size_bounds(
    executable: Executable, binding: Mapping[str, int], step: HostStep, unbound: str
) -> SizeBounds:
    """Return the bounds of the size that a step tells.

    Parameters
    ----------
    executable : Executable
    binding : mapping of str to int
        Of the dimensions that are known.
    step : HostStep
    unbound : str
        The dimension that it tells; empty where its size follows from those that are known.
    """
    size: Extent = step.attributes["size"]
    ranges = {**executable.ranges, **{name: (value, value) for name, value in binding.items()}}
    low, high = (executable.sizes[unbound] if unbound else size).bounds(ranges)
    if unbound:
        own = executable.ranges[unbound]
        low, high = own[0], min(own[1], high)
    return SizeBounds(str(size) + (f" ({step.source})" if step.source else ""), low, high)
