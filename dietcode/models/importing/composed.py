"""Functions of elements made of others: hyperbolic ones, arcs, logarithms of other bases, signs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dietcode.graph.tensor_type import axis_of
from dietcode.models.importing.builder import GraphBuilder
from dietcode.models.importing.context import Imported, Importer, Rule, dtype_name, rule
from dietcode.models.importing.hyperbolic import FUNCTIONS, exp_minus_one, log_plus_one
from dietcode.models.importing.spelled_out import arc_tangent


def _read(m: Importer, a: Mapping[str, Any], fake: Any) -> str:
    return str(m.cast(m.tensor(a["self"]), dtype_name(fake.dtype)))


def _of_elements(function: Callable[[GraphBuilder, str], str]) -> Rule:
    def translate(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
        return function(m, _read(m, a, fake))

    return translate


for _name, _function in {**FUNCTIONS, "log1p": log_plus_one, "expm1": exp_minus_one}.items():
    rule(f"aten.{_name}.default")(_of_elements(_function))


def _logarithm(base: float) -> Rule:
    def translate(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
        natural = m.add("log", _read(m, a, fake))
        return m.add("mul", natural, 1 / math.log(base))

    return translate


rule("aten.log2.default")(_logarithm(2))
rule("aten.log10.default")(_logarithm(10))


@rule("aten.exp2.default")
def _exp2(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.add("exp", m.add("mul", _read(m, a, fake), math.log(2)))


@rule("aten.erfc.default", "aten.special_erfc.default")
def _erfc(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.add("sub", 1.0, m.add("erf", _read(m, a, fake)))


@rule("aten.tan.default")
def _tan(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = _read(m, a, fake)
    return m.add("div", m.add("sin", x), m.add("cos", x))


@rule("aten.atan2.default")
def _atan2(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    y, x = (str(m.cast(m.tensor(a[key]), dtype_name(fake.dtype))) for key in ("self", "other"))
    return arc_tangent(m, y, x)


@rule("aten.hypot.default")
def _hypot(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.add("sqrt", m.add("add", *(m.add("square", m.tensor(a[key])) for key in ("self", "other"))))


def _is_negative(m: Importer, x: str) -> str:
    """Return where a sign bit is set, that of -0.0 too; the sign of what is no number is not told."""
    below = m.add("less", x, 0)
    if not m.type(x).dtype.startswith("float"):
        return below
    return m.add("or", below, m.add("less", m.add("div", 1.0, x), 0.0))


@rule("aten.signbit.default")
def _signbit(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return _is_negative(m, m.tensor(a["self"]))


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
