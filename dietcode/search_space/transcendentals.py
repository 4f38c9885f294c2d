"""Logarithms, sines and cosines on one vector or one element, for all kinds of devices, without libm."""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from dietcode.search_space.tir import DTYPE
from dietcode.search_space.vectors import const, named, polynomial, reinterpreted, vector

_BIAS, _SIGNIFICAND_BITS = 127, 23
_LEAST_NORMAL, _LARGEST = 2.0**-126, 3.4028234663852886e38
_RAISED = 25  # powers of two, for numbers that have fewer bits
_ROOT_OF_HALF_BITS = 0x3F3504F3
# 2·artanh(s)/s in powers of s², for |s| ≤ (√2 - 1)/(√2 + 1): what follows is below 4e-9 of it.
_ARTANH = (2.0, 2.0 / 3.0, 2.0 / 5.0, 2.0 / 7.0, 2.0 / 9.0)
_LN2_HIGH = 0.693145751953125  # its products with a small integer are exact
_LN2_LOW = math.log(2.0) - _LN2_HIGH
# sin(r)/r and cos(r) in powers of r², for |r| ≤ π/4: what follows is below 3e-9.
_SIN = (1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5040.0, 1.0 / 362880.0)
_COS = (1.0, -1.0 / 2.0, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40320.0)
_LARGEST_REMAINDER = 0.8


def log(lanes: int, x: Any) -> Any:
    """Return ln x: -inf of zeros, NaN below."""
    x = named(x, lanes)
    is_small = x < const(_LEAST_NORMAL, lanes)
    raised = named(tirx.Select(is_small, x * const(2.0**_RAISED, lanes), x), lanes)
    less = tirx.Select(is_small, const(float(_RAISED), lanes), const(0.0, lanes))
    bits = named(reinterpreted(raised, "int32", lanes), lanes, "int32")
    half = const(_ROOT_OF_HALF_BITS, lanes, "int32")
    shift = const(_SIGNIFICAND_BITS, lanes, "int32")
    power = named((bits - half) >> shift, lanes, "int32")
    f = named(reinterpreted(bits - (power << shift), DTYPE, lanes) - const(1.0, lanes), lanes)
    exponent = named(tirx.Cast(vector(DTYPE, lanes), power) - less, lanes)
    s = named(f / (f + const(2.0, lanes)), lanes)
    square = named(s * s, lanes)
    of_f = s * polynomial(_ARTANH, square, lanes)
    value = exponent * const(_LN2_HIGH, lanes) + (of_f + exponent * const(_LN2_LOW, lanes))
    zero = const(0.0, lanes)
    value = tirx.Select(x > const(_LARGEST, lanes), x, value)
    value = tirx.Select(x <= zero, const(-math.inf, lanes), value)
    return tirx.Select(x >= zero, value, tirx.sqrt(x))  # NaN of NaN and of what is below zero


def sin(lanes: int, x: Any) -> Any:
    """Return sin x."""
    return _wave(lanes, x, 0.0)


def cos(lanes: int, x: Any) -> Any:
    """Return cos x."""
    return _wave(lanes, x, 1.0)


def _wave(lanes: int, x: Any, ahead: float) -> Any:
    """Return sin(x + ahead·π/2); the remainder is taken in float64, exact to 1e-8 for |x| ≤ 1e8."""
    wide = vector("float64", lanes)
    x = named(tirx.Cast(wide, x), lanes, "float64")
    zero = named(const(0.0, lanes, "float64"), lanes, "float64")  # added to -0, which would make 0 of x = -0
    turns = tirx.nearbyint(x * const(2.0 / math.pi, lanes, "float64")) + zero
    turns = named(turns, lanes, "float64")
    apart = x - turns * const(math.pi / 2.0, lanes, "float64")
    r = named(tirx.Cast(vector(DTYPE, lanes), apart), lanes)
    for bound in (-_LARGEST_REMAINDER, _LARGEST_REMAINDER):  # numbers that are too large stay within ±1
        edge = const(bound, lanes)
        r = named(tirx.Select(r < edge if bound < 0 else r > edge, edge, r), lanes)
    turns = named(turns + const(ahead, lanes, "float64"), lanes, "float64")
    quarter = const(0.25, lanes, "float64")
    four = const(4.0, lanes, "float64")
    quadrant = named(tirx.Cast(vector(DTYPE, lanes), turns - tirx.floor(turns * quarter) * four), lanes)
    square = named(r * r, lanes)
    sine = named(r * polynomial(_SIN, square, lanes), lanes)
    cosine = named(polynomial(_COS, square, lanes), lanes)
    one, two = const(1.0, lanes), const(2.0, lanes)
    is_odd = tirx.Select(quadrant >= two, quadrant - two, quadrant) >= one
    value = named(tirx.Select(is_odd, cosine, sine), lanes)
    return tirx.Select(quadrant < two, value, const(0.0, lanes) - value)
