"""Tensors of a call: accepted from NumPy, torch or DLPack, and checked; copied only where rows lie apart."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import mmap
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tvm_ffi

from dietcode.errors import TensorError
from dietcode.workload.dtypes import STORAGE

DTYPES = STORAGE
BFLOAT16 = "bfloat16"
_LARGE_PAGE = 1 << 21  # bytes, of x86-64 and of most Arm processors


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

    def __repr__(self) -> str:
        """Return one line, without the values."""
        shape = ", ".join(map(str, self.shape))
        return f"Packed({self.name}[{shape}] {self.data.dtype}, {self.layout}, {self.data.nbytes} bytes)"

    def __deepcopy__(self, memo: dict[int, Any]) -> Packed:
        """Return itself, since nothing in it changes."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what `pickle` keeps: the values, which are aligned again where they are read."""
        return _unpickled, (self.name, self.shape, self.layout, self.data)

    @cached_property
    def native(self) -> Any:
        """The same memory as the runtime's tensor, so that no call converts it."""
        return tvm_ffi.from_dlpack(self.data)

    @cached_property
    def span(self) -> tuple[int, int]:
        """The memory span of the data, see `span`."""
        return span(self.data)


def _unpickled(name: str, shape: tuple[int, ...], layout: str, data: np.ndarray[Any, Any]) -> Packed:
    aligned = packed_empty(data.shape)
    aligned[...] = data
    return Packed(name, shape, layout, aligned)


def accept(
    name: str,
    value: Any,
    dtype: str,
    copies: bool = False,
    is_written: bool = False,
    any_layout: bool = False,
) -> tuple[Any, tuple[int, ...]]:
    """Return what the runtime takes for `value`, and its shape.

    Parameters
    ----------
    name, dtype : str
    value : tensor
    copies : bool
        Whether rows that lie apart, as in a slice of wider ones, are copied together.
    is_written : bool
        Whether the code writes to it, so that no copy can take its place.
    any_layout : bool
        Whether whatever is not contiguous is copied.

    Raises
    ------
    TensorError
        Wrong kind, dtype, device or layout; a torch tensor that requires grad; or one that has to be written
        and cannot be.
    """
    check_values(name, value, is_written)
    if isinstance(value, np.ndarray):
        # ml_dtypes gives NumPy a bfloat16; what others may call so has another size.
        if value.dtype.name != BFLOAT16 if dtype == BFLOAT16 else value.dtype != np.dtype(dtype):
            raise TensorError(f"{name}: dtype {value.dtype}; allowed: {dtype}")
        if is_written and not value.flags.writeable:
            raise TensorError(f"{name}: read-only, and it is written; pass a writable array")
        if not value.flags.c_contiguous:
            if any_layout or (copies and _lie_apart(value.shape, value.strides, value.itemsize)):
                return np.ascontiguousarray(value), value.shape
            raise not_contiguous(name, f"numpy.ascontiguousarray({name})", is_written)
        return readable(value), value.shape
    torch = sys.modules.get("torch")  # no torch tensor without it
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach() if value.requires_grad else value
        if value.dtype is not getattr(torch, dtype):
            raise TensorError(f"{name}: dtype {value.dtype}; allowed: {dtype}")
        if not value.is_contiguous():
            if any_layout or (copies and _lie_apart(value.shape, value.stride(), 1)):
                return value.contiguous(), value.shape
            raise not_contiguous(name, f"{name}.contiguous()", is_written)
        return value, value.shape  # a tuple
    if hasattr(value, "__dlpack__"):
        return _accept_dlpack(name, value, dtype, copies, is_written, any_layout)
    raise TensorError(f"{name}: {type(value).__name__}; allowed: a NumPy array, a torch tensor, or DLPack")


def check_values(name: str, value: Any, is_written: bool = False) -> None:
    """Refuse an array or tensor whose values are not what lies in its memory, which has to be the CPU's.

    Parameters
    ----------
    is_written : bool
        Whether the code writes to it: to pass a copy would lose what is written.

    Raises
    ------
    TensorError
        A mask, a gradient, a tangent, a view that stands for other values, a layout of its own, another
        device, or a storage that was made shorter.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        advice = instead(f"{name}.filled(…)", "without a mask", is_written)
        raise TensorError(f"{name}: a masked array, and masks are not looked at; {advice}")
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return
    _refuse_what_only_looks_like_a_tensor(name, value, is_written)
    if value.requires_grad and torch.is_grad_enabled():
        raise TensorError(
            f"{name}: requires grad, and this call records no gradient; "
            f"pass {name}.detach(), or call under torch.no_grad()"
        )
    if not value.is_cpu:
        advice = instead(f"{name}.cpu()", "there", is_written)
        raise TensorError(f"{name}: on {value.device}; this library runs on cpu, {advice}")
    if value.layout is not torch.strided:  # some say that they are contiguous
        advice = instead(f"{name}.to_dense()", "dense", is_written)
        raise TensorError(f"{name}: of layout {value.layout}; {advice}")
    check_storage(name, value)
    if value.data_ptr() == 0 and value.numel():
        raise TensorError(f"{name}: without memory; pass a tensor that has its values")


def ends_in_storage(tensor: Any) -> bool:
    """Return whether a torch tensor's values lie in its storage, which may have been made shorter."""
    count = tensor.numel()
    if count and not tensor.is_contiguous():
        count = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    end = (tensor.storage_offset() + count) * tensor.element_size() if count else 0
    return bool(end <= tensor.untyped_storage().nbytes())


