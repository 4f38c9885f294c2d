"""Pointwise functions on one vector, or one element.

Nothing here calls libm. Exponentials are those of `dietcode.search_space.epilogue`, with another argument:
e^x - 1 of a remainder r = x - k·ln 2 in [-ln 2 / 2, ln 2 / 2] is r times a polynomial, so that tanh, which is
E/(E + 2) with E = e^2x - 1, is as accurate near zero as elsewhere. NaN stays NaN in every function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx

from dietcode.search_space.epilogue import EXP2, apply
from dietcode.search_space.problem import Stage
from dietcode.search_space.tir import DTYPE
from dietcode.search_space.vectors import const, named, polynomial, reinterpreted, vector

_LOG2_E = 1.0 / math.log(2.0)
# (e^r - 1)/r: the polynomial of (2^t - 1)/t at t = r·log2(e).
_EXPM1 = tuple(coefficient * _LOG2_E ** (power + 1) for power, coefficient in enumerate(EXP2))
_LN2_HIGH = 0.693145751953125  # its products with a small integer are exact
_LN2_LOW = math.log(2.0) - _LN2_HIGH
_ROUND = 1.5 * 2.0**23  # added, it leaves a float32's integer part in the low bits of its significand
_ROUND_BITS = 0x4B400000
_BIAS, _SIGNIFICAND_BITS = 127, 23
_LEAST, _MOST = -87.6, 89.0  # e^x is 0 there and below, infinite there and above
_SATURATED = 20.0  # tanh is ±1 beyond half of it


def pointwise(kind: str, operands: list[Any], lanes: int, option: Any = None) -> Any:
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
    """
    if kind == "clip":
        return _clip(operands[0], lanes, *option)
    if kind == "gelu":
        return apply(Stage(f"gelu-{option}"), operands[0], lanes, _no_tensor)
    return _FUNCTIONS[kind](lanes, *operands)


def minus_infinity(lanes: int) -> Any:
    """Return -inf in every lane."""
    return const(-math.inf, lanes)


def _no_tensor(name: str) -> Any:
    raise KeyError(name)  # no function of this module reads a tensor


def _clip(x: Any, lanes: int, low: float | None, high: float | None) -> Any:
    for bound, is_low in ((low, True), (high, False)):
        if bound is not None:
            x, edge = named(x, lanes), const(bound, lanes)
            x = tirx.Select(x < edge if is_low else x > edge, edge, x)
    return x


def _within(x: Any, lanes: int, low: float, high: float) -> Any:
    return named(_clip(x, lanes, low, high), lanes)


def _split(x: Any, lanes: int) -> tuple[Any, Any]:
    """Return e^r - 1 and k of x = k·ln 2 + r."""
    shifted = reinterpreted(x * const(_LOG2_E, lanes) + const(_ROUND, lanes), "int32", lanes)
    k = named(shifted - const(_ROUND_BITS, lanes, "int32"), lanes, "int32")
    whole = named(tirx.Cast(vector(DTYPE, lanes), k), lanes)
    r = named(x - whole * const(_LN2_HIGH, lanes), lanes)
    r = named(r - whole * const(_LN2_LOW, lanes), lanes)
    return r * polynomial(_EXPM1, r, lanes), k


def _power_of_two(k: Any, lanes: int) -> Any:
    """Return 2^k; 0 for -127."""
    return reinterpreted(
        (k + const(_BIAS, lanes, "int32")) << const(_SIGNIFICAND_BITS, lanes, "int32"), DTYPE, lanes
    )


def _exp(lanes: int, x: Any) -> Any:
    less_one, k = _split(_within(x, lanes, _LEAST, _MOST), lanes)
    half = _power_of_two(k - const(1, lanes, "int32"), lanes)  # 2^128 has no bits of its own
    return (less_one + const(1.0, lanes)) * half * const(2.0, lanes)


def _tanh(lanes: int, x: Any) -> Any:
    doubled = _within(x * const(2.0, lanes), lanes, -_SATURATED, _SATURATED)
    less_one, k = _split(doubled, lanes)
    power = named(_power_of_two(k, lanes), lanes)
    e = named(less_one * power + (power - const(1.0, lanes)), lanes)
    return e / (e + const(2.0, lanes))


def _sigmoid(lanes: int, x: Any) -> Any:
    one = const(1.0, lanes)
    return one / (one + _exp(lanes, const(0.0, lanes) - x))


def _rsqrt(lanes: int, x: Any) -> Any:
    return const(1.0, lanes) / tirx.sqrt(x)


def _product(lanes: int, a: Any, b: Any) -> Any:
    """Return a·b, rounded.

    Without the fence LLVM would fuse it with an addition that follows, but only where both are in one basic
    block, which differs between micro-kernels: a row would have other bits.
    """
    return tirx.call_llvm_intrin(vector(DTYPE, lanes), "llvm.arithmetic.fence", a * b)


def _square(lanes: int, x: Any) -> Any:
    x = named(x, lanes)
    return _product(lanes, x, x)


def _less(lanes: int, a: Any, b: Any) -> Any:
    return tirx.Select(a < b, const(1.0, lanes), const(0.0, lanes))


def _where(lanes: int, condition: Any, a: Any, b: Any) -> Any:
    return tirx.Select(condition != const(0.0, lanes), a, b)


def _finite(lanes: int, x: Any) -> Any:
    x = named(x, lanes)
    return tirx.Select(x <= minus_infinity(lanes), const(0.0, lanes), x)


def _reciprocal(lanes: int, x: Any) -> Any:
    """Return 1/x, 0 where x is 0."""
    x, zero = named(x, lanes), const(0.0, lanes)
    return tirx.Select(x == zero, zero, const(1.0, lanes) / x)


def maximum(lanes: int, a: Any, b: Any) -> Any:
    """Return the larger, NaN where either is."""
    return tirx.call_llvm_intrin(vector(DTYPE, lanes), "llvm.maximum", a, b)


def _minimum(lanes: int, a: Any, b: Any) -> Any:
    return tirx.call_llvm_intrin(vector(DTYPE, lanes), "llvm.minimum", a, b)


def larger_number(lanes: int, a: Any, b: Any) -> Any:
    """Return the larger, `a` where `b` is NaN."""
    a, b = named(a, lanes), named(b, lanes)
    return tirx.Select(b > a, b, a)


def _stage(kind: str) -> Callable[[int, Any], Any]:
    return lambda lanes, x: apply(Stage(kind), x, lanes, _no_tensor)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "copy": lambda lanes, x: x,
    "add": lambda lanes, a, b: a + b,
    "sub": lambda lanes, a, b: a - b,
    "mul": _product,
    "div": lambda lanes, a, b: a / b,
    "maximum": maximum,
    "minimum": _minimum,
    "less": _less,
    "where": _where,
    "neg": lambda lanes, x: const(-1.0, lanes) * x,
    "abs": lambda lanes, x: tirx.abs(x),
    "square": _square,
    "sqrt": lambda lanes, x: tirx.sqrt(x),
    "rsqrt": _rsqrt,
    "exp": _exp,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "relu": _stage("relu"),
    "silu": _stage("silu"),
    "finite": _finite,
    "reciprocal": _reciprocal,
}
