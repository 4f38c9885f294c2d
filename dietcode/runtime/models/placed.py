"""Values that lie in another one: parts of a concatenation, written where it needs them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dietcode.errors import LibraryError
from dietcode.runtime.models.executable import Executable, HostStep

Array: TypeAlias = NDArray[Any]
Place: TypeAlias = tuple[int, int, tuple[int, ...]]  # elements from one to another, and their shape


def placed_steps(executable: Executable) -> Iterator[HostStep]:
    """Yield the concatenations whose operands lie in the result."""
    for step in executable.steps:
        if isinstance(step, HostStep) and step.placed:
            yield step


def placing(step: HostStep, whole: int, parts: Sequence[int]) -> Callable[[list[Any]], list[Place]]:
    """Return a function of slots: where each part lies in the whole.

    Parameters
    ----------
    step : HostStep
        One of `placed_steps`.
    whole : int
        The slot of the shape of its result.
    parts : sequence of int
        The slots of the shapes of its parts.

    Raises
    ------
    LibraryError
        By the function: a part is not as large as the steps of the model say.
    """

    def places(slots: list[Any]) -> list[Place]:
        found, begin, size = [], 0, math.prod(slots[whole])
        for name, number in zip(step.placed, parts, strict=True):
            end = begin + math.prod(slots[number])
            if end > size:
                raise LibraryError(f"model.json: {name[:40]!r} does not lie in {step.results[0][:40]!r}")
            found.append((begin, end, slots[number]))
            begin = end
        return found

    return places


def part_of(whole: Array, place: Place) -> Array:
    """Return the part of an array, which is contiguous."""
    begin, end, shape = place
    return whole.reshape(-1)[begin:end].reshape(shape)