def check_storage(name: str, tensor: Any) -> None:
    """Refuse a torch tensor whose storage lacks some of its values, by a TensorError."""
    if not ends_in_storage(tensor):
        num_bytes = tensor.untyped_storage().nbytes()
        raise TensorError(
            f"{name}: its storage was freed or made shorter, to {num_bytes} bytes; "
            "pass a tensor that has its values"
        )


def instead(copy: str, so: str, is_written: bool) -> str:
    """Return the advice of a refusal; a copy of a tensor that is written would lose the result."""
    return f"it is written, so allocate it {so}" if is_written else f"pass {copy}"


def not_contiguous(name: str, copy: str, is_written: bool) -> TensorError:
    return TensorError(f"{name}: not contiguous; {instead(copy, 'contiguous', is_written)}")


def readable(value: np.ndarray[Any, Any]) -> Any:
    """A read-only array exports no DLPack; the kernel only reads it, so lend it a writable view."""
    if value.flags.writeable:
        return value
    interface = dict(value.__array_interface__)
    interface["data"] = (interface["data"][0], False)

    class _Lender:
        __array_interface__ = interface
        owner = value

    return np.asarray(_Lender())


def _lie_apart(shape: Sequence[int], strides: Sequence[int], element: int) -> bool:
    """Return whether rows are whole and in order, with something between them.

    Parameters
    ----------
    shape, strides : sequence of int
        At least one extent, and none of them 0.
    element : int
        What the strides count an element as.
    """
    known = [stride for extent, stride in zip(shape, strides, strict=True) if extent > 1]
    is_ordered = all(outer >= inner for outer, inner in itertools.pairwise(known))
    return shape[-1] > 1 and strides[-1] == element and is_ordered


def _refuse_what_only_looks_like_a_tensor(name: str, value: Any, is_written: bool) -> None:
    """Refuse tensors whose memory is not what they stand for, and calls that are recorded, not made."""
    torch = sys.modules["torch"]
    if torch._C._get_tracing_state() is not None:
        raise TensorError(
            f"{name}: inside a trace, which records nothing of this call; trace lib.torch_op(…)"
        )
    forward_ad = torch.autograd.forward_ad
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(value).tangent is not None:
        raise TensorError(f"{name}: carries a tangent, and this call computes none; pass its primal")
    if torch._C._functorch.is_functorch_wrapped_tensor(value):
        raise TensorError(f"{name}: inside torch.vmap or torch.func; pass the whole batch as rows instead")
    if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter:
        kind = type(value).__name__
        raise TensorError(
            f"{name}: a subclass of torch.Tensor, {kind}; pass {name}.as_subclass(torch.Tensor), "
            "or call lib.torch_op(…) where PyTorch compiles or exports"
        )
    if value.is_nested:
        advice = instead(f"its rows together, torch.cat({name}.unbind())", "as one", is_written)
        raise TensorError(f"{name}: a nested tensor; {advice}")
    if value.is_neg():
        advice = instead(f"{name}.resolve_neg()", "as a tensor of its own", is_written)
        raise TensorError(f"{name}: a negated view; {advice}")


def overlapping(name: str) -> TensorError:
    """Return the error of what is written and shares memory with another tensor of the call."""
    advice = "pass memory of its own" if name == "out" else "pass a copy of that one"
    return TensorError(f"{name}: overlaps an input or another output; {advice}")


def note_written(tensors: Iterable[Any]) -> None:
    """Tell PyTorch of those of its tensors that change.

    A gradient that was recorded with the values of before is refused then, not computed from those that come.
    """
    torch: Any = sys.modules.get("torch")
    for tensor in tensors if torch is not None else ():
        if isinstance(tensor, torch.Tensor) and not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)


def detached(value: Any) -> Any:
    """Return a torch tensor without its gradient, anything else as it is."""
    torch = sys.modules.get("torch")
    return value.detach() if torch is not None and isinstance(value, torch.Tensor) else value


def _imported(value: Any, is_written: bool) -> Any:
    """Return the runtime's tensor for an object that has DLPack."""
    try:  # the version before 1.0, which cannot say that memory is read-only
        return tvm_ffi.from_dlpack(value)
    except BufferError as error:
        if is_written:
            raise
        try:
            return tvm_ffi.from_dlpack(value.__dlpack__(max_version=(1, 0)))
        except TypeError:  # it has no other version
            raise error from None


