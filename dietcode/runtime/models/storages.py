"""The memory of a model's values: one piece, in which storages lie one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dietcode.runtime.models.executable import ALIGNMENT, Executable

Array: TypeAlias = NDArray[Any]


class StorageMemory:
    """The bytes that all storages of a model lie in; it grows, and is never shared by two calls at once."""

    def __init__(self) -> None:
        self._bytes, self._begin = np.empty(0, np.uint8), 0
        self.generation = 0

    def reserve(self, num_bytes: int) -> None:
        """Make it at least so large; what lies in it is lost where it grows."""
        if num_bytes > self.num_bytes:
            self._bytes = np.empty(0, np.uint8)  # the old one is given back first
            self._bytes = np.empty(num_bytes + ALIGNMENT, np.uint8)
            self._begin = -self._bytes.ctypes.data % ALIGNMENT
            self.generation += 1

    @property
    def num_bytes(self) -> int:
        """What it was made for."""
        return max(0, len(self._bytes) - ALIGNMENT)

    @property
    def address(self) -> int:
        """Where it begins."""
        return int(self._bytes.__array_interface__["data"][0]) + self._begin

    def view(self, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return an array at an offset."""
        return np.ndarray(shape, dtype, self._bytes, self._begin + offset)


def storage_offsets(executable: Executable, binding: Mapping[str, int]) -> tuple[list[int], int]:
    """Return the offset of each storage, and the bytes of all; sizes that steps set count as at most."""
    offsets, total = [], 0
    ranges = {name: (value, value) for name, value in binding.items()}
    for name, most in executable.sizes.items():  # each follows from those before it
        low, high = executable.ranges[name]
        ranges[name] = (low, max(low, min(high, most.bounds(ranges)[1])))
    for sizes in executable.storage_sizes:
        offsets.append(total)
        if executable.sizes:
            largest = max((size.bounds(ranges)[1] for size in sizes), default=0)
        else:
            largest = max((size.evaluate(binding) for size in sizes), default=0)
        total += -(-largest // ALIGNMENT) * ALIGNMENT
    return offsets, total


def most_bytes(executable: Executable) -> int:
    """Return the bytes of all storages where every dimension is as large as it may be."""
    largest = (
        max((size.bounds(executable.ranges)[1] for size in sizes), default=0)
        for sizes in executable.storage_sizes
    )
    return sum(-(-one // ALIGNMENT) * ALIGNMENT for one in largest)
