"""Functions of elements made of others: hyperbolic ones, arcs, logarithms of other bases, signs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dietcode.graph.graph import Value
from dietcode.graph.tensor_type import axis_of
from dietcode.models.importing.builder import GraphBuilder
from dietcode.models.importing.context import Imported, Importer, dtype_name, rule
from dietcode.models.importing.spelled_out import (
    arc_tangent,
    hard_sigmoid,
    hard_swish,
    is_infinite,
    is_nan,
    mish,
    tangent,
    towards_zero,
)

_LOG_TERMS = 6


def _read(m: Importer, a: Mapping[str, Any], fake: Any) -> str:
    return str(m.cast(m.tensor(a["self"]), dtype_name(fake.dtype)))


def _log_plus_one(m: GraphBuilder, x: str) -> str:
    """Return log(1 + x) to the last digits of small x too: 1 + x would round them away.

    It is ``2·artanh(s)`` for ``s = x / (2 + x)``; where |x| < 1/4 the terms left out are below 1e-11 of it.
    """
    s = m.add("div", x, m.add("add", x, 2.0))
    square = m.add("square", s)
    series: Value = 2 / (2 * _LOG_TERMS + 1)
    for k in range(_LOG_TERMS - 1, -1, -1):
        series = m.add("add", m.add("mul", square, series), 2 / (2 * k + 1))
    is_near = m.add("less", m.add("abs", x), 0.25)
    return m.add("where", is_near, m.add("mul", s, series), m.add("log", m.add("add", x, 1.0)))


def _exp_minus_one(m: GraphBuilder, x: str) -> str:
    """Return exp(x) - 1 to the last digits of small x too, by the hyperbolic tangent of half of it."""
    half = m.add("tanh", m.add("mul", x, 0.5))
    near = m.add("div", m.add("mul", half, 2.0), m.add("sub", 1.0, half))
    is_near = m.add("less", m.add("abs", x), 0.5)
    return m.add("where", is_near, near, m.add("sub", m.add("exp", x), 1.0))


def _hyperbolic_sine(m: GraphBuilder, x: str) -> str:
    size = _exp_minus_one(m, m.add("abs", x))
    # (e - 1/e)/2 of e = 1 + size; where e overflows the quotient would be no number
    inverse = m.add("div", 1.0, m.add("add", size, 1.0))
    both = m.add("sub", m.add("add", size, 1.0), inverse)
    near = m.add("add", size, m.add("mul", size, inverse))
    is_near = m.add("less", size, 1.0)
    return m.add("mul", m.add("sign", x), m.add("mul", m.add("where", is_near, near, both), 0.5))


def _hyperbolic_cosine(m: GraphBuilder, x: str) -> str:
    return m.add("mul", m.add("add", m.add("exp", x), m.add("exp", m.add("neg", x))), 0.5)


def _arc_sine(m: GraphBuilder, x: str) -> str:
    """Return the angle of a sine, by the tangent of half of it."""
    cosine = m.add("sqrt", m.add("mul", m.add("sub", 1.0, x), m.add("add", 1.0, x)))
    return m.add("mul", m.add("atan", m.add("div", x, m.add("add", cosine, 1.0))), 2.0)


def _arc_cosine(m: GraphBuilder, x: str) -> str:
    return m.add("sub", math.pi / 2, _arc_sine(m, x))


def _complement_of_erf(m: GraphBuilder, x: str) -> str:
    return m.add("sub", 1.0, m.add("erf", x))


def _power_of_two(m: GraphBuilder, x: str) -> str:
    return m.add("exp", m.add("mul", x, math.log(2)))


@rule("aten.atan2.default")
def _atan2(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    y, x = (str(m.cast(m.tensor(a[key]), dtype_name(fake.dtype))) for key in ("self", "other"))
    return arc_tangent(m, y, x)


@rule("aten.hypot.default")
def _hypot(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.add("sqrt", m.add("add", *(m.add("square", m.tensor(a[key])) for key in ("self", "other"))))


def _area_sine(m: GraphBuilder, x: str) -> str:
    size = m.add("abs", x)  # the sum of a negative number and its root would lose digits
    root = m.add("add", m.add("sqrt", m.add("add", m.add("square", x), 1.0)), 1.0)
    beyond = m.add("add", size, m.add("mul", size, m.add("div", size, root)))
    return m.add("mul", m.add("sign", x), _log_plus_one(m, beyond))


def _area_cosine(m: GraphBuilder, x: str) -> str:
    roots = [m.add("sqrt", m.add("add", x, one)) for one in (-1.0, 1.0)]
    return m.add("log", m.add("add", x, m.add("mul", *roots)))


def _area_tangent(m: GraphBuilder, x: str) -> str:
    beyond = m.add("div", m.add("mul", x, 2.0), m.add("sub", 1.0, x))
    return m.add("mul", _log_plus_one(m, beyond), 0.5)


def _is_negative(m: GraphBuilder, x: str) -> str:
    """Return where a sign bit is set, that of -0.0 too; the sign of what is no number is not told."""
    below = m.add("less", x, 0)
    if not m.type(x).dtype.startswith("float"):
        return below
    return m.add("or", below, m.add("less", m.add("div", 1.0, x), 0.0))


def _of_one(
    m: Importer, a: Mapping[str, Any], fake: Any, *, function: Callable[[GraphBuilder, str], str]
) -> Imported:
    x, dtype = m.tensor(a["self"]), dtype_name(fake.dtype)
    return function(m, x if dtype == "bool" else str(m.cast(x, dtype)))


for _name, _function in {
    "acos": _arc_cosine,
    "acosh": _area_cosine,
    "asin": _arc_sine,
    "asinh": _area_sine,
    "atanh": _area_tangent,
    "cosh": _hyperbolic_cosine,
    "erfc": _complement_of_erf,
    "exp2": _power_of_two,
    "expm1": _exp_minus_one,
    "fix": towards_zero,
    "hardsigmoid": hard_sigmoid,
    "hardswish": hard_swish,
    "isinf": is_infinite,
    "isnan": is_nan,
    "log10": lambda m, x: m.add("mul", m.add("log", x), 1 / math.log(10)),
    "log1p": _log_plus_one,
    "log2": lambda m, x: m.add("mul", m.add("log", x), 1 / math.log(2)),
    "mish": mish,
    "signbit": _is_negative,
    "sinh": _hyperbolic_sine,
    "special_erfc": _complement_of_erf,
    "tan": tangent,
    "trunc": towards_zero,
}.items():
    rule(f"aten.{_name}.default", function=_function)(_of_one)


@rule("aten.copysign.Tensor", "aten.copysign.Scalar")
def _copysign(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    size, other = m.add("abs", _read(m, a, fake)), m.value(a["other"])
    if isinstance(other, str):
        return m.add("where", _is_negative(m, other), m.add("neg", size), size)
    return m.add("neg", size) if other is not None and math.copysign(1.0, other) < 0 else size


@rule("aten.ldexp.Tensor")
def _ldexp(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    dtype = dtype_name(fake.dtype)
    power = m.add("pow", 2.0, m.cast(m.tensor(a["other"]), dtype))
    return m.add("mul", m.cast(m.tensor(a["self"]), dtype), power)


@rule("aten.logcumsumexp.default")
def _log_cumulative_sum(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Return logarithms of the sums of exponentials up to each position, by spans that double in length.

    Each sum is taken beside its own greatest term, so that it neither overflows nor vanishes.
    """
    x = _read(m, a, fake)
    if not m.rank(x):
        return x
    axis = axis_of(a["dim"], m.rank(x))
    length = m.type(x).shape[axis]
    _, most = length.bounds(m.graph.ranges)
    span = 1
    while span < most:
        pads = [(0, 0)] * m.rank(x)
        pads[axis] = (span, 0)
        earlier = m.slice(m.add("pad", x, pads=tuple(pads), value=-math.inf), axis, 0, length)
        x = _log_of_both(m, x, earlier)
        span *= 2
    return x


def _log_of_both(m: Importer, x: str, y: str) -> str:
    greatest = m.add("maximum", x, y)
    # beside an infinite term nothing is to be told apart
    is_infinite = m.add("less_equal", math.inf, m.add("abs", greatest))
    base = m.add("where", is_infinite, 0.0, greatest, dtype=m.type(x).dtype)
    total = m.add("add", *(m.add("exp", m.add("sub", one, base)) for one in (x, y)))
    return m.add("where", is_infinite, greatest, m.add("add", base, m.add("log", total)))
