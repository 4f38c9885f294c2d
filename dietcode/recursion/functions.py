"""Functions that the host's library has, by those that blocks have, to the last digits of float32.

Each formula is chosen so that nothing overflows, vanishes or cancels on the way to a result that does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from dietcode.graph.graph import Value
from dietcode.models.rewriting.rewriter import Rewriter

_LOG_TERMS = 6
_LN2_HIGH = 0.693145751953125  # its products with a small integer are exact
_LN2_LOW = math.log(2.0) - _LN2_HIGH
_ALL_OF_EXP = 200.0  # beyond it 2^x is 0 or infinite, as e^x is
_LARGE = 2e4  # 1/x² is nothing beside 1 from here on


def _less(r: Rewriter, a: Value, b: Value) -> str:
    return r.add("less", a, b, dtype="float32")


def _where(r: Rewriter, condition: str, a: Value, b: Value) -> str:
    return r.add("where", condition, a, b, dtype="float32")


def _odd(r: Rewriter, x: str, value: str) -> str:
    """Return a value with the sign of x; x itself where it is 0 or no number."""
    return _where(r, _less(r, x, 0.0), r.add("neg", value), _where(r, _less(r, 0.0, x), value, x))


def _truncated(r: Rewriter, x: str) -> str:
    return _where(r, _less(r, x, 0.0), r.add("ceil", x), r.add("floor", x))


def _log_plus_one(r: Rewriter, x: str) -> str:
    """Return ``2·artanh(s)``, ``s = x / (2 + x)``, for |x| < 1/4, to 1e-11 of it."""
    s = r.add("div", x, r.add("add", x, 2.0))
    square = r.add("square", s)
    found: Value = 2 / (2 * _LOG_TERMS + 1)
    for k in range(_LOG_TERMS - 1, -1, -1):
        found = r.add("add", r.add("mul", square, found), 2 / (2 * k + 1))
    is_near = _less(r, r.add("abs", x), 0.25)
    return _where(r, is_near, r.add("mul", s, found), r.add("log", r.add("add", x, 1.0)))


def _exp_minus_one(r: Rewriter, x: str) -> str:
    """Return ``2 t / (1 + |t|) · exp(max(x, 0))``, ``t = tanh(x / 2)``."""
    t = r.add("tanh", r.add("mul", x, 0.5))
    below = r.add("div", r.add("mul", t, 2.0), r.add("add", r.add("abs", t), 1.0))
    return r.add("mul", below, r.add("exp", r.add("relu", x)))


def _power_of_two(r: Rewriter, x: str) -> str:
    whole = r.add("floor", x)
    rest = r.add("add", r.add("mul", r.add("sub", x, whole), math.log(2.0)), r.add("mul", whole, _LN2_LOW))
    found = r.add("mul", r.add("exp", r.add("mul", whole, _LN2_HIGH)), r.add("exp", rest))
    return _where(r, _less(r, r.add("abs", x), _ALL_OF_EXP), found, r.add("exp", x))


def _hyperbolic_cosine(r: Rewriter, x: str) -> str:
    half = r.add("exp", r.add("mul", r.add("abs", x), 0.5))
    small = r.add("div", r.add("div", 0.5, half), half)
    return r.add("add", r.add("mul", r.add("mul", half, 0.5), half), small)


def _hyperbolic_sine(r: Rewriter, x: str) -> str:
    return r.add("mul", r.add("tanh", x), _hyperbolic_cosine(r, x))


def _log_of_twice(r: Rewriter, x: str) -> str:
    return r.add("add", r.add("log", x), math.log(2.0))


def _area_sine(r: Rewriter, x: str) -> str:
    size = r.add("abs", x)
    root = r.add("add", r.add("sqrt", r.add("add", r.add("square", x), 1.0)), 1.0)
    beyond = r.add("add", size, r.add("mul", size, r.add("div", size, root)))
    return _odd(r, x, _where(r, _less(r, size, _LARGE), _log_plus_one(r, beyond), _log_of_twice(r, size)))


def _area_cosine(r: Rewriter, x: str) -> str:
    above = r.add("sub", x, 1.0)
    root = r.add("mul", r.add("sqrt", above), r.add("sqrt", r.add("add", above, 2.0)))
    near = _log_plus_one(r, r.add("add", above, root))
    return _where(r, _less(r, x, _LARGE), near, _log_of_twice(r, x))


def _area_tangent(r: Rewriter, x: str) -> str:
    size = r.add("abs", x)
    beyond = r.add("div", r.add("mul", size, 2.0), r.add("sub", 1.0, size))
    return _odd(r, x, r.add("mul", _log_plus_one(r, beyond), 0.5))


def _signed(r: Rewriter, x: Value, sign: Value) -> str | None:
    if not isinstance(sign, str) or x is None:
        return None
    size = r.add("abs", x) if isinstance(x, str) else abs(x)
    negative = r.add("maximum", _less(r, sign, 0.0), _less(r, r.add("div", 1.0, sign), 0.0))
    return _where(r, negative, r.add("neg", size) if isinstance(size, str) else -size, size)


def _length(r: Rewriter, x: Value, y: Value) -> str:
    a, b = (r.add("abs", one) for one in (x, y))
    longer, shorter = r.add("maximum", a, b), r.add("minimum", a, b)
    share = _where(r, _less(r, 0.0, longer), r.add("div", shorter, longer), 0.0)
    return r.add("mul", longer, r.add("sqrt", r.add("add", r.add("square", share), 1.0)))


def _remainder(r: Rewriter, x: Value, y: Value) -> str:
    return r.add("sub", x, r.add("mul", _truncated(r, r.add("div", x, y)), y))


FUNCTIONS: Mapping[str, Callable[..., str | None]] = {
    "acosh": _area_cosine,
    "asinh": _area_sine,
    "atanh": _area_tangent,
    "copysign": _signed,
    "cosh": _hyperbolic_cosine,
    "exp2": _power_of_two,
    "expm1": _exp_minus_one,
    "fmod": _remainder,
    "hypot": _length,
    "log10": lambda r, x: r.add("mul", r.add("log", x), 1 / math.log(10)),
    "log1p": _log_plus_one,
    "log2": lambda r, x: r.add("mul", r.add("log", x), 1 / math.log(2)),
    "sinh": _hyperbolic_sine,
    "tan": lambda r, x: r.add("div", r.add("sin", x), r.add("cos", x)),
    "trunc": _truncated,
}
"""By operator: ``(rewriter, *operands) -> value``, None for what has no formula."""
