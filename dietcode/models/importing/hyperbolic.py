"""Hyperbolic functions and arcs in operators that graphs have, to the last digits of small numbers too."""

from __future__ import annotations

import math

from dietcode.graph.graph import Value
from dietcode.models.importing.builder import GraphBuilder

_LOG_TERMS = 6


def log_plus_one(b: GraphBuilder, x: str) -> str:
    """Return log(1 + x) to the last digits of small x too: 1 + x would round them away.

    It is ``2·artanh(s)`` for ``s = x / (2 + x)``; where |x| < 1/4 the terms left out are below 1e-11 of it.
    """
    s = b.add("div", x, b.add("add", x, 2.0))
    square = b.add("square", s)
    series: Value = 2 / (2 * _LOG_TERMS + 1)
    for k in range(_LOG_TERMS - 1, -1, -1):
        series = b.add("add", b.add("mul", square, series), 2 / (2 * k + 1))
    is_near = b.add("less", b.add("abs", x), 0.25)
    return b.add("where", is_near, b.add("mul", s, series), b.add("log", b.add("add", x, 1.0)))


def exp_minus_one(b: GraphBuilder, x: str) -> str:
    """Return exp(x) - 1 to the last digits of small x too, by the hyperbolic tangent of half of it."""
    half = b.add("tanh", b.add("mul", x, 0.5))
    near = b.add("div", b.add("mul", half, 2.0), b.add("sub", 1.0, half))
    is_near = b.add("less", b.add("abs", x), 0.5)
    return b.add("where", is_near, near, b.add("sub", b.add("exp", x), 1.0))


def hyperbolic_sine(b: GraphBuilder, x: str) -> str:
    """Return the hyperbolic sine, to the last digits of small x too."""
    size = exp_minus_one(b, b.add("abs", x))
    # (e - 1/e)/2 of e = 1 + size; where e overflows the quotient would be no number
    inverse = b.add("div", 1.0, b.add("add", size, 1.0))
    both = b.add("sub", b.add("add", size, 1.0), inverse)
    near = b.add("add", size, b.add("mul", size, inverse))
    is_near = b.add("less", size, 1.0)
    return b.add("mul", b.add("sign", x), b.add("mul", b.add("where", is_near, near, both), 0.5))


def hyperbolic_cosine(b: GraphBuilder, x: str) -> str:
    """Return the hyperbolic cosine."""
    return b.add("mul", b.add("add", b.add("exp", x), b.add("exp", b.add("neg", x))), 0.5)


def area_sine(b: GraphBuilder, x: str) -> str:
    """Return the inverse of the hyperbolic sine."""
    size = b.add("abs", x)  # the sum of a negative number and its root would lose digits
    root = b.add("add", b.add("sqrt", b.add("add", b.add("square", x), 1.0)), 1.0)
    beyond = b.add("add", size, b.add("mul", size, b.add("div", size, root)))
    return b.add("mul", b.add("sign", x), log_plus_one(b, beyond))


def area_cosine(b: GraphBuilder, x: str) -> str:
    """Return the inverse of the hyperbolic cosine, from 1 up."""
    roots = [b.add("sqrt", b.add("add", x, one)) for one in (-1.0, 1.0)]
    return b.add("log", b.add("add", x, b.add("mul", *roots)))


def area_tangent(b: GraphBuilder, x: str) -> str:
    """Return the inverse of the hyperbolic tangent."""
    beyond = b.add("div", b.add("mul", x, 2.0), b.add("sub", 1.0, x))
    return b.add("mul", log_plus_one(b, beyond), 0.5)


def arc_sine(b: GraphBuilder, x: str) -> str:
    """Return the angle of a sine, by the tangent of half of it."""
    cosine = b.add("sqrt", b.add("mul", b.add("sub", 1.0, x), b.add("add", 1.0, x)))
    return b.add("mul", b.add("atan", b.add("div", x, b.add("add", cosine, 1.0))), 2.0)


def arc_cosine(b: GraphBuilder, x: str) -> str:
    """Return the angle of a cosine."""
    return b.add("sub", math.pi / 2, arc_sine(b, x))


FUNCTIONS = {
    **{"sinh": hyperbolic_sine, "cosh": hyperbolic_cosine, "asin": arc_sine, "acos": arc_cosine},
    **{"asinh": area_sine, "acosh": area_cosine, "atanh": area_tangent},
}
