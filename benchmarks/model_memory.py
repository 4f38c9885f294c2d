"""What planning a model's memory saves (Nimble, Section 3.3 and 5.3): allocations, bytes and time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dietcode.graph.signature import flatten_arguments
from dietcode.runtime.models.executable import Executable
from dietcode.runtime.models.storages import StorageMemory, storage_offsets

_PAGE = 4096
_READINGS = 50


def planned(own: Any, args: Sequence[Any]) -> dict[str, Any]:
    """Return what a call at some shapes allocates for values between its steps, with and without a plan.

    Without one, each value has a buffer of its own in each call. With it, values that live at different times
    share a storage, all storages are one piece of memory, and later calls of shapes that are no larger
    allocate nothing. A buffer that no kernel has written has no pages yet, so that each is timed untouched,
    and with every page written once.

    Parameters
    ----------
    own : dietcode.runtime.models.model.Model
    args : sequence
        Of a call.
    """
    executable: Executable = own.executable
    given = flatten_arguments(executable.signature, args, {})
    binding = own.guard.bind(tuple(tuple(given[name].shape) for name in executable.inputs))
    sizes = [_bytes_of(executable, name, binding) for name in executable.storage_of]
    _, num_bytes = storage_offsets(executable, binding)

    def apart(touch: bool) -> None:
        buffers = [np.empty(size, np.uint8) for size in sizes]
        if touch:
            for one in buffers:
                one[::_PAGE] = 0

    def together(touch: bool) -> None:
        memory = StorageMemory()
        memory.reserve(num_bytes)
        if touch:
            memory.view(0, np.dtype(np.uint8), (num_bytes,))[::_PAGE] = 0

    return {
        "values": len(sizes),
        "storages": len(executable.storage_sizes),
        "bytes_apart": sum(sizes),
        "bytes": num_bytes,
        "secs_apart": _secs(lambda: apart(False)),
        "secs_apart_touched": _secs(lambda: apart(True)),
        "secs_first": _secs(lambda: together(False)),
        "secs_first_touched": _secs(lambda: together(True)),
    }


def _bytes_of(executable: Executable, name: str, binding: dict[str, int]) -> int:
    """Return the bytes of a value; sizes that steps set count as at most."""
    type_ = executable.type_of(name)
    ranges = executable.ranges | {known: (value, value) for known, value in binding.items()}
    extents = [extent.bounds(ranges)[1] for extent in type_.shape]
    return int(np.prod(extents, dtype=np.int64)) * np.dtype(type_.dtype).itemsize


def _secs(call: Callable[[], None]) -> float:
    readings = []
    for _ in range(_READINGS):
        begin = time.perf_counter()
        call()
        readings.append(time.perf_counter() - begin)
    return float(np.median(readings))
