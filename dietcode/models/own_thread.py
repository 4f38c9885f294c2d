"""Functions of PyTorch that are replaced for the whole process, in the thread that exports alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

_lock = threading.RLock()
_depths: dict[int, int] = {}


@contextmanager
def alone() -> Iterator[None]:
    """Let one thread replace at a time: another would keep, and restore, what this one put there."""
    with _lock:
        own = threading.get_ident()
        _depths[own] = _depths.get(own, 0) + 1
        try:
            yield
        finally:
            _depths[own] -= 1
            if not _depths[own]:
                del _depths[own]


def is_own_thread() -> bool:
    """Whether this thread is within `alone`. PyTorch's tracer of bytecode takes it as a constant."""
    return threading.get_ident() in _depths


is_own_thread._dynamo_marked_constant = True  # type: ignore[attr-defined]


def here(function: Callable[..., Any], elsewhere: Callable[..., Any]) -> Callable[..., Any]:
    """Return what calls a function in the thread that is within `alone`, and another in all others."""

    @wraps(elsewhere)
    def either(*args: Any, **kwargs: Any) -> Any:
        return (function if is_own_thread() else elsewhere)(*args, **kwargs)

    return either


class HereAlone:
    """An attribute of a class that is one value in the thread within `alone`, and another in all others."""

    def __init__(self, value: Any, elsewhere: Any) -> None:
        self.value, self.elsewhere = value, elsewhere

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Return the value of this thread."""
        return self.value if is_own_thread() else self.elsewhere


class OthersStream:
    """What is written in the thread within `alone` is dropped; all else goes to a stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or drop, a text."""
        return len(text) if is_own_thread() else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
