"""Tensors of a library's runtime over memory of a GPU, by DLPack; needs no PyTorch."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import tvm_ffi

CUDA = 2  # kDLCUDA
_DTYPES = {  # DLPack's codes, and bits
    "float32": (2, 32),
    "float64": (2, 64),
    "float16": (2, 16),
    "bfloat16": (4, 16),
    "int32": (0, 32),
}
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


class _Exporter:
    def __init__(self, managed: _Managed) -> None:
        self.managed = managed

    def __dlpack__(self, **_: Any) -> Any:
        return _CAPSULE(ctypes.addressof(self.managed), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.managed.tensor.device_type, self.managed.tensor.device_id


_KEPT: list[Any] = []  # what tensors point to; they are few, and a process that measures does not live long


def tensor_at(
    address: int,
    shape: Sequence[int],
    dtype: str,
    index: int = 0,
    *,
    strides: Sequence[int] | None = None,
    kind: int = CUDA,
) -> Any:
    """Return a tensor over memory that its owner keeps.

    Parameters
    ----------
    shape, strides : sequence of int
        In elements; by default the strides of a contiguous tensor.
    dtype : str
        float64, float32, float16, bfloat16 or int32.
    index, kind : int
        The device, and its kind by DLPack's numbers.
    """
    if strides is None:
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    code, bits = _DTYPES[dtype]
    own_shape, own_strides = ((ctypes.c_int64 * len(shape))(*values) for values in (shape, strides))
    tensor = _Tensor(
        address,
        kind,
        index,
        len(shape),
        code,
        bits,
        1,
        ctypes.addressof(own_shape),
        ctypes.addressof(own_strides),
        0,
    )
    managed = _Managed(tensor, None, None)
    _KEPT.append((own_shape, own_strides, managed))
    return tvm_ffi.from_dlpack(_Exporter(managed))
