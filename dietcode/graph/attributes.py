"""Attributes of a graph's operators as plain data, checked when they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.graph.extent import Extent
from dietcode.graph.extent_texts import extent_of_text
from dietcode.graph.tensor_type import DTYPES, MAX_RANK, GraphError
from dietcode.workload.text import clip

REQUIRED = object()
_MAX_LISTED = 64


@dataclass(frozen=True)
class GraphAttribute:
    """What an operator takes beside its operands.

    Attributes
    ----------
    read : callable
        Returns the checked value of plain data; raises ValueError with what is allowed.
    default : object
        Value where it is not given, or `REQUIRED`.
    """

    read: Callable[[Any], Any]
    default: Any = None


def read_integer(given: Any) -> int:
    """Return a whole number."""
    if type(given) is not int or abs(given) > 2**62:
        raise GraphError(f"given {clip(given)}; allowed: a whole number")
    return given


def read_count(given: Any) -> int:
    """Return a number of operands."""
    if not 0 <= read_integer(given) <= 4096:
        raise GraphError(f"given {clip(given)}; allowed: 0 to 4096")
    return int(given)


def read_number(given: Any) -> float | int | bool:
    """Return a number or a truth value; infinities are the texts ``inf`` and ``-inf``."""
    if given in ("inf", "-inf", "nan"):
        return float(given)
    if not isinstance(given, int | float) or (isinstance(given, int) and abs(given) > 2**63):
        raise GraphError(f"given {clip(given)}; allowed: a number, whole ones up to 2**63")
    return given


def read_flag(given: Any) -> bool:
    """Return a truth value."""
    if type(given) is not bool:
        raise GraphError(f"given {clip(given)}; allowed: true or false")
    return given


def read_dtype(given: Any) -> str:
    """Return the name of a dtype."""
    if given not in DTYPES:
        raise GraphError(f"given {clip(given)}; allowed: {', '.join(DTYPES)}")
    return str(given)


def read_extent(given: Any) -> Extent:
    """Return an extent."""
    return given if isinstance(given, Extent) else extent_of_text(given)


def _listed(given: Any, most: int) -> Sequence[Any]:
    if not isinstance(given, list | tuple) or len(given) > most:
        raise GraphError(f"given {clip(given)}; allowed: a list of at most {most}")
    return given


def read_integers(given: Any) -> tuple[int, ...]:
    """Return whole numbers."""
    return tuple(read_integer(one) for one in _listed(given, _MAX_LISTED))


def read_shape(given: Any) -> tuple[Extent, ...]:
    """Return extents."""
    return tuple(read_extent(one) for one in _listed(given, MAX_RANK))


def read_pads(given: Any) -> tuple[tuple[int, int], ...]:
    """Return elements before and after, for each axis."""
    pairs = [read_integers(one) for one in _listed(given, MAX_RANK)]
    if any(len(pair) != 2 for pair in pairs):
        raise GraphError(f"given {clip(given)}; allowed: pairs of elements before and after")
    return tuple((pair[0], pair[1]) for pair in pairs)


def read_sub_graph(given: Any) -> Any:
    """Return a sub-graph; plain data of one are read before, by `dietcode.graph.reading`."""
    if not hasattr(given, "output_types"):
        raise GraphError(f"given {clip(given)}; allowed: a graph")
    return given


def read_text(given: Any) -> str:
    """Return a line for people to read."""
    if not isinstance(given, str) or len(given) > 400 or not given.isprintable():
        raise GraphError(f"given {clip(given)}; allowed: up to 400 printable characters")
    return given


def one_of(*words: str) -> Callable[[Any], str]:
    """Return a reader of some words."""

    def read(given: Any) -> str:
        if given not in words:
            raise GraphError(f"given {clip(given)}; allowed: {', '.join(words)}")
        return str(given)

    return read


def plain(value: Any) -> Any:
    """Return the plain data that a reader of this module reads."""
    if isinstance(value, Extent):
        return value.constant if value.is_constant else str(value)
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
