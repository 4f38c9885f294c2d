"""Exponentials and what is made of them, on one vector or one element, for all kinds of devices.

Nothing here calls libm, whose functions take one element at a time. e^x - 1 of a remainder
r = x - k·ln 2 in [-ln 2 / 2, ln 2 / 2] is r times a polynomial, so that tanh, which is E/(E + 2) with
E = e^2x - 1, is as accurate near zero as elsewhere. NaN stays NaN in every function.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from dietcode.search_space.tir import DTYPE
from dietcode.search_space.vectors import const, named, polynomial, reinterpreted

# (2^r - 1)/r on |r| ≤ 1/2, lowest power first, fitted for the relative error of 2^r: 9.1e-8.
EXP2 = (0.693146978, 0.240222421, 0.0555073374, 0.00967151264, 0.00132647272)
_LOG2_E = 1.0 / math.log(2.0)
# (e^r - 1)/r: the polynomial of (2^t - 1)/t at t = r·log2(e).
_EXPM1 = tuple(coefficient * _LOG2_E ** (power + 1) for power, coefficient in enumerate(EXP2))
_LN2_HIGH = 0.693145751953125  # its products with a small integer are exact
_LN2_LOW = math.log(2.0) - _LN2_HIGH
_ROUND = 1.5 * 2.0**23  # added, it leaves a float32's integer part in the low bits of its significand
_ROUND_BITS = 0x4B400000
_BIAS, _SIGNIFICAND_BITS = 127, 23
_LEAST, _MOST = -87.6, 89.0  # e^x is 0 there and below, infinite there and above
_VANISHES = -88.0  # 2^k is 0 there
_SATURATED = 20.0  # tanh is ±1 beyond half of it


def clip(x: Any, lanes: int, low: float | None, high: float | None) -> Any:
    """Return x within the bounds that there are."""
    for bound, is_low in ((low, True), (high, False)):
        if bound is not None:
            x, edge = named(x, lanes), const(bound, lanes)
            x = tirx.Select(x < edge if is_low else x > edge, edge, x)
    return x


def _within(x: Any, lanes: int, low: float, high: float) -> Any:
    return named(clip(x, lanes, low, high), lanes)


def _split(x: Any, lanes: int) -> tuple[Any, Any]:
    """Return e^r - 1 and k of x = k·ln 2 + r."""
    shifted = named(x * const(_LOG2_E, lanes) + const(_ROUND, lanes), lanes)
    bits = reinterpreted(shifted, "int32", lanes)
    k = named(bits - const(_ROUND_BITS, lanes, "int32"), lanes, "int32")
    whole = named(shifted - const(_ROUND, lanes), lanes)
    r = named(x - whole * const(_LN2_HIGH, lanes), lanes)
    r = named(r - whole * const(_LN2_LOW, lanes), lanes)
    return r * polynomial(_EXPM1, r, lanes), k


def _power_of_two(k: Any, lanes: int) -> Any:
    """Return 2^k; 0 for -127."""
    return reinterpreted(
        (k + const(_BIAS, lanes, "int32")) << const(_SIGNIFICAND_BITS, lanes, "int32"), DTYPE, lanes
    )


def exp(lanes: int, x: Any) -> Any:
    """Return e^x."""
    less_one, k = _split(_within(x, lanes, _LEAST, _MOST), lanes)
    half = _power_of_two(k - const(1, lanes, "int32"), lanes)  # 2^128 has no bits of its own
    return (less_one + const(1.0, lanes)) * half * const(2.0, lanes)


def exp_of_negative(lanes: int, x: Any) -> Any:
    """Return e^x of x ≤ 0, which needs fewer instructions; 0 below 2⁻¹²⁶."""
    less_one, k = _split(named(clip(x, lanes, _VANISHES, None), lanes), lanes)
    return (less_one + const(1.0, lanes)) * _power_of_two(k, lanes)


def tanh(lanes: int, x: Any) -> Any:
    """Return tanh x."""
    doubled = _within(x * const(2.0, lanes), lanes, -_SATURATED, _SATURATED)
    less_one, k = _split(doubled, lanes)
    power = named(_power_of_two(k, lanes), lanes)
    e = named(less_one * power + (power - const(1.0, lanes)), lanes)
    return e / (e + const(2.0, lanes))


def sigmoid(lanes: int, x: Any) -> Any:
    """Return 1/(1 + e^-x)."""
    one = const(1.0, lanes)
    return one / (one + exp(lanes, const(0.0, lanes) - x))
