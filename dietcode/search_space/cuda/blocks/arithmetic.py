"""Pointwise functions of one element in a device function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from dietcode.search_space.pointwise import pointwise as any_pointwise
from dietcode.search_space.tir import DTYPE


def pointwise(kind: str, operands: list[Any], option: Any = None) -> Any:
    """Return what `dietcode.search_space.pointwise.pointwise` does, for one lane."""
    return any_pointwise(kind, operands, 1, option, _OWN)


def call(function: str, *operands: Any) -> Any:
    """Return what a function of CUDA, or one of `dietcode.search_space.cuda.instructions`, gives."""
    return tirx.call_extern(DTYPE, function, *operands)


def maximum(lanes: int, a: Any, b: Any) -> Any:
    """Return the larger, NaN where either is."""
    return call("larger_or_nan", a, b)


def minimum(lanes: int, a: Any, b: Any) -> Any:
    """Return the smaller, NaN where either is."""
    return call("smaller_or_nan", a, b)


def _called(function: str) -> Callable[[int, Any], Any]:
    return lambda lanes, x: call(function, x)


def _sigmoid(lanes: int, x: Any) -> Any:
    one = tirx.const(1.0, DTYPE)
    return one / (one + call("expf", tirx.const(0.0, DTYPE) - x))


_OWN: dict[str, Callable[..., Any]] = {
    "maximum": maximum,
    "minimum": minimum,
    "relu": lambda lanes, x: call("larger_or_nan", x, tirx.const(0.0, DTYPE)),
    **dict.fromkeys(("exp", "exp-of-negative"), _called("expf")),
    **{name: _called(f"{name}f") for name in ("log", "sin", "cos", "floor", "ceil")},
    "round": lambda lanes, x: call("rintf", x),
    "tanh": lambda lanes, x: call("tanhf", x),
    "sigmoid": _sigmoid,
}