def _accept_dlpack(
    name: str, value: Any, dtype: str, copies: bool, is_written: bool, any_layout: bool
) -> tuple[Any, tuple[int, ...]]:
    try:
        tensor = _imported(value, is_written)
    except Exception as error:
        raise TensorError(f"{name}: its DLPack export failed: {str(error).splitlines()[-1]}") from error
    if str(tensor.dtype) != dtype:
        raise TensorError(f"{name}: dtype {tensor.dtype}; allowed: {dtype}")
    if str(tensor.device.type) != "cpu" and getattr(tensor.device, "dlpack_device_type", lambda: 1)() != 1:
        raise TensorError(f"{name}: on {tensor.device}; this library runs on cpu")
    shape = tuple(int(extent) for extent in tensor.shape)
    if not tensor.is_contiguous():
        if dtype != BFLOAT16 and (any_layout or (copies and _lie_apart(shape, tensor.strides, 1))):
            return np.ascontiguousarray(np.from_dlpack(tensor)), shape
        raise not_contiguous(name, "a copy that is", is_written)
    return tensor, shape


def stored(tensor: Any, dtype: str) -> Any:
    """Convert what `accept` returned for generated code: the bits of a bfloat16, or the tensor itself."""
    if dtype != BFLOAT16:
        return tensor
    if isinstance(tensor, np.ndarray):
        return tensor.view(DTYPES[dtype])
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        return tensor.view(torch.uint16)
    shape = tuple(int(extent) for extent in tensor.shape)
    words = (ctypes.c_uint16 * math.prod(shape)).from_address(int(tensor.data_ptr()))  # the caller holds it
    return np.frombuffer(memoryview(words), dtype=DTYPES[dtype]).reshape(shape)


def new_output(shape: tuple[int, ...], dtype: str, arguments: Iterable[Any]) -> Any:
    """A torch tensor where an argument is one, else a NumPy array; not initialised.

    Raises
    ------
    TensorError
        NumPy has no such dtype.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        for value in arguments:
            if isinstance(value, torch.Tensor):
                return value.new_empty(shape, dtype=getattr(torch, dtype))
    if dtype != BFLOAT16:
        return aligned_empty(shape, dtype=dtype)  # vector stores across cache lines cost a few percent
    kind = numpy_bfloat16(", out=torch.empty(…, dtype=torch.bfloat16)")
    return aligned_empty(shape, dtype=dtype).view(kind)


def numpy_bfloat16(instead: str = "") -> Any:
    """Return the dtype that NumPy has from ml_dtypes; raises TensorError where that is not installed.

    Parameters
    ----------
    instead : str
        What else may be passed than torch tensors.
    """
    try:
        from ml_dtypes import bfloat16
    except ImportError as error:
        raise TensorError(
            f"out: NumPy has no bfloat16; pass torch tensors{instead}, or pip install ml_dtypes"
        ) from error
    return bfloat16


def span(tensor: Any) -> tuple[int, int]:
    """Address of the first byte of what `accept` returned, and of the first byte after it."""
    if isinstance(tensor, np.ndarray):
        first: int = tensor.__array_interface__["data"][0]
        return first, first + tensor.nbytes
    first = int(tensor.data_ptr())
    num_bytes = getattr(tensor, "nbytes", None)  # torch knows it at once
    if num_bytes is None:
        num_bytes = math.prod(tensor.shape) * tensor.dtype.itemsize
    return first, first + int(num_bytes)


def aligned_empty(
    shape: tuple[int, ...], alignment: int = 64, dtype: str = "float32"
) -> np.ndarray[Any, np.dtype[Any]]:
    """An uninitialised array whose first element lies on a multiple of `alignment` bytes.

    A bfloat16 is given as its bits.
    """
    kind = DTYPES[dtype]
    count = math.prod(shape)
    raw = np.empty(count + alignment // kind.itemsize, dtype=kind)
    offset = (-raw.ctypes.data % alignment) // kind.itemsize
    return raw[offset : offset + count].reshape(shape)


def packed_empty(shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """An uninitialised array of float32 for a packed constant, which calls read from end to end.

    As much of it as fills pages of 2 MB lies in such, where the system gives them, and the rest in small
    ones, so that it takes no more memory. NumPy asks for them from 4 MB on, wherever an array begins.
    """
    count = math.prod(shape)
    num_bytes = 4 * count
    if num_bytes < _LARGE_PAGE:
        return aligned_empty(shape)
    try:
        memory = mmap.mmap(-1, num_bytes + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:  # there is no more, which NumPy says by a MemoryError
        return aligned_empty(shape)
    offset = -np.frombuffer(memory, np.uint8).ctypes.data % _LARGE_PAGE
    with contextlib.suppress(AttributeError, OSError):  # a system without them
        memory.madvise(mmap.MADV_HUGEPAGE, offset, num_bytes // _LARGE_PAGE * _LARGE_PAGE)
    return np.frombuffer(memory, np.float32, count, offset).reshape(shape)
