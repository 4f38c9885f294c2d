"""The memory of a model's values: one piece, in which storages lie one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dietcode.graph.tensor_type import TensorType
from dietcode.runtime.models.executable import ALIGNMENT, Executable

Array: TypeAlias = NDArray[Any]


class StorageMemory:
    """The bytes that all storages of a model lie in; it grows, and is never shared by two calls at once."""

    def __init__(self) -> None:
        self._bytes, self._begin = np.empty(0, np.uint8), 0
        self.generation = 0

    def reserve(self, num_bytes: int) -> None:
        """Make it at least so large; what lies in it is lost where it grows."""
        if num_bytes > len(self._bytes) - ALIGNMENT:
            self._bytes = np.empty(0, np.uint8)  # the old one is given back first
            self._bytes = np.empty(num_bytes + ALIGNMENT, np.uint8)
            self._begin = -self._bytes.ctypes.data % ALIGNMENT
            self.generation += 1

    @property
    def address(self) -> int:
        """Where it begins."""
        return int(self._bytes.__array_interface__["data"][0]) + self._begin

    def view(self, offset: int, type_: TensorType, shape: tuple[int, ...]) -> Array:
        """Return an array at an offset."""
        return np.ndarray(shape, type_.dtype, self._bytes, self._begin + offset)


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
