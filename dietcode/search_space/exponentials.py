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
from dietcode.search_space.vectors import const, fuses, multiply_add, named, polynomial, reinterpreted

# (2^r - 1)/r on |r| ≤ 1/2, lowest power first, fitted for the relative error of 2^r: 9.1e-8.
EXP2 = (0.693146978, 0.240222421, 0.0555073374, 0.00967151264, 0.00132647272)
_LOG2_E = 1.0 / math.log(2.0)
# (e^r - 1)/r: the polynomial of (2^t - 1)/t at t = r·log2(e).
_EXPM1 = tuple(coefficient * _LOG2_E ** (power + 1) for power, coefficient in enumerate(EXP2))
_LN2_HIGH = 0.693145751953125  # its products with a small integer are exact
_LN2_LOW = math.log(2.0) - _LN2_HIGH
_ROUND = 1.5 * 2.0**23  # added, it leaves a float32's integer part in the low bits of its significand
_BIAS, _SIGNIFICAND_BITS, _SIGN = 127, 23, -(2**31)
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


def _split(x: Any, lanes: int, bias: int = _BIAS) -> tuple[Any, Any]:
    """Return r and 2^k of x = k·ln 2 + r, 0 for k = -127; with a `bias` less by one 2^(k-1).

    The biased exponent comes with the shift, whose own bits are past the end of the word.
    """
    shift = const(_ROUND + bias, lanes)
    shifted = named(multiply_add(x, const(_LOG2_E, lanes), shift, lanes), lanes)
    power = reinterpreted(shifted, "int32", lanes) << const(_SIGNIFICAND_BITS, lanes, "int32")
    whole = named(shifted - shift, lanes)
    if fuses():  # ln 2 is a float32 to 2e-9, so that 127 of it are to 2.4e-7
        r = multiply_add(whole, const(-math.log(2.0), lanes), x, lanes)
    else:
        r = named(x - whole * const(_LN2_HIGH, lanes), lanes) - whole * const(_LN2_LOW, lanes)
    return named(r, lanes), named(reinterpreted(power, DTYPE, lanes), lanes)


def _expm1(r: Any, lanes: int, factor: float = 1.0) -> Any:
    """Return a multiple of e^r - 1 of a remainder."""
    return r * polynomial([factor * coefficient for coefficient in _EXPM1], r, lanes)


def exp(lanes: int, x: Any) -> Any:
    """Return e^x."""
    # 2^128 has no bits of its own, so what it is multiplied with is twice as large.
    r, half = _split(_within(x, lanes, _LEAST, _MOST), lanes, _BIAS - 1)
    return (_expm1(r, lanes, 2.0) + const(2.0, lanes)) * half


def exp_of_negative(lanes: int, x: Any) -> Any:
    """Return e^x of x ≤ 0, which needs fewer instructions; 0 below 2⁻¹²⁶."""
    r, power = _split(named(clip(x, lanes, _VANISHES, None), lanes), lanes)
    return (_expm1(r, lanes) + const(1.0, lanes)) * power


def tanh(lanes: int, x: Any) -> Any:
    """Return tanh x."""
    x = named(x, lanes)
    doubled = _within(x * const(2.0, lanes), lanes, -_SATURATED, _SATURATED)
    r, power = _split(doubled, lanes)
    e = named(_expm1(r, lanes) * power + (power - const(1.0, lanes)), lanes)
    value = reinterpreted(e / (e + const(2.0, lanes)), "int32", lanes)
    sign = reinterpreted(x, "int32", lanes) & const(_SIGN, lanes, "int32")  # of -0, which the sum loses
    return reinterpreted(value | sign, DTYPE, lanes)


def sigmoid(lanes: int, x: Any) -> Any:
    """Return 1/(1 + e^-x)."""
    one = const(1.0, lanes)
    return one / (one + exp(lanes, const(0.0, lanes) - x))
