"""Values that lie in another one: parts of a concatenation, written where it needs them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dietcode.errors import LibraryError
from dietcode.graph.extent import Extent
from dietcode.runtime.models.executable import Executable, HostStep

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class PlacedPart:
    """Elements of another value, which follow each other there.

    Attributes
    ----------
    name, whole : str
        The value, and the one that it lies in.
    begin : int
        Of its first element.
    shape : tuple of int
    """

    name: str
    whole: str
    begin: int
    shape: tuple[int, ...]

    def view(self, whole: Array) -> Array:
        """Return the part of an array, which is contiguous.

        Raises
        ------
        LibraryError
            It is not as large as the steps of the model say.
        """
        end = self.begin + math.prod(self.shape)
        if end > whole.size:
            raise LibraryError(f"model.json: {self.name[:40]!r} does not lie in {self.whole[:40]!r}")
        return whole.reshape(-1)[self.begin : end].reshape(self.shape)


def placed_parts(
    executable: Executable, shape_of: Callable[[tuple[Extent, ...]], tuple[int, ...]]
) -> Iterator[tuple[str, Sequence[PlacedPart]]]:
    """Yield each whole, with its parts.

    `shape_of` gives a shape of extents as numbers, for the binding of a call.
    """
    for step in executable.steps:
        if isinstance(step, HostStep) and step.placed:
            (whole,), begin, parts = step.results, 0, []
            for name in step.placed:
                shape = shape_of(executable.values[name].shape)
                parts.append(PlacedPart(name, whole, begin, shape))
                begin += math.prod(shape)
            yield whole, parts
