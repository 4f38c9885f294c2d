"""The call in C beside `dietcode.runtime.lean_call`, where this installation has it."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dietcode.runtime.tensors import BFLOAT16, DTYPES, Packed, aligned_empty

if TYPE_CHECKING:
    from dietcode.runtime import compiled_call

    CalledInC = compiled_call.CalledInC
    CompiledCall = compiled_call.CompiledCall
else:
    try:
        from dietcode.runtime import compiled_call
    except ImportError:
        compiled_call = None
    # Where it was not compiled, its folder of sources is found.
    if hasattr(compiled_call, "CompiledCall"):
        CalledInC, CompiledCall = compiled_call.CalledInC, compiled_call.CompiledCall
    else:
        CompiledCall = None

        class CalledInC:
            """What is called by its ``__call__`` in Python."""

            compiled = None


_DLPACK_CODES = {"i": 0, "u": 1, "f": 2}
CompiledShapes = dict[bytes, tuple[bytes, tuple[tuple[int, ...], ...]]]


def compile_call(
    runs: tuple[Any, Any],
    tensors: Sequence[tuple[str, int, str]],
    into: tuple[int, ...],
    packed: Mapping[str, str],
    variables: tuple[Sequence[str], int],
    shapes: CompiledShapes,
) -> CompiledCall | None:
    """Return the compiled call of a library, or None where Python has to do it.

    Parameters
    ----------
    runs : (callable, callable)
        As for `dietcode.runtime.lean_call.LeanCall`.
    tensors : sequence of (str, int, str)
        Of each tensor, and then of each output, its name, number of dimensions and dtype.
    into : tuple of int
        Of each output, the number of the tensor that it is written to; -1 for one of its own.
    packed : mapping of str to str
        Layouts of the constants.
    variables : (sequence of str, int)
        Shape variables that are passed by name, and the number of all.
    shapes : dict
        What is known of shapes, by `key_of`: values and the outputs' extents as `digits`, and their shapes.
    """
    if CompiledCall is None or any(dtype == BFLOAT16 for _, _, dtype in tensors):
        return None
    facts = []
    for name, ndim, dtype in tensors:
        kind, layout = DTYPES[dtype], packed.get(name)
        code, bits = _DLPACK_CODES[kind.kind], 8 * kind.itemsize
        constant = name if layout is not None else None
        facts.append((sys.intern(name), ndim, code, bits, kind.char.encode(), constant, layout))
    keywords = tuple(sys.intern(name) for name in variables[0])
    dtypes = tuple(DTYPES[dtype] for _, _, dtype in tensors[-len(into) :])
    arrays = (np.ndarray, Packed, np.empty, _aligned, dtypes, into)
    try:
        return CompiledCall(runs, tuple(facts), keywords, variables[1], shapes, arrays)
    except (AttributeError, ValueError):  # more tensors than it takes, or functions that are not tvm-ffi's
        return None


def key_of(shapes: Iterable[Sequence[int]], keywords: Iterable[int]) -> bytes:
    """What a compiled call looks up: values of the keywords, then the extents of all tensors."""
    return digits([*keywords, *(extent for shape in shapes for extent in shape)])


def digits(integers: Iterable[int]) -> bytes:
    """Integers of 64 bits, as C has them."""
    return array("q", integers).tobytes()


def _aligned(shape: tuple[int, ...], kind: np.dtype[Any]) -> Any:
    return aligned_empty(shape, dtype=kind.name)
