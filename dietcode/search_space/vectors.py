"""Arithmetic on one vector, or one element, that several generators of code share."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx

from dietcode.search_space.tir import DTYPE, load, small_buffer, splat, store

_FUSES = contextvars.ContextVar("_FUSES", default=False)


@contextmanager
def fused(is_fused: bool) -> Iterator[None]:
    """Round `multiply_add` once, or not, in what is emitted meanwhile.

    A processor without such an instruction would call a function for each element.
    """
    token = _FUSES.set(is_fused)
    try:
        yield
    finally:
        _FUSES.reset(token)


def fuses() -> bool:
    """Return whether `multiply_add` is rounded once."""
    return _FUSES.get()


def multiply_add(a: Any, b: Any, c: Any, lanes: int) -> Any:
    """Return a·b + c, rounded once within ``fused(True)``; elsewhere that is left to the compiler."""
    if not fuses():
        return a * b + c
    return tirx.call_llvm_intrin(vector(DTYPE, lanes), "llvm.fma", a, b, c)


def polynomial(coefficients: Sequence[float], x: Any, lanes: int) -> Any:
    """Evaluate a polynomial by Horner's rule; `x` is used often."""
    *lower, result = [const(coefficient, lanes) for coefficient in coefficients]
    for coefficient in reversed(lower):
        result = result * x + coefficient
    return result


def named(value: Any, lanes: int, dtype: str = DTYPE) -> Any:
    """Return a value that is used more than once, by way of a buffer.

    LLVM turns the buffer back into a register: several passes substitute the values of variables, and eight
    stages in a row then took minutes to compile.
    """
    slot = small_buffer(lanes, dtype)
    store(slot, value, [0], lanes)
    return load(slot, [0], lanes)


def vector(dtype: str, lanes: int) -> str:
    """Return the name of a vector's type; that of an element for one lane."""
    return f"{dtype}x{lanes}" if lanes > 1 else dtype


def const(value: float, lanes: int, dtype: str = DTYPE) -> Any:
    """Return a number in every lane."""
    return splat(tirx.const(value, dtype), lanes)


def reinterpreted(value: Any, dtype: str, lanes: int) -> Any:
    """Return the same bits as another type."""
    return tirx.reinterpret(vector(dtype, lanes), value)
