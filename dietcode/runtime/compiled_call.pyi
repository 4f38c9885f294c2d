"""What ``compiled_call/*.c`` makes, where a compiler and the headers of Python were there."""

from typing import Any

class CalledInC:
    """A base class: a call begins with `compiled`; where that declines, it goes to ``__call__`` in Python."""

    compiled: CompiledCall | None

class CompiledCall:
    """The short way of the calls of one library, or of one with tensors bound."""

    def __new__(
        cls,
        functions: tuple[Any, Any],
        tensors: tuple[tuple[str, int, int, int, bytes, str | None, str | None], ...],
        keywords: tuple[str, ...],
        num_values: int,
        shapes: dict[bytes, tuple[bytes, tuple[tuple[int, ...], ...]]],
        arrays: tuple[type, type, Any, Any, tuple[Any, ...], tuple[int, ...]],
    ) -> CompiledCall: ...
    def attempt(self, tensors: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Return the result, or NotImplemented for a call that is left to the way in Python."""

    def bind(self, tensors: dict[str, Any]) -> CompiledCall:
        """Return the same with these bound, by name; the others come with a call."""
    def watch(self, buffers: dict[str, Any], kept: dict[str, tuple[Any, int]]) -> None:
        """Decline calls while `buffers` has other tensors of PyTorch than these, or they lie elsewhere."""
