"""Which tensors a program's text may change by ``x += y``, as if it made a new one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any


def _counted(value: object) -> int:
    return sys.getrefcount(value)


def _held() -> int:
    """Return how many references `_known`, the call of `is_alone` and what counts are.

    A call holds its arguments once more where PyTorch's compiler has taken over the evaluation of frames.
    """
    probe = object()
    return _counted(probe)  # its variable is in the place of `_known`


class Ownership:
    """Tensors that operations made, and which of them share their memory."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        self._sharing: dict[int, set[int]] = {}
        self._others: dict[int, Any] = {}  # held, so that their numbers and memory are not another's later

    def clear(self) -> None:
        """Forget all, between samples."""
        self._known.clear()
        self._sharing.clear()
        self._others.clear()

    def note(self, function: Callable[..., Any], results: Sequence[Any], operands: Sequence[Any]) -> None:
        """Note what an operation has made of its operands."""
        given = {id(one) for one in operands}
        for one in (*results, *operands):
            if id(one) in given and getattr(function, "__name__", "") == "as_tensor":
                continue
            self._sharing.setdefault(one.untyped_storage().data_ptr(), set()).add(id(one))
            if id(one) not in given:
                self._known[id(one)] = one
            elif id(one) not in self._known:
                self._others[id(one)] = one

    def is_alone(self, tensor: Any, allowed: int) -> bool:
        """Whether nothing but one variable can see a change of a tensor.

        Parameters
        ----------
        tensor : Tensor
        allowed : int
            References to it that the caller knows of, its own among them.
        """
        if id(tensor) not in self._known:
            return False
        sharing = self._sharing[tensor.untyped_storage().data_ptr()]
        return sharing == {id(tensor)} and sys.getrefcount(tensor) <= allowed + _held()
