"""Tensors that say they are on a GPU, over memory of the CPU; for the emulated driver alone."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import tvm_ffi

_CODES = {"f": 2, "u": 1}
_BFLOAT16 = 4
_CAPSULE = ctypes.pythonapi.PyCapsule_New
_CAPSULE.restype = ctypes.py_object
_CAPSULE.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_KEPT: list[Any] = []


class _Exporter:
    def __init__(self, managed: _Managed) -> None:
        self.managed = managed

    def __dlpack__(self, **_: Any) -> Any:
        return _CAPSULE(ctypes.addressof(self.managed), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.managed.tensor.device_type, self.managed.tensor.device_id


def on_device(array: Any, index: int = 0, kind: int = 2, dtype: str | None = None) -> Any:
    """A tensor of the runtime over an array's memory, which is kept; its strides may be any."""
    rank = array.ndim
    shape = (ctypes.c_int64 * rank)(*array.shape)
    strides = (ctypes.c_int64 * rank)(*(step // array.itemsize for step in array.strides))
    code = _BFLOAT16 if dtype == "bfloat16" else _CODES[array.dtype.kind]
    tensor = _Tensor(
        array.ctypes.data, kind, index, rank, code, 8 * array.itemsize, 1,
        ctypes.addressof(shape), ctypes.addressof(strides), 0,
    )  # fmt: skip
    managed = _Managed(tensor, None, None)
    _KEPT.append((array, shape, strides, managed))
    return tvm_ffi.from_dlpack(_Exporter(managed))


def aligned(array: Any) -> Any:
    """A copy on a 256-byte boundary, as an allocator of GPU memory gives it."""
    area = np.zeros(array.nbytes + 256, np.uint8)
    start = -area.ctypes.data % 256
    copy = area[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
