"""Reductions of what belongs to each position, of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dietcode.graph.tensor_type import INTEGERS, GraphError, axis_of
from dietcode.models.importing.context import Imported, Importer, rule

_OPERATORS = {
    **{"sum": "add", "add": "add", "mean": "add", "prod": "mul", "multiply": "mul"},
    **{"amax": "max", "amin": "min"},
}
Changed = Callable[[str, str, str], str]


def _neutral(word: str, dtype: str) -> int | float:
    """Return what a reduction begins with where the elements that are there do not count."""
    if word in ("amax", "amin"):
        if dtype not in INTEGERS:
            return -math.inf if word == "amax" else math.inf
        limits = np.iinfo(dtype)
        return int(limits.min if word == "amax" else limits.max)
    return 1 if _OPERATORS[word] == "mul" else 0


def _reduced(m: Importer, a: Mapping[str, Any], source: str, changed: Changed) -> str:
    """Return a tensor with what belongs to each element reduced into it.

    Parameters
    ----------
    m : Importer
    a : mapping
        The arguments: `self`, `reduce`, and `include_self`, without which elements that have something of
        `source` do not count themselves.
    source : str
    changed : callable
        Returns a tensor with a source of the shape of `source` brought in, by an operator.
    """
    x, word, dtype = m.tensor(a["self"]), a["reduce"], m.type(m.tensor(a["self"])).dtype
    if word not in _OPERATORS:
        raise GraphError(f"reduction by {word}; allowed: {', '.join(_OPERATORS)}")
    is_included = a.get("include_self", True)
    ones = m.add("full", shape=m.type(source).shape, value=1, dtype=dtype)
    if not is_included:
        none = m.add("full", shape=m.type(x).shape, value=0, dtype=dtype)
        has_some = m.add("not_equal", changed(none, ones, "set"), 0)
        x = m.add("where", has_some, _neutral(word, dtype), x, dtype=dtype)
    total = changed(x, source, _OPERATORS[word])
    if word != "mean":
        return total
    begin = m.add("full", shape=m.type(x).shape, value=int(is_included), dtype=dtype)
    count = m.add("maximum", changed(begin, ones, "add"), 1)
    return m.add("floor_divide" if dtype in INTEGERS else "div", total, count)


@rule("aten.scatter_reduce.two", "aten.scatter.reduce")
def _scatter_reduce(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return _along(m, a, m.tensor(a["src"]))


@rule("aten.scatter.value_reduce")
def _scatter_reduce_value(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    shape, dtype = m.type(m.tensor(a["index"])).shape, m.type(m.tensor(a["self"])).dtype
    return _along(m, a, m.add("full", shape=shape, value=m.value(a["value"]), dtype=dtype))


def _along(m: Importer, a: Mapping[str, Any], source: str) -> str:
    positions = m.tensor(a["index"])
    for axis, size in enumerate(m.type(positions).shape):  # there may be more elements than positions
        source = m.slice(source, axis, 0, size)
    axis = axis_of(a["dim"], m.rank(m.tensor(a["self"])))

    def changed(x: str, values: str, by: str) -> str:
        return m.add("scatter_along", x, positions, values, axis=axis, by=by, wraps=False)

    return _reduced(m, a, source, changed)


@rule("aten.index_reduce.default")
def _index_reduce(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x, positions = m.tensor(a["self"]), m.tensor(a["index"])
    axis = axis_of(a["dim"], m.rank(x))
    order = [axis, *(k for k in range(m.rank(x)) if k != axis)]
    back = [order.index(k) for k in range(len(order))]

    def changed(target: str, values: str, by: str) -> str:
        front = m.transpose(target, order)
        points = m.add("scatter_points", front, m.transpose(values, order), positions, by=by, wraps=False)
        return m.transpose(points, back)

    return _reduced(m, a, m.tensor(a["source"]), changed)
