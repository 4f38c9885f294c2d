"""Pointwise functions on one vector, or one element.

Nothing here calls libm: exponentials are those of `dietcode.search_space.exponentials`, logarithms and
sines those of `dietcode.search_space.transcendentals`. NaN stays NaN in
every function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tvm import tirx
from tvm_ffi import structural_equal

from dietcode.search_space.epilogue import apply
from dietcode.search_space.exponentials import clip, exp, exp_of_negative, sigmoid, tanh
from dietcode.search_space.stage import Stage
from dietcode.search_space.transcendentals import cos, log, sin
from dietcode.search_space.vectors import const, multiply_add, named


def pointwise(
    kind: str,
    operands: list[Any],
    lanes: int,
    option: Any,
    own: Mapping[str, Callable[..., Any]],
) -> Any:
    """Return a pointwise primitive's result; emits the statements that it needs.

    Parameters
    ----------
    kind : str
        As `dietcode.workload.expansion.Primitive` has it, but for ``causal``.
    operands : list of float32 expression [lanes]
    lanes : int
        Elements of the vector.
    option : object
        As a primitive has it.
    own : mapping of str to callable
        ``(lanes, *operands) -> result``: what a processor does in its own way; ``maximum`` and ``minimum``
        at least.
    """
    if kind in _FOLDED:
        operands = _unfolded(operands, lanes)
    if kind in own:
        return own[kind](lanes, *operands)
    if kind == "clip":
        return clip(operands[0], lanes, *option)
    if kind == "gelu":
        return apply(Stage(f"gelu-{option}"), operands[0], lanes, _no_tensor)
    return _FUNCTIONS[kind](lanes, *operands)


def _unfolded(operands: list[Any], lanes: int) -> list[Any]:
    """Hide zeros and operands that are alike from TVM, for which 0 · x and x - x are 0, also of NaN."""
    alike = structural_equal(operands[0], operands[1])
    return [named(one, lanes) if alike or _is_zero(one) else one for one in operands]


def _is_zero(value: Any) -> bool:
    value = getattr(value, "value", value) if isinstance(value, tirx.Broadcast) else value
    return isinstance(value, tirx.FloatImm) and value.value == 0


def minus_infinity(lanes: int) -> Any:
    """Return -inf in every lane."""
    return const(-math.inf, lanes)


def _no_tensor(name: str) -> Any:
    raise KeyError(name)  # no function of this module reads a tensor


def _rsqrt(lanes: int, x: Any) -> Any:
    return const(1.0, lanes) / tirx.sqrt(x)


def _square(lanes: int, x: Any) -> Any:
    x = named(x, lanes)
    return x * x


def _less(lanes: int, a: Any, b: Any) -> Any:
    return tirx.Select(a < b, const(1.0, lanes), const(0.0, lanes))


def _less_equal(lanes: int, a: Any, b: Any) -> Any:
    return tirx.Select(a <= b, const(1.0, lanes), const(0.0, lanes))


def _where(lanes: int, condition: Any, a: Any, b: Any) -> Any:
    # NaN is not 0, and LLVM's `!=` does not hold of it.
    return tirx.Select(condition == const(0.0, lanes), b, a)


def _finite(lanes: int, x: Any) -> Any:
    x = named(x, lanes)
    return tirx.Select(x <= minus_infinity(lanes), const(0.0, lanes), x)


def _reciprocal(lanes: int, x: Any) -> Any:
    """Return 1/x, 0 where x is 0."""
    x, zero = named(x, lanes), const(0.0, lanes)
    return tirx.Select(x == zero, zero, const(1.0, lanes) / x)


def larger_number(lanes: int, a: Any, b: Any) -> Any:
    """Return the larger, `a` where `b` is NaN."""
    a, b = named(a, lanes), named(b, lanes)
    return tirx.Select(b > a, b, a)


def _stage(kind: str) -> Callable[[int, Any], Any]:
    return lambda lanes, x: apply(Stage(kind), x, lanes, _no_tensor)


_FOLDED = frozenset({"add", "sub", "mul", "mul-add", "div", "less", "less_equal"})
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "copy": lambda lanes, x: x,
    "add": lambda lanes, a, b: a + b,
    "sub": lambda lanes, a, b: a - b,
    "mul": lambda lanes, a, b: a * b,
    "mul-add": lambda lanes, a, b, c: multiply_add(a, b, c, lanes),
    "div": lambda lanes, a, b: a / b,
    "less": _less,
    "less_equal": _less_equal,
    "where": _where,
    "neg": lambda lanes, x: const(-1.0, lanes) * x,
    "abs": lambda lanes, x: tirx.abs(x),
    "square": _square,
    "sqrt": lambda lanes, x: tirx.sqrt(x),
    "rsqrt": _rsqrt,
    "exp": exp,
    "exp-of-negative": exp_of_negative,
    "log": log,
    "sin": sin,
    "cos": cos,
    "floor": lambda lanes, x: tirx.floor(x),
    "ceil": lambda lanes, x: tirx.ceil(x),
    "round": lambda lanes, x: tirx.nearbyint(x),
    "tanh": tanh,
    "sigmoid": sigmoid,
    "relu": _stage("relu"),
    "silu": _stage("silu"),
    "finite": _finite,
    "reciprocal": _reciprocal,
}
