"""Epilogue stages on one vector, or one element, of the output, and its conversion.

Nothing here calls libm, whose functions take one element at a time. silu and both forms of gelu are

    y = x · σ(h(x)) = x / (1 + 2^(x·P(x²))),

with P constant for silu, linear for gelu's tanh form, and of degree 6 for its erf form; 2^z is a shift of the
exponent and a polynomial. Errors are below 2e-7·max(1, |x|); far from zero y is x or -0 exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from dietcode.search_space.exponentials import EXP2, clip, sigmoid, tanh
from dietcode.search_space.stage import Stage
from dietcode.search_space.tir import DTYPE
from dietcode.search_space.vectors import const, named, polynomial, reinterpreted, vector

# P: log2 of the odds of σ(h(x)) is -x·P(x²), lowest power first.
#
# silu: h(x) = x. tanh form: h(x) = 2·sqrt(2/π)·(x + 0.044715·x³), from (1 + tanh u)/2 = σ(2u) (Hendrycks and
# Gimpel, "Gaussian Error Linear Units", 2016). erf form: h(x) = ln(Φ(x)/Φ(-x)), so that σ(h(x)) = Φ(x); P is
# fitted to -h(x)/(x·ln 2) in x² on |x| ≤ 5.5: least squares on 3000 Chebyshev nodes, weighted by what an
# error of P does to y (ln 2·x²·Φ(x)·Φ(-x)/max(1, |x|)) and reweighted by the residuals until they are level
# (Lawson's algorithm); largest error 2.2e-8 before rounding. A test fits it again.
_ODDS = {
    "silu": (-1.44269504,),
    "gelu-tanh": (-2.3022082, -0.10294324),
    "gelu-erf": (
        -2.30221035,
        -0.10483218,
        9.1586537e-05,
        1.6043909e-04,
        -1.15779189e-05,
        3.91635236e-07,
        -5.32833864e-09,
    ),
}
# Beyond it P stays what it is there; Φ(-5.5) is 2e-8.
_LARGEST_SQUARE = {"gelu-erf": 5.5**2}
_ROUND = 1.5 * 2.0**23  # added, it leaves a float32's integer part in the low bits of its significand
_BIAS, _SIGNIFICAND_BITS = 127, 23
_LEAST = -128.0  # there and below, silu and gelu are -0


def apply(stage: Stage, value: Any, lanes: int, read: Callable[[str], Any]) -> Any:
    """Apply one stage; emits the statements that it needs.

    Parameters
    ----------
    stage : Stage
        Of any kind.
    value : float32 expression [lanes]
        Result of the stage before; a scalar for one lane.
    lanes : int
        Elements of the vector.
    read : callable
        ``tensor name -> float32 expression [lanes]``: the tensor at the index of `value`.

    Returns
    -------
    float32 expression [lanes]
    """
    if stage.tensor is not None:  # bias, residual
        return value + read(stage.tensor)
    if isinstance(stage.value, float):  # scale
        return value * const(stage.value, lanes)
    value = named(value, lanes)
    if isinstance(stage.value, tuple):
        return clip(value, lanes, *stage.value)
    if stage.kind == "relu":
        zero = const(0.0, lanes)
        return tirx.Select(value < zero, zero, value)  # keeps NaN, which max would drop
    if stage.kind in _ODDS:
        return _gate(stage.kind, value, lanes)
    return _OTHERS[stage.kind](lanes, value)


def _gate(kind: str, value: Any, lanes: int) -> Any:
    """Return ``x / (1 + 2^(x·P(x²)))``."""
    least = const(_LEAST, lanes)
    x = named(tirx.Select(value < least, least, value), lanes)  # -inf/inf would be NaN
    coefficients = _ODDS[kind]
    if len(coefficients) == 1:
        odds = x * const(coefficients[0], lanes)
    else:
        square = x * x
        if kind in _LARGEST_SQUARE:
            square = tirx.min(square, const(_LARGEST_SQUARE[kind], lanes))
        odds = x * polynomial(coefficients, named(square, lanes), lanes)
    return x / (_exp2(odds, lanes) + const(1.0, lanes))


def _exp2(z: Any, lanes: int) -> Any:
    """Return 2^z; 0 below -126.5, infinite above 127.5, anything for NaN."""
    z = named(tirx.min(tirx.max(z, const(-127.0, lanes)), const(128.0, lanes)), lanes)
    # The exponent's bias comes with the shift, whose own bits are past the end of the word. It is 0 for -127,
    # which makes 0, and 255 for 128, which makes infinity.
    shift = const(_ROUND + _BIAS, lanes)
    shifted = named(z + shift, lanes)
    power = reinterpreted(shifted, "int32", lanes) << const(_SIGNIFICAND_BITS, lanes, "int32")
    whole = named(shifted - shift, lanes)
    rest = named(z - whole, lanes)  # exact, in [-1/2, 1/2]
    return (rest * polynomial(EXP2, rest, lanes) + const(1.0, lanes)) * reinterpreted(power, DTYPE, lanes)


def _hardsigmoid(lanes: int, x: Any) -> Any:
    """Return min(max(x + 3, 0), 6) / 6."""
    return clip(x + const(3.0, lanes), lanes, 0.0, 6.0) * const(1.0 / 6.0, lanes)


def _hardswish(lanes: int, x: Any) -> Any:
    """Return x · hardsigmoid x; -0 far below zero, where -inf · 0 would be NaN."""
    x = named(clip(x, lanes, -3.0, None), lanes)
    return x * _hardsigmoid(lanes, x)


_OTHERS: dict[str, Callable[[int, Any], Any]] = {
    "tanh": tanh,
    "sigmoid": sigmoid,
    "hardsigmoid": _hardsigmoid,
    "hardswish": _hardswish,
}


def convert(value: Any, dtype: str, lanes: int) -> Any:
    """Return what to store for `value` in an output of `dtype`, see `dietcode.workload.dtypes.STORAGE`.

    Rounds to nearest, ties to even; overflow becomes infinity, and NaN stays NaN.

    Parameters
    ----------
    value : float32 expression [lanes]
    dtype : str
        float32, float16 or bfloat16.

    Returns
    -------
    expression [lanes] of float32, float16, or uint16: the bits of a bfloat16
    """
    if dtype == DTYPE:
        return value
    if dtype == "float16":
        return tirx.Cast(vector("float16", lanes), value)
    bits = named(reinterpreted(value, "uint32", lanes), lanes, "uint32")
    high = named(bits >> const(16, lanes, "uint32"), lanes, "uint32")
    # Half a unit in the last place, less one where the digit before is even: ties go to even.
    rounded = (bits + (high & const(1, lanes, "uint32")) + const(0x7FFF, lanes, "uint32")) >> const(
        16, lanes, "uint32"
    )
    quiet = high | const(0x40, lanes, "uint32")  # a NaN of low bits alone would become infinity
    # `value != value` would be folded away.
    is_nan = (bits & const(0x7FFFFFFF, lanes, "uint32")) > const(0x7F800000, lanes, "uint32")
    return tirx.Cast(vector("uint16", lanes), tirx.Select(is_nan, quiet, rounded))


def widen(value: Any, dtype: str) -> Any:
    """Return the float32 value of one element that is stored in `dtype`.

    Parameters
    ----------
    value : expression
        See `dietcode.workload.dtypes.STORAGE`.
    """
    if dtype == DTYPE:
        return value
    if dtype == "float16":
        return tirx.Cast(DTYPE, value)
    return reinterpreted(tirx.Cast("uint32", value) << const(16, 1, "uint32"), DTYPE, 1)
