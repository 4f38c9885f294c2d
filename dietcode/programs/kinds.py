"""What kinds of values a program has, as they are seen while samples run."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, NamedTuple, TypeAlias

from dietcode.programs.sources import is_tensor
from dietcode.programs.stacks import StackedRows

Kind: TypeAlias = Any
"""``none``, ``bool``, ``int``, ``float``, ``text``, ``list``, ``tuple``, ``object``;
("tensor", dtype, shape); ("record", name of the class); ("stack", dtype, shape of a row);
("tuple", kinds of the items) for tuples of tensors and numbers."""

_NUMBERS = {bool: "bool", int: "int", float: "float", str: "text", type(None): "none"}
NUMBERS = frozenset({"bool", "int", "float"})


class Extremes(NamedTuple):
    """What ``max(dim=0)`` of a stack of any length returns, but where they are, or what ``topk`` returns."""

    values: Any
    indices: Any


class WholeNumbers(list[Any]):
    """A tensor of whole numbers of the instance, while samples run: the list of its items."""


class BoundedList(list[Any]):
    """A deque with so many items at most, while samples run."""

    most = 0


def is_named_result(value: Any) -> bool:
    """Whether a tuple is what PyTorch returns with names, as ``max(dim=0)`` does."""
    return type(value).__module__ == "torch.return_types" or isinstance(value, Extremes)


def kind_of(value: Any) -> Kind:
    """Return the kind of a value; a whole number is ``int``, also as a tensor."""
    if isinstance(value, StackedRows):
        return ("stack", *kind_of(value[0])[1:]) if value else "list"
    if type(value) in _NUMBERS:
        return _NUMBERS[type(value)]
    if is_tensor(value):
        return _of_tensor(value)
    if isinstance(value, tuple) and (is_named_result(value) or not hasattr(value, "_fields")):
        items = tuple(kind_of(one) for one in value)
        is_flat = all(is_tensor_kind(one) or one in NUMBERS or is_tuple_kind(one) for one in items)
        return ("tuple", items) if is_flat and items else "tuple"
    is_object = dataclasses.is_dataclass(value) or hasattr(value, "_fields") or is_record(value)
    if is_object and not isinstance(value, WholeNumbers | BoundedList):
        return ("record", type(value).__name__)
    return "list" if isinstance(value, list) else "object"


def _of_tensor(value: Any) -> Kind:
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype in ("int64", "int32"):
        return ("tensor", "int32", tuple(value.shape)) if value.dim() else "int"
    return ("tensor", dtype, tuple(value.shape))


def is_record(value: Any) -> bool:
    """Whether a value is an object of a plain class with attributes of its own."""
    from dietcode.programs.sources import is_module

    if isinstance(value, BaseException):
        return True
    cls = type(value)
    is_called = callable(value) and not inspect.isfunction(inspect.getattr_static(cls, "__call__", None))
    is_called |= callable(value) and cls.__module__.startswith(f"{__package__}.")  # a program, a block
    if isinstance(value, type) or is_module(value) or is_called or is_tensor(value):
        return False
    return (
        hasattr(value, "__dict__") and type(value).__module__ != "builtins" and not _is_python_module(value)
    )


def _is_python_module(value: Any) -> bool:
    return type(value).__name__ == "module"


def is_tensor_kind(kind: Kind) -> bool:
    """Whether a kind is that of tensors."""
    return isinstance(kind, tuple) and kind[0] == "tensor"


def is_record_kind(kind: Kind) -> bool:
    """Whether a kind is that of objects with fields."""
    return isinstance(kind, tuple) and kind[0] == "record"


def is_tuple_kind(kind: Kind) -> bool:
    """Whether a kind is that of tuples whose items have known kinds."""
    return isinstance(kind, tuple) and kind[0] == "tuple"


def tensors_in(value: Any) -> list[Any]:
    """Return the tensors of a value and of the tuples and lists in it."""
    if is_tensor(value):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for one in value for tensor in tensors_in(one)]
    return []


def words(kind: Kind) -> str:
    """Return a kind in words, for messages."""
    if is_tensor_kind(kind):
        return f"a tensor {kind[1]}{list(kind[2])}"
    if is_tuple_kind(kind):
        return f"a tuple of {len(kind[1])}"
    if isinstance(kind, tuple) and kind[0] == "stack":
        return f"a stack of any length of {list(kind[2])}"
    return f"a {kind[1]}" if isinstance(kind, tuple) else str(kind)
