"""Functions of statistics, by series that are as exact as float32 is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.graph.graph import Value
from dietcode.models.importing.context import Imported, Importer, dtype_name, rule

# Of Cephes, in powers of t, the highest first: log Γ(2 + t) / t for |t| ≤ 1/2, log Γ(1 + t) / t for |t| ≤ 1/4
_ABOUT_TWO = (
    *(6.055172732649237e-4, -1.311620815545743e-3, 2.863437556468661e-3, -7.366775108654962e-3),
    *(2.058355474821512e-2, -6.735323259371034e-2, 3.224669577325661e-1, 4.227843421859038e-1),
)
_ABOUT_ONE = (
    *(1.369488127325832e-1, -1.590086327657347e-1, 1.692415923504637e-1, -2.067882815621965e-1),
    *(2.705806208275915e-1, -4.006931650563372e-1, 8.224670749082976e-1, -5.772156501719101e-1),
)
# Of M. Giles, "Approximating the erfinv function", in powers of w - 5/2 for w < 5, of √w - 3 beyond.
_CENTRAL = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_TAIL = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


def _series(m: Importer, t: str, numbers: Sequence[float]) -> str:
    found: Value = numbers[0]
    for number in numbers[1:]:
        found = m.add("add", m.add("mul", t, found), number)
    return str(found)


def _read(m: Importer, a: Mapping[str, Any], fake: Any) -> str:
    return str(m.cast(m.tensor(a["self"]), dtype_name(fake.dtype)))


def _log_gamma_from_half(m: Importer, x: str) -> str:
    """Return log Γ(x) for x from 1/2 up: by its zeros at 1 and 2 where these are near, else by Stirling's."""
    is_low = m.add("less", x, 1.5)
    t = m.add("sub", x, m.add("where", is_low, 1.0, 2.0, dtype=m.type(x).dtype))
    near_two = m.add("mul", t, _series(m, t, _ABOUT_TWO))
    shifted = m.add("sub", near_two, m.add("log", x))  # log Γ(x + 1) - log x
    near_one = m.add("mul", t, _series(m, t, _ABOUT_ONE))
    is_near = m.add("less_equal", m.add("abs", t), 0.25)
    low = m.add("where", is_near, near_one, shifted)
    small = m.add("where", is_low, low, near_two)
    factors = m.add("mul", m.add("mul", x, m.add("add", x, 1.0)), m.add("add", x, 2.0))
    is_small = m.add("less", x, 2.5)
    z = m.add("where", m.add("less", x, 6.0), m.add("add", x, 3.0), x)
    own = m.add("where", m.add("less", x, 6.0), m.add("log", factors), 0.0)
    inverse = m.add("div", 1.0, z)
    square = m.add("square", inverse)
    rest = m.add("mul", inverse, _series(m, square, (1 / 1260, -1 / 360, 1 / 12)))
    slope = m.add("mul", m.add("sub", z, 0.5), m.add("sub", m.add("log", z), 1.0))
    large = m.add("add", slope, m.add("add", rest, 0.5 * math.log(2 * math.pi) - 0.5))
    return m.add("where", is_small, small, m.add("sub", large, own))


@rule("aten.lgamma.default")
def _log_gamma(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Return log |Γ(x)|, below 1/2 by Γ(x) Γ(1 - x) = π / sin πx; at 0, -1, … it is infinite."""
    x, dtype = _read(m, a, fake), dtype_name(fake.dtype)
    # Beside its poles the digits of 1 - x count, and those of a difference; from -1e30 down are poles alone.
    x = m.add("maximum", str(m.cast(x, "float64")), -1e30)
    is_below = m.add("less", x, 0.5)
    found = _log_gamma_from_half(m, m.add("where", is_below, m.add("sub", 1.0, x), x))
    part = m.add("sub", x, m.add("round", x))
    sine = m.add("abs", m.add("sin", m.add("mul", part, math.pi)))
    mirrored = m.add("sub", m.add("sub", math.log(math.pi), m.add("log", sine)), found)
    return m.cast(m.add("where", is_below, mirrored, found), dtype)


@rule("aten.special_ndtr.default")
def _normal_distribution(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.add("mul", m.add("erfc", m.add("mul", _read(m, a, fake), -math.sqrt(0.5))), 0.5)


@rule("aten.erfinv.default", "aten.special_erfinv.default")
def _inverse_error_function(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = _read(m, a, fake)
    beside = m.add("mul", m.add("sub", 1.0, x), m.add("add", 1.0, x))
    w = m.add("neg", m.add("log", beside))
    central = _series(m, m.add("sub", w, 2.5), _CENTRAL)
    # at the ends w is infinite; the series is taken at 20 there, which no other float32 reaches
    root = m.add("sub", m.add("sqrt", m.add("clip", w, low=0.0, high=20.0)), 3.0)
    inner = m.add("mul", x, m.add("where", m.add("less", w, 5.0), central, _series(m, root, _TAIL)))
    is_end = m.add("equal", m.add("abs", x), 1.0)
    return m.add("where", is_end, m.add("mul", x, math.inf), inner)
