"""Tensors that say they are on a GPU, over memory of the CPU; for the emulated driver alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from dietcode.measure.device_tensors import CUDA, tensor_at

_KEPT: list[Any] = []


def on_device(array: Any, index: int = 0, kind: int = CUDA, dtype: str | None = None) -> Any:
    """A tensor of the runtime over an array's memory, which is kept; its strides may be any."""
    _KEPT.append(array)
    strides = [step // array.itemsize for step in array.strides]
    name = dtype or str(array.dtype)
    return tensor_at(array.ctypes.data, array.shape, name, index, strides=strides, kind=kind)


def aligned(array: Any) -> Any:
    """A copy on a 256-byte boundary, as an allocator of GPU memory gives it."""
    area = np.zeros(array.nbytes + 256, np.uint8)
    start = -area.ctypes.data % 256
    copy = area[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
