"""Histograms, counts, and elements that differ, of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode.graph.extent import ONE, Extent, larger
from dietcode.graph.graph import Value
from dietcode.graph.tensor_type import GraphError, axis_of
from dietcode.models.importing.context import Imported, Importer, dtype_name, rule
from dietcode.models.importing.sizes import is_new_size, positions_of, set_size
from dietcode.models.importing.spelled_out import flattened

_MOVES = ("reshape", "transpose", "slice", "expand", "take", "flip", "cast")  # the elements of an operand
_MOST_COLUMNS = 64  # of rows that are told apart: rows are sorted once for each


def _flat(m: Importer, x: str) -> str:
    return flattened(m, x, 0, m.rank(x) - 1) if m.rank(x) else m.reshape(x, (ONE,))


def _counted(m: Importer, positions: str, each: str, size: Extent) -> str:
    """Return sums of what belongs to each position from 0 to a size, as ``[size]``."""
    none = m.add("full", shape=(size,), value=0, dtype=m.type(each).dtype)
    return m.add("scatter_points", none, each, positions, by="add", wraps=False)


def _ones(m: Importer, like: str, dtype: str) -> str:
    return m.add("full", shape=m.type(like).shape, value=1, dtype=dtype)


@rule("aten.histc.default")
def _histogram(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Return how many elements are in each of equal parts of a range; what is beyond it counts nowhere."""
    x, bins = _flat(m, m.tensor(a["self"])), int(a["bins"])
    low, high = float(a["min"]), float(a["max"])
    if low == high:  # then it is that of the elements
        least, most = (m.add(name, x, axes=(0,), keep=False) for name in ("min", "max"))
        alike = m.cast(m.add("equal", least, most), m.type(x).dtype)  # such a range is one wider each way
        bounds: list[Value] = [m.add("sub", least, alike), m.add("add", most, alike)]
        width: Value = m.add("sub", bounds[1], bounds[0])
    else:
        bounds, width = [low, high], high - low
    steps = m.add("div", m.add("mul", m.add("sub", x, bounds[0]), float(bins)), width)
    place = m.cast(m.add("clip", m.add("floor", steps), low=0, high=bins - 1), "int64")
    within = m.add("and", m.add("less_equal", bounds[0], x), m.add("less_equal", x, bounds[1]))
    own = m.add("where", within, place, bins, dtype="int64")
    return m.slice(_counted(m, own, _ones(m, x, m.type(x).dtype), Extent.of(bins + 1)), 0, 0, bins)


