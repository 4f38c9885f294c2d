"""Functions of elements made of others: signs, powers of two, running sums of exponentials."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dietcode.graph.tensor_type import axis_of
from dietcode.models.importing.builder import GraphBuilder
from dietcode.models.importing.context import Imported, Importer, dtype_name, rule
from dietcode.models.importing.spelled_out import (
    hard_sigmoid,
    hard_swish,
    is_infinite,
    is_nan,
    mish,
)


def _read(m: Importer, a: Mapping[str, Any], fake: Any) -> str:
    return str(m.cast(m.tensor(a["self"]), dtype_name(fake.dtype)))


def _is_negative(m: GraphBuilder, x: str) -> str:
    """Return where a sign bit is set, that of -0.0 too."""
    if m.type(x).dtype.startswith("float"):
        x = m.add("copysign", 1.0, x)
    return m.add("less", x, 0)


def _of_one(
    m: Importer, a: Mapping[str, Any], fake: Any, *, function: Callable[[GraphBuilder, str], str]
) -> Imported:
    x, dtype = m.tensor(a["self"]), dtype_name(fake.dtype)
    return function(m, x if dtype == "bool" else str(m.cast(x, dtype)))


for _name, _function in {
    "hardsigmoid": hard_sigmoid,
    "hardswish": hard_swish,
    "isinf": is_infinite,
    "isnan": is_nan,
    "mish": mish,
    "signbit": _is_negative,
}.items():
    rule(f"aten.{_name}.default", function=_function)(_of_one)


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
    x, dtype = _read(m, a, fake), dtype_name(fake.dtype)
    if not m.rank(x):
        return x
    x = str(m.cast(x, "float64"))  # sums near 1 have logarithms of few digits
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
    return m.cast(x, dtype)


def _log_of_both(m: Importer, x: str, y: str) -> str:
    greatest = m.add("maximum", x, y)
    # beside an infinite term nothing is to be told apart
    is_infinite = m.add("less_equal", math.inf, m.add("abs", greatest))
    other = m.add("exp", m.add("neg", m.add("abs", m.add("sub", x, y))))
    return m.add("where", is_infinite, greatest, m.add("add", greatest, m.add("log1p", other)))
