"""Handles as tensors: isinstance says so, and whatever is asked of them is answered as by a tensor.

A handle is made into a tensor where no region has what is done with it: its instance waits for the value,
and PyTorch computes, which is counted by the line of the user's code. From then on the handle is that tensor,
in-place changes included.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch

from dietcode.runtime import recorder

Handle = recorder.Handle
current, wait = recorder.current, recorder.wait

DTYPES = torch.float32, torch.bool, torch.int64, torch.int32  # by the code of a handle

_BY_TYPE = """shape size dim ndim ndimension dtype device numel nelement itemsize nbytes element_size stride
layout names is_floating_point is_complex is_signed is_sparse is_cuda is_cpu is_meta is_quantized
is_contiguous is_leaf requires_grad grad grad_fn storage_offset __len__"""
_BY_CLASS = """__class__ __new__ __init__ __init_subclass__ __subclasshook__ __getattribute__ __getattr__
__setattr__ __delattr__ __dict__ __dir__ __doc__ __module__ __weakref__ __annotations__ __hash__ __sizeof__
__torch_function__ __torch_dispatch__ __dlpack_c_exchange_api__ __getitem__"""
_COMPARISONS = "__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"
_IN_C = frozenset(
    (*_COMPARISONS, "__hash__", "__bool__", "__float__", "__int__", "__index__", "item", "tolist")
)
_METADATA = frozenset(_BY_TYPE.split())  # needs no value
_OWN = frozenset(_BY_CLASS.split())  # belongs to every class


def tensor_of(handle: Handle) -> torch.Tensor:
    """Return the tensor that a handle is from now on, and wait for its value if it has none."""
    if handle.tensor is None:
        if not handle.computed:
            wait(handle)
        if handle.tensor is None:  # others may have made it meanwhile
            handle.tensor = _copied(handle)
    return handle.tensor


def real(given: Any) -> Any:
    """Return a value with tensors in place of handles, in tuples, lists and dicts."""
    cls = type(given)
    if cls is Handle:
        return tensor_of(given)
    if cls is tuple or cls is list:
        return cls([real(one) for one in given])
    if cls is dict:
        return {name: real(one) for name, one in given.items()}
    return cls(*map(real, given)) if isinstance(given, tuple) and hasattr(cls, "_fields") else given


def is_instance(given: Any, classes: Any) -> bool:
    """Return what `isinstance` does, without a look at the value of a handle."""
    return issubclass(torch.Tensor, classes) if type(given) is Handle else isinstance(given, classes)


def _make_at_once(handle: Handle) -> None:
    """Make a tensor of a handle whose class C code asks for: no other instance may run before it goes on."""
    if not handle.computed and handle.run is not None:
        handle.run.flush()
    handle.tensor = _copied(handle)


def _copied(handle: Handle) -> torch.Tensor:
    """Return the row of a computed handle as a new tensor."""
    shape: tuple[int, ...] = handle.type_shape
    num_elements = _face(shape, 0).numel()
    with torch._C.DisableTorchFunction():
        if not num_elements:
            return torch.empty(shape, dtype=DTYPES[handle.dtype_code])
        memory = (ctypes.c_float * num_elements).from_address(handle.row_address)
        row = torch.frombuffer(memory, dtype=torch.float32).reshape(shape)
        return row.clone() if handle.dtype_code == 0 else row.to(DTYPES[handle.dtype_code])


@functools.lru_cache(maxsize=1024)
def _face(shape: tuple[int, ...], code: int) -> torch.Tensor:
    """Return a tensor that has the same metadata."""
    with torch._C.DisableTorchFunction(), torch.inference_mode(False):
        return torch.empty(shape, dtype=DTYPES[code], device="cpu")


def _face_of(handle: Handle) -> torch.Tensor:
    return _face(handle.type_shape, handle.dtype_code) if handle.tensor is None else handle.tensor


def _eager(function: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Compute with PyTorch; where the result is the tensor of a handle (in place), return that handle."""
    run = current()
    counts = None if run is None or run.scheduler is None else run.scheduler.counts
    if counts is not None:
        counts.note("no region", getattr(function, "__name__", str(function)))
    result = function(*real(args), **real(named))
    for one in (*args, *named.values()):
        if type(one) is Handle and one.tensor is result:
            return one
    return result


# ---- What the class of handles gets ----


def _torch_function(
    cls: type, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    name = getattr(function, "__name__", "")
    if name in _METADATA and len(args) == 1 and type(args[0]) is Handle:
        return function(_face_of(args[0]), **(kwargs or {}))
    return _eager(function, args, kwargs or {})


def _detach(self: Handle) -> Any:
    return self if self.tensor is None else self.tensor.detach()


def _get_other(self: Handle, name: str) -> Any:
    """Return an attribute that a user has set, on this tensor or on the class."""
    if self.tensor is None and not hasattr(torch.Tensor, name):
        raise AttributeError(f"'Tensor' object has no attribute '{name}'")
    return getattr(tensor_of(self), name)


def _set(self: Handle, name: str, given: Any) -> None:
    is_own = name == "tensor" or hasattr(Handle, name)
    object.__setattr__(self, name, given) if is_own else setattr(tensor_of(self), name, real(given))


def _method(name: str) -> Callable[..., Any]:
    def call(self: Handle, *args: Any, **named: Any) -> Any:
        return _eager(getattr(torch.Tensor, name), (self, *args), named)

    call.__name__ = name
    return call


def _compared(self: Handle, how: int, other: Any) -> Any:
    """Compare with what is no whole number, by the number that C has for the operator."""
    return _eager(getattr(torch.Tensor, _COMPARISONS[how]), (self, other), {})


def _attribute(name: str) -> property:
    def get(self: Handle) -> Any:
        return getattr(tensor_of(self), name)

    def set_(self: Handle, given: Any) -> None:
        setattr(tensor_of(self), name, real(given))

    return property(get, set_)


def _metadata(name: str) -> property:
    def set_(self: Handle, given: Any) -> None:
        setattr(tensor_of(self), name, real(given))

    return property(lambda self: getattr(_face_of(self), name), set_)


@functools.cache
def install() -> None:
    """Let handles pass as tensors, in this process from now on."""
    found: dict[str, Any] = {
        "__torch_function__": classmethod(_torch_function),
        "compared": _compared,
        "item_at": _method("__getitem__"),
        "detach": _detach,
        "__getattr__": _get_other,
        "__setattr__": _set,
    }
    for name in set(dir(torch.Tensor)) - found.keys() - _OWN - _IN_C:
        own = getattr(torch.Tensor, name)
        if name in _METADATA:
            found[name] = _metadata(name)
        elif callable(own):
            found[name] = _method(name)
        else:
            found[name] = _attribute(name) if hasattr(own, "__get__") else own
    for name, one in found.items():
        setattr(Handle, name, one)
    Handle.__name__ = Handle.__qualname__ = "Tensor"  # in messages
    with torch._C.DisableTorchFunction(), torch.inference_mode(False):
        truths = torch.tensor(False), torch.tensor(True)
    recorder.pretend(torch.Tensor, torch._C.TensorBase.__basicsize__, _make_at_once, truths)
