"""Functions of elements made of others: hyperbolic ones, arcs, logarithms of other bases, signs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dietcode.models.importing.context import Imported, Importer, Rule, dtype_name, rule
from dietcode.models.importing.spelled_out import arc_tangent


@rule("aten.log1p.default")
def _log1p(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.add("log", m.add("add", m.cast(m.tensor(a["self"]), dtype_name(fake.dtype)), 1.0))


@rule("aten.expm1.default")
def _expm1(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.add("sub", m.add("exp", m.cast(m.tensor(a["self"]), dtype_name(fake.dtype))), 1.0)


def _logarithm(base: float) -> Rule:
    def translate(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
        natural = m.add("log", m.cast(m.tensor(a["self"]), dtype_name(fake.dtype)))
        return m.add("mul", natural, 1 / math.log(base))

    return translate


rule("aten.log2.default")(_logarithm(2))
rule("aten.log10.default")(_logarithm(10))


def _hyperbolic(sign: str, halved: bool) -> Rule:
    """Return a rule for a sum or difference of an exponential and its inverse."""

    def translate(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
        x = m.cast(m.tensor(a["self"]), dtype_name(fake.dtype))
        both = m.add(sign, m.add("exp", x), m.add("exp", m.add("neg", x)))
        return m.add("mul", both, 0.5) if halved else both

    return translate


rule("aten.sinh.default")(_hyperbolic("sub", halved=True))
rule("aten.cosh.default")(_hyperbolic("add", halved=True))


def _arc_sine(m: Importer, a: Mapping[str, Any], fake: Any) -> str:
    """Return the angle of a sine, by the tangent of half of it."""
    x = m.cast(m.tensor(a["self"]), dtype_name(fake.dtype))
    cosine = m.add("sqrt", m.add("mul", m.add("sub", 1.0, x), m.add("add", 1.0, x)))
    return m.add("mul", m.add("atan", m.add("div", x, m.add("add", cosine, 1.0))), 2.0)


rule("aten.asin.default")(_arc_sine)


@rule("aten.acos.default")
def _arc_cosine(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.add("sub", math.pi / 2, _arc_sine(m, a, fake))


@rule("aten.exp2.default")
def _exp2(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.add("exp", m.add("mul", m.cast(m.tensor(a["self"]), dtype_name(fake.dtype)), math.log(2)))


@rule("aten.erfc.default", "aten.special_erfc.default")
def _erfc(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.add("sub", 1.0, m.add("erf", m.cast(m.tensor(a["self"]), dtype_name(fake.dtype))))


@rule("aten.tan.default")
def _tan(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.cast(m.tensor(a["self"]), dtype_name(fake.dtype))
    return m.add("div", m.add("sin", x), m.add("cos", x))


@rule("aten.atan2.default")
def _atan2(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    y, x = (str(m.cast(m.tensor(a[key]), dtype_name(fake.dtype))) for key in ("self", "other"))
    return arc_tangent(m, y, x)


@rule("aten.hypot.default")
def _hypot(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.add("sqrt", m.add("add", *(m.add("square", m.tensor(a[key])) for key in ("self", "other"))))


@rule("aten.asinh.default")
def _area_sine(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.cast(m.tensor(a["self"]), dtype_name(fake.dtype))
    size = m.add("abs", x)  # the sum of a negative number and its root would lose digits
    root = m.add("sqrt", m.add("add", m.add("square", x), 1.0))
    return m.add("mul", m.add("sign", x), m.add("log", m.add("add", size, root)))


@rule("aten.acosh.default")
def _area_cosine(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.cast(m.tensor(a["self"]), dtype_name(fake.dtype))
    roots = [m.add("sqrt", m.add("add", x, one)) for one in (-1.0, 1.0)]
    return m.add("log", m.add("add", x, m.add("mul", *roots)))


@rule("aten.atanh.default")
def _area_tangent(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.cast(m.tensor(a["self"]), dtype_name(fake.dtype))
    return m.add("mul", m.add("log", m.add("div", m.add("add", 1.0, x), m.add("sub", 1.0, x))), 0.5)


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
    size, other = m.add("abs", m.cast(m.tensor(a["self"]), dtype_name(fake.dtype))), m.value(a["other"])
    if isinstance(other, str):
        return m.add("where", _is_negative(m, other), m.add("neg", size), size)
    return m.add("neg", size) if other is not None and math.copysign(1.0, other) < 0 else size


@rule("aten.ldexp.Tensor")
def _ldexp(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    dtype = dtype_name(fake.dtype)
    power = m.add("pow", 2.0, m.cast(m.tensor(a["other"]), dtype))
    return m.add("mul", m.cast(m.tensor(a["self"]), dtype), power)
