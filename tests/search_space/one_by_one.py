"""The tasks of a library's loops, run one after the other in any order, and which of them write something."""

from __future__ import annotations

import contextlib
import ctypes
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np


class _Environment(ctypes.Structure):
    _fields_ = (("sync_handle", ctypes.c_void_p), ("num_task", ctypes.c_int32))


_BODY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Environment), ctypes.c_void_p)
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, _BODY, ctypes.c_void_p, ctypes.c_int)


@contextlib.contextmanager
def one_by_one(file: Path, num_tasks: int, outputs: Sequence[Any], seed: int = 0) -> Iterator[list[int]]:
    """Run the loops of a loaded library in so many tasks, in an order by chance.

    Yields
    ------
    list of int
        Grows with each loop: how many of its tasks changed some output.
    """
    counts: list[int] = []
    rng = random.Random(seed)

    def launch(body: Any, data: Any, _: int) -> int:
        environment, writers = _Environment(None, num_tasks), 0
        for task in rng.sample(range(num_tasks), num_tasks):
            before = [output.copy() for output in outputs]
            assert body(task, ctypes.byref(environment), data) == 0
            same = [np.array_equal(a, b, equal_nan=True) for a, b in zip(before, outputs, strict=True)]
            writers += not all(same)
        counts.append(writers)
        return 0

    pointer = ctypes.c_void_p.in_dll(ctypes.CDLL(str(file)), "__TVMBackendParallelLaunch")
    kept, function = pointer.value, _LAUNCH(launch)
    pointer.value = ctypes.cast(function, ctypes.c_void_p).value
    try:
        yield counts
    finally:
        pointer.value = kept
