"""What kinds of values a program has, as they are seen while samples run."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

from dietcode.programs.sources import is_tensor

Kind: TypeAlias = Any
"""``none``, ``bool``, ``int``, ``float``, ``text``, ``list``, ``tuple``, ``object``;
("tensor", dtype, shape); ("record", name of the class);
("tuple", kinds of the items) for tuples of tensors and numbers."""

_NUMBERS = {bool: "bool", int: "int", float: "float", str: "text", type(None): "none"}
NUMBERS = frozenset({"bool", "int", "float"})


def kind_of(value: Any) -> Kind:
    """Return the kind of a value; a whole number is ``int``, also as a tensor."""
    if type(value) in _NUMBERS:
        return _NUMBERS[type(value)]
    if is_tensor(value):
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype in ("int64", "int32"):
            return ("tensor", "int32", tuple(value.shape)) if value.dim() else "int"
        return ("tensor", dtype, tuple(value.shape))
    if isinstance(value, tuple):
        items = tuple(kind_of(one) for one in value)
        is_flat = all(is_tensor_kind(one) or one in NUMBERS or is_tuple_kind(one) for one in items)
        return ("tuple", items) if is_flat and items else "tuple"
    if dataclasses.is_dataclass(value) or is_record(value):
        return ("record", type(value).__name__)
    return "list" if isinstance(value, list) else "object"


def is_record(value: Any) -> bool:
    """Whether a value is an object of a plain class with attributes of its own."""
    from dietcode.programs.sources import is_module

    if isinstance(value, type) or is_module(value) or callable(value) or is_tensor(value):
        return False
    return (
        hasattr(value, "__dict__") and type(value).__module__ != "builtins" and not _is_python_module(value)
    )


def _is_python_module(value: Any) -> bool:
    return type(value).__name__ == "module"


def is_tensor_kind(kind: Kind) -> bool:
    """Whether a kind is that of tensors."""
    return isinstance(kind, tuple) and kind[0] == "tensor"


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
    return f"a {kind[1]}" if isinstance(kind, tuple) else str(kind)