@rule("aten.bincount.default")
def _bin_count(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Return how often each whole number comes, up to the largest one or to a number that is given.

    A size that the program's checks make one of a shape is that: a number beyond it is an error of the call.
    """
    x, weights = m.tensor(a["self"]), m.value(a["weights"])
    least, limit = m.extent(a["minlength"]), _limit(m, x)
    if limit is not None and is_new_size(m, fake.shape[0]) and larger(least, limit, m.graph.ranges) == least:
        m.symbols.equate(
            fake.shape[0].node.expr, getattr(a["minlength"], "meta", {}).get("val", a["minlength"])
        )
    is_new = is_new_size(m, fake.shape[0])
    size = set_size(m, fake.shape[0], None if limit is None else larger(least, limit))
    if is_new:
        none = m.add("full", shape=(1,), value=-1, dtype=m.type(x).dtype)
        largest = m.add("max", m.add("concat", none, x, axis=0), axes=(0,), keep=False)
        found = m.add("add", m.cast(largest, "int64"), 1)
        m.add("size", m.add("maximum", found, m.number(least)), size=size)
    each = _ones(m, x, "int64") if weights is None else str(m.cast(weights, dtype_name(fake.dtype)))
    return _counted(m, x, each, size)


def _limit(m: Importer, name: str) -> Extent | None:
    """Return what whole numbers are below, where the operators that made them tell, as positions of `top`."""
    node = next((one for one in m.graph.nodes if name in one.results), None)
    first = None if node is None else node.operands[0]
    if node is None or not isinstance(first, str):
        return None
    if node.operator in ("argmax", "argmin") or (node.operator == "top" and name == node.results[1]):
        return m.type(first).shape[axis_of(node.attributes["axis"], m.rank(first))]
    if node.operator == "clip" and isinstance(node.attributes.get("high"), int):
        return Extent.of(max(0, node.attributes["high"] + 1))
    if node.operator in _MOVES and m.type(name).dtype.startswith("int"):
        return _limit(m, first)
    return None


def _differing(m: Importer, is_first: str, order: str | None, number: Any) -> tuple[str, str, str]:
    """Return positions of groups' first elements, the group of each element, and how many each has.

    Parameters
    ----------
    m : Importer
    is_first : str
        Of each element, in order, whether it differs from the one before.
    order : str, optional
        The position of each of these among the elements as they were given; None where that is their own.
    number : SymInt or int
        How many groups PyTorch has.
    """
    found = positions_of(m, is_first, number)
    first = m.reshape(found, m.type(found).shape[:1])
    group = m.add("sub", m.add("cumsum", m.cast(is_first, "int64"), axis=0), 1)
    counts = _counted(m, group, _ones(m, group, "int64"), m.type(first).shape[0])
    if order is not None:
        none = m.add("full", shape=m.type(group).shape, value=0, dtype="int64")
        group = m.add("scatter_points", none, group, order, by="set")
    return first, group, counts


def _is_first(m: Importer, rows: str) -> str:
    """Return whether each row, or element, differs from the one before it."""
    type_ = m.type(rows)
    pads = ((1, 0), *[(0, 0)] * (type_.rank - 1))
    before = m.slice(m.add("pad", rows, pads=pads, value=0), 0, 0, type_.shape[0])
    differs = m.add("not_equal", rows, before)
    if type_.rank > 1:
        differs = m.add("any", differs, axes=tuple(range(1, type_.rank)), keep=False)
    return m.add("or", differs, m.add("equal", m.add("arange", stop=type_.shape[0]), 0))


@rule("aten._unique2.default", "aten._unique.default")
def _unique(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    ordered, order = m.results("top", _flat(m, x), axis=0, largest=False)
    first, group, counts = _differing(m, _is_first(m, ordered), order, fake[0].shape[0])
    return m.add("take", ordered, first, axis=0), m.reshape(group, m.type(x).shape), counts


@rule("aten.unique_dim.default")
def _unique_rows(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Sort by the last column first; an order stays where elements of a column are equal."""
    x = m.tensor(a["self"])
    axis = axis_of(a["dim"], m.rank(x))
    rows, back = _as_rows(m, x, axis)
    wide = m.reshape(rows, (*m.type(rows).shape, ONE))
    flat = flattened(m, wide, 1, m.rank(rows))
    columns = m.type(flat).shape[1]
    if not columns.is_constant or columns.constant > _MOST_COLUMNS:
        raise GraphError(f"rows of {columns} elements; allowed: a constant number, up to {_MOST_COLUMNS}")
    order = m.add("arange", stop=m.type(flat).shape[0])
    for column in reversed(range(columns.constant)):
        values = m.add("take", m.select(flat, 1, column), order, axis=0)
        order = m.add("take", order, m.results("top", values, axis=0, largest=False)[1], axis=0)
    ordered = m.add("take", flat, order, axis=0)
    first, group, counts = _differing(m, _is_first(m, ordered), order, fake[0].shape[axis])
    found = m.add("take", rows, m.add("take", order, first, axis=0), axis=0)
    return m.transpose(found, back), group, counts


@rule("aten.unique_consecutive.default")
def _unique_neighbours(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x, axis = m.tensor(a["self"]), a["dim"]
    if axis is None:
        flat = _flat(m, x)
        first, group, counts = _differing(m, _is_first(m, flat), None, fake[0].shape[0])
        return m.add("take", flat, first, axis=0), m.reshape(group, m.type(x).shape), counts
    axis = axis_of(axis, m.rank(x))
    rows, back = _as_rows(m, x, axis)
    first, group, counts = _differing(m, _is_first(m, rows), None, fake[0].shape[axis])
    return m.transpose(m.add("take", rows, first, axis=0), back), group, counts


def _as_rows(m: Importer, x: str, axis: int) -> tuple[str, list[int]]:
    """Return a tensor with an axis first, and the order of axes that brings it back."""
    order = [axis, *(k for k in range(m.rank(x)) if k != axis)]
    return m.transpose(x, order), [order.index(k) for k in range(len(order))]
