"""Arithmetic on vectors whose rounding is the same in every micro-kernel.

LLVM fuses a product with an addition that follows, but only within one basic block, which differs between
micro-kernels. So multiply-adds are written as such, and a product that is rounded by itself is fenced.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx

from dietcode.search_space.exponentials import EXP2
from dietcode.search_space.tir import DTYPE
from dietcode.search_space.vectors import const, named, reinterpreted, vector

_LOG2_E = 1.0 / math.log(2.0)
_ROUND = 1.5 * 2.0**23  # added, it leaves a float32's integer part in the low bits of its significand
_BIAS, _SIGNIFICAND_BITS = 127, 23
_VANISHES = -88.0  # 2^k is 0 there


def fma(a: Any, b: Any, c: Any, lanes: int) -> Any:
    """Return a·b + c, rounded once."""
    return tirx.call_llvm_intrin(vector(DTYPE, lanes), "llvm.fma", a, b, c)


def product(a: Any, b: Any, lanes: int) -> Any:
    """Return a·b, rounded."""
    return tirx.call_llvm_intrin(vector(DTYPE, lanes), "llvm.arithmetic.fence", a * b)


def exp_of_negative(x: Any, lanes: int) -> Any:
    """Return e^x of numbers up to 0, with exactly 1 at 0 and 0 below 2^-126; NaN stays NaN."""
    x = named(x, lanes)
    least, log2_e = const(_VANISHES, lanes), const(_LOG2_E, lanes)
    within = named(tirx.Select(x < least, least, x), lanes)
    # The exponent's bias comes with the shift, whose own bits are past the end of the word.
    shift = const(_ROUND + _BIAS, lanes)
    shifted = named(fma(within, log2_e, shift, lanes), lanes)
    whole = named(shifted - shift, lanes)
    rest = named(fma(within, log2_e, const(0.0, lanes) - whole, lanes), lanes)
    power = reinterpreted(shifted, "int32", lanes) << const(_SIGNIFICAND_BITS, lanes, "int32")
    *lower, result = [const(coefficient, lanes) for coefficient in (1.0, *EXP2)]
    for coefficient in reversed(lower):
        result = fma(result, rest, coefficient, lanes)
    return product(result, reinterpreted(power, DTYPE, lanes), lanes)


def larger_number(a: Any, b: Any, lanes: int) -> Any:
    """Return the larger, `a` where `b` is NaN."""
    a, b = named(a, lanes), named(b, lanes)
    return named(tirx.Select(b > a, b, a), lanes)


def finite(x: Any, lanes: int) -> Any:
    """Return x, 0 where it is -inf."""
    return named(tirx.Select(x <= const(-math.inf, lanes), const(0.0, lanes), x), lanes)


def add(a: Any, b: Any, lanes: int) -> Any:
    """Return a + b of values that are no products."""
    return named(named(a, lanes) + named(b, lanes), lanes)


def in_every_lane(combine: Callable[[Any, Any, int], Any], value: Any, lanes: int) -> Any:
    """Return all lanes combined, in every lane: halves are exchanged, quarters, and so on."""
    value, distance = named(value, lanes), lanes // 2
    while distance:
        order = [tirx.IntImm("int32", k ^ distance) for k in range(lanes)]
        value = named(combine(value, tirx.Shuffle([value], order), lanes), lanes)
        distance //= 2
    return value
