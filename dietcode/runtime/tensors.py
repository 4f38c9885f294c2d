"""Tensors of a call: accepted from NumPy, torch or DLPack, checked, never copied."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi

from dietcode.errors import TensorError

DTYPES = {"float32": np.dtype(np.float32)}


@dataclass(frozen=True)
class Packed:
    """A constant tensor in a library's packed layout; made by ``lib.pack``.

    Attributes
    ----------
    name : str
        The tensor.
    shape : tuple of int
        Shape of the tensor before packing.
    layout : str
        Digest-free name of the layout, for example ``nk -> [n/16, k, n%16]``.
    data : float32 array [batch, panels, reduction, lanes]
        64-byte aligned.
    """

    name: str
    shape: tuple[int, ...]
    layout: str
    data: np.ndarray[Any, np.dtype[np.float32]]


def accept(name: str, value: Any, dtype: str) -> tuple[Any, tuple[int, ...]]:
    """What the runtime takes for `value`, and its shape.

    Raises
    ------
    TensorError
        Wrong kind, dtype, device or layout; or a torch tensor that requires grad.
    """
    if isinstance(value, np.ndarray):
        if value.dtype != DTYPES[dtype]:
            raise TensorError(f"{name}: dtype {value.dtype}; allowed: {dtype}")
        if not value.flags.c_contiguous:
            raise TensorError(f"{name}: not contiguous; pass numpy.ascontiguousarray({name})")
        return _readable(value), value.shape
    if getattr(value, "requires_grad", False):
        raise TensorError(f"{name}: requires grad, and this call records no gradient; pass {name}.detach()")
    if hasattr(value, "is_contiguous") and hasattr(value, "device"):
        return _accept_torch(name, value, dtype)
    if hasattr(value, "__dlpack__"):
        return _accept_dlpack(name, value, dtype)
    raise TensorError(f"{name}: {type(value).__name__}; allowed: a NumPy array, a torch tensor, or DLPack")


def _readable(value: np.ndarray[Any, Any]) -> Any:
    """A read-only array exports no DLPack; the kernel only reads it, so lend it a writable view."""
    if value.flags.writeable:
        return value
    interface = dict(value.__array_interface__)
    interface["data"] = (interface["data"][0], False)

    class _Lender:
        __array_interface__ = interface
        owner = value

    return np.asarray(_Lender())


def _accept_torch(name: str, value: Any, dtype: str) -> tuple[Any, tuple[int, ...]]:
    if str(value.dtype) != f"torch.{dtype}":
        raise TensorError(f"{name}: dtype {value.dtype}; allowed: {dtype}")
    if value.device.type != "cpu":
        raise TensorError(f"{name}: on {value.device}; this library runs on cpu, pass {name}.cpu()")
    if getattr(value, "is_mkldnn", False):  # opaque: it says that it is contiguous, and has no address
        raise TensorError(f"{name}: in oneDNN's opaque layout; pass {name}.to_dense()")
    if not value.is_contiguous():
        raise TensorError(f"{name}: not contiguous; pass {name}.contiguous()")
    return value, tuple(value.shape)


def _accept_dlpack(name: str, value: Any, dtype: str) -> tuple[Any, tuple[int, ...]]:
    try:
        tensor = tvm_ffi.from_dlpack(value)
    except Exception as error:
        raise TensorError(f"{name}: its DLPack export failed: {str(error).splitlines()[-1]}") from error
    if str(tensor.dtype) != dtype:
        raise TensorError(f"{name}: dtype {tensor.dtype}; allowed: {dtype}")
    if str(tensor.device.type) != "cpu" and getattr(tensor.device, "dlpack_device_type", lambda: 1)() != 1:
        raise TensorError(f"{name}: on {tensor.device}; this library runs on cpu")
    if not tensor.is_contiguous():
        raise TensorError(f"{name}: not contiguous")
    return tensor, tuple(int(extent) for extent in tensor.shape)


def span(tensor: Any) -> tuple[int, int]:
    """Address of the first byte of what `accept` returned, and of the first byte after it."""
    if isinstance(tensor, np.ndarray):
        first: int = tensor.__array_interface__["data"][0]
        return first, first + tensor.nbytes
    first = int(tensor.data_ptr())
    return first, first + math.prod(tensor.shape) * DTYPES["float32"].itemsize


def aligned_empty(shape: tuple[int, ...], alignment: int = 64) -> np.ndarray[Any, np.dtype[np.float32]]:
    """An uninitialised float32 array whose first element lies on a multiple of `alignment` bytes."""
    count = int(np.prod(shape, dtype=np.int64))
    raw = np.empty(count + alignment // 4, dtype=np.float32)
    offset = (-raw.ctypes.data % alignment) // 4
    return raw[offset : offset + count].reshape(shape)
