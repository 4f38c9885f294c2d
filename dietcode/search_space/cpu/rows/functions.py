"""Pointwise functions on one vector by LLVM's own instructions, where there are such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from dietcode.search_space.pointwise import pointwise as any_pointwise
from dietcode.search_space.tir import DTYPE
from dietcode.search_space.vectors import named, vector


def pointwise(kind: str, operands: list[Any], lanes: int, option: Any = None) -> Any:
    """Return what `dietcode.search_space.pointwise.pointwise` does."""
    return any_pointwise(kind, operands, lanes, option, _OWN)


def maximum(lanes: int, a: Any, b: Any) -> Any:
    """Return the larger, NaN where either is."""
    return tirx.call_llvm_intrin(vector(DTYPE, lanes), "llvm.maximum", a, b)


def minimum(lanes: int, a: Any, b: Any) -> Any:
    """Return the smaller, NaN where either is."""
    return tirx.call_llvm_intrin(vector(DTYPE, lanes), "llvm.minimum", a, b)


def _product(lanes: int, a: Any, b: Any) -> Any:
    """Return a·b, rounded.

    Without the fence LLVM would fuse it with an addition that follows, but only where both are in one basic
    block, which differs between micro-kernels: a row would have other bits.
    """
    return tirx.call_llvm_intrin(vector(DTYPE, lanes), "llvm.arithmetic.fence", a * b)


def _square(lanes: int, x: Any) -> Any:
    x = named(x, lanes)
    return _product(lanes, x, x)


_OWN: dict[str, Callable[..., Any]] = {
    "mul": _product,
    "square": _square,
    "maximum": maximum,
    "minimum": minimum,
}


def across_lanes(value: Any, lanes: int, combine: Callable[[int, Any, Any], Any]) -> Any:
    """Return the lanes of a vector combined, the upper half with the lower one, again and again."""
    while lanes > 1:
        value, half = named(value, lanes), lanes // 2
        low, high = (
            tirx.Shuffle([value], [tirx.IntImm("int32", k) for k in part])
            for part in (range(half), range(half, lanes))
        )
        lanes = half
        value = combine(lanes, low, high)
    return value
