"""The memory of outputs: what callers let go of is taken again by later calls.

The system gives large memory with a page fault for each page, which takes longer than what fills it.
"""

from __future__ import annotations

import math
import sys
import sysconfig
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

LARGE_BYTES = 1 << 17  # below it the allocator of the process keeps what is given back
_ALIGNMENT = 64
_ROOM = 8  # one part in so many is to spare, so that outputs may grow from call to call
_KEPT_CALLS = 2  # a loop that gives outputs as inputs holds those of one call during the next
# Whether nobody else can come to refer to memory while we look whether somebody does.
_IS_COUNTED = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")


class OutputMemory:
    """Memory of outputs of calls that follow each other; never of two calls at once.

    An array has its memory until nobody refers to it, to a view of it or to a tensor made of it.
    """

    def __init__(self) -> None:
        self._kept: list[Array] = []
        self._used: list[int] = []  # of each, the last call that took it
        self._call = 0

    def begin_call(self) -> None:
        """Give memory back that the last calls did not take."""
        self._call += 1
        is_kept = [self._call - used <= _KEPT_CALLS for used in self._used]
        if not all(is_kept):
            self._kept = [one for one, own in zip(self._kept, is_kept, strict=True) if own]
            self._used = [one for one, own in zip(self._used, is_kept, strict=True) if own]

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array that nobody else has."""
        num_bytes = math.prod(shape) * dtype.itemsize
        if num_bytes < LARGE_BYTES or not _IS_COUNTED:
            return np.empty(shape, dtype)
        number = self._free(num_bytes)
        if number is None:
            number = len(self._kept)
            self._kept.append(np.empty(num_bytes + num_bytes // _ROOM + _ALIGNMENT, np.uint8))
            self._used.append(0)
        whole = self._kept[number]
        self._used[number] = self._call
        address: int = whole.__array_interface__["data"][0]
        return np.ndarray(shape, dtype, whole, -address % _ALIGNMENT)

    def _free(self, num_bytes: int) -> int | None:
        """Return the number of memory that nobody refers to and that is not much too large."""
        for number in range(len(self._kept)):
            room = self._kept[number].nbytes - _ALIGNMENT
            if num_bytes <= room <= 2 * num_bytes and _references(self._kept, number) == _NOBODY:
                return number
        return None


def _references(kept: list[Array], number: int) -> int:
    return sys.getrefcount(kept[number])


_NOBODY = _references([np.empty(0)], 0)  # where a list alone refers to an array
