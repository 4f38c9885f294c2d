"""What ``compiled_call/*.c`` makes, where a compiler and the headers of Python were there."""

from collections.abc import Callable
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
    def watch(
        self,
        buffers: dict[str, Any],
        kept: dict[str, tuple[Any, int]],
        empty: tuple[dict[Any, Any], ...],
        quiet: tuple[Callable[[], Any], ...],
    ) -> None:
        """Decline calls while somebody looks at them, or what was bound is not what is there.

        Parameters
        ----------
        buffers, kept : dict
            Tensors of PyTorch, and which they have to be, and lie where.
        empty : tuple of dict
            That have to have nothing, such as hooks.
        quiet : tuple of callable
            That have to return something false.
        """

def encode(
    instances: list[Any],
    num_parameters: int,
    is_alone: bool,
    texts: dict[str, int],
    records: dict[type, tuple[int, tuple[str, ...], bool]],
    types: tuple[tuple[int, bytes, tuple[int, ...]], ...],
    array: type,
    asked: tuple[
        Callable[[Any], tuple[int, int, Any, bool]],
        Callable[[int, Exception], Exception],
    ],
    /,
) -> tuple[Any, tuple[int, int], int, tuple[int, int], dict[str, int], bool, list[Any]]:
    """Return instances of a program as words; `dietcode.runtime.programs.instances` says what these are.

    What holds them comes first; words, and those of the tensors, are their address and number.

    Parameters
    ----------
    instances : list
    num_parameters : int
    is_alone : bool
        Whether instances share no object.
    texts : dict
        Constants.
    records : dict
        Of known classes the record, its fields, and whether these are an object's own.
    types : tuple of (int, bytes, tuple of int)
        DLPack's code, the buffer protocol's format, and the shape.
    array : type
        NumPy's.
    asked : (callable, callable)
        What another value is: kind, number, what has to be kept, whether it is PyTorch's; and an error of an
        instance.
    """

def decode(
    address: int,
    num_words: int,
    num_results: int,
    constants: tuple[Any, ...],
    texts: tuple[str, ...],
    tensors: tuple[list[Any], ...],
    records: tuple[tuple[type, tuple[str, ...]], ...],
    /,
) -> list[Any]:
    """Return the results of a call; `dietcode.runtime.programs.results` says what the words are.

    Parameters
    ----------
    address, num_words, num_results : int
    constants : tuple
        Of the program; those that are texts are read.
    texts : tuple of str
        Those of the call.
    tensors : tuple of list
        By type.
    records : tuple of (type, tuple of str)
        Class and fields of each.
    """
