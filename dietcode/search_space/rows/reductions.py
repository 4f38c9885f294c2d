"""Reductions along a row: what each begins with, and how two of its values become one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dietcode.search_space.pointwise import larger_number

Combine = Callable[[int, Any, Any], Any]

BEGIN = {"sum": 0.0, "mean": 0.0, "max": -math.inf, "min": math.inf, "max-of-numbers": -math.inf}
"""By the kind of a reduction."""


def combine_by(maximum: Combine, minimum: Combine) -> dict[str, Combine]:
    """Return ``(lanes, a, b) -> result`` by the kind of a reduction.

    Parameters
    ----------
    maximum, minimum : callable
        Those of a processor, which keep NaN.
    """
    return {"sum": _add, "mean": _add, "max": maximum, "min": minimum, "max-of-numbers": larger_number}


def _add(lanes: int, a: Any, b: Any) -> Any:
    return a + b
