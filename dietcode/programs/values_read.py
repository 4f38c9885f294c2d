"""Whether tensor code reads the value of a tensor, as an `if` on it does."""

from __future__ import annotations

from typing import Any

_READING = (
    *("aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal"),
    "aten::topk",  # where the largest are is read, too
)


class ValueReadError(Exception):
    """Tensor code has read the value of a tensor."""


def refused_values() -> Any:
    """Return a context in which reading the value of a tensor raises `ValueReadError`."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Refused(TorchDispatchMode):  # type: ignore[misc]  # PyTorch has no types for it
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function.name() in _READING:
                raise ValueReadError
            return function(*args, **(kwargs or {}))

    return Refused()
