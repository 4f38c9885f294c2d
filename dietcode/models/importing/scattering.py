"""Tensors that are changed at positions, and positions that are made, of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.tensor_type import INTEGERS, GraphError, axis_of, broadcast
from dietcode.models.importing.context import Imported, Importer, dtype_name, rule
from dietcode.models.importing.spelled_out import flattened

_MOST_ROWS = 4096
_CONCAT = 64  # operands of one concat


@rule("aten.scatter.src", "aten.scatter.value", by="set")
@rule("aten.scatter_add.default", by="add")
def _along(m: Importer, a: Mapping[str, Any], fake: Any, *, by: str) -> Imported:
    """Return a tensor with elements at positions along an axis changed, a position for each."""
    x, positions = m.tensor(a["self"]), m.tensor(a["index"])
    if "value" in a:
        shape, dtype = m.type(positions).shape, m.type(x).dtype
        source = m.add("full", shape=shape, value=m.value(a["value"]), dtype=dtype)
    else:
        source = m.tensor(a["src"])
    for axis, size in enumerate(m.type(positions).shape):  # there may be more elements than positions
        source = m.slice(source, axis, 0, size)
    axis = axis_of(a["dim"], m.rank(x))
    return m.add("scatter_along", x, positions, source, axis=axis, by=by, wraps=False)


@rule("aten.index_add.default", by="add")
@rule("aten.index_copy.default", by="set")
def _rows(m: Importer, a: Mapping[str, Any], fake: Any, *, by: str) -> Imported:
    """Return a tensor with whole slices at positions along an axis changed."""
    x, positions, source = (m.tensor(a[key]) for key in ("self", "index", "source"))
    axis = axis_of(a["dim"], m.rank(x))
    order = [axis, *(k for k in range(m.rank(x)) if k != axis)]
    if by == "add" and a["alpha"] != 1:
        source = m.add("mul", source, m.value(a["alpha"]))
    front = m.transpose(x, order)
    changed = m.add("scatter_points", front, m.transpose(source, order), positions, by=by, wraps=False)
    return m.transpose(changed, [order.index(k) for k in range(len(order))])


@rule("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def _filled_rows(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Return a tensor with whole slices at positions along an axis set to a number."""
    x, positions, value = m.tensor(a["self"]), m.tensor(a["index"]), m.value(a["value"])
    type_, axis = m.type(x), axis_of(a["dim"], m.rank(x))
    order = [axis, *(k for k in range(m.rank(x)) if k != axis)]
    shape = (*m.type(positions).shape, *(type_.shape[k] for k in order[1:]))
    if isinstance(value, str):
        source = m.add("expand", m.cast(value, type_.dtype), shape=shape)
    else:
        source = m.add("full", shape=shape, value=value, dtype=type_.dtype)
    changed = m.add("scatter_points", m.transpose(x, order), source, positions, by="set")
    return m.transpose(changed, [order.index(k) for k in range(len(order))])


@rule("aten.index_put.default", "aten._unsafe_index_put.default")
def _index_put(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x, source = m.tensor(a["self"]), m.tensor(a["values"])
    given = [None if one is None else m.tensor(one) for one in a["indices"]]
    axes = [axis for axis, one in enumerate(given) if one is not None]
    positions = [one for one in given if one is not None]
    shape = m.type(x).shape
    if [m.type(one).dtype for one in positions] == ["bool"]:
        if axes != [0]:
            raise GraphError("an index by truth values behind another axis; allowed: from the first axis on")
        return _put_where(m, x, positions[0], source, add=a["accumulate"])
    if any(m.type(one).dtype not in INTEGERS for one in positions):
        raise GraphError("an index by truth values beside others; allowed: one alone, or whole numbers")
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise GraphError("an index by several tensors on axes apart; allowed: on neighbouring axes")
    before, behind = shape[: axes[0]], shape[axes[-1] + 1 :]
    points = broadcast([m.type(one).shape for one in positions])
    source = m.add("expand", source, shape=(*before, *points, *behind))
    width = len(points)
    first = [*range(len(before), len(before) + width), *range(len(before))]
    source = m.transpose(source, [*first, *range(len(first), m.rank(source))])
    order = [*axes, *(k for k in range(len(shape)) if k not in axes)]
    by = "add" if a["accumulate"] else "set"
    changed = m.add("scatter_points", m.transpose(x, order), source, *positions, by=by)
    return m.transpose(changed, [order.index(k) for k in range(len(order))])


@rule("aten.put.default")
def _put(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Return a tensor with elements changed at positions among all of its elements."""
    x, positions, source = (m.tensor(a[key]) for key in ("self", "index", "source"))
    flat, at, new = (flattened(m, one, 0, m.rank(one) - 1) for one in (x, positions, source))
    changed = m.add("scatter_points", flat, new, at, by="add" if a["accumulate"] else "set")
    return m.reshape(changed, m.type(x).shape)


def _put_where(m: Importer, x: str, mask: str, source: str, add: bool) -> str:
    """Return x with values where truth values over its first axes hold: one for all, or a row for each.

    Parameters
    ----------
    m : Importer
    x : str
    mask : str
    source : str
        Broadcast to ``[number that holds, *axes behind the mask]``.
    add : bool
        Whether values are added to those that are there.
    """
    type_, own = m.type(x), m.type(mask).shape
    behind = type_.shape[len(own) :]
    if m.rank(source) > len(behind) and m.type(source).shape[0] != ONE:
        # Row k is for the k-th truth; row 0, before them, is for elements where none has been yet.
        source = m.add("expand", source, shape=(*m.type(source).shape[:1], *behind))
        none = m.add("full", shape=(ONE, *behind), value=0, dtype=m.type(source).dtype)
        rows = m.add("concat", none, source, axis=0)
        flat = flattened(m, mask, 0, len(own) - 1)
        place = m.add("cumsum", m.cast(flat, "int64"), axis=0)
        source = m.add("take", rows, m.reshape(place, own), axis=0)
    wide = m.reshape(mask, (*own, *[ONE] * len(behind)))
    kept = m.add("add", x, source) if add else source
    return m.add("where", wide, kept, x, dtype=type_.dtype)


@rule("aten.tril_indices.default", lower=True)
@rule("aten.triu_indices.default", lower=False)
def _triangle_positions(m: Importer, a: Mapping[str, Any], fake: Any, lower: bool) -> Imported:
    rows, columns, offset = a["row"], a["col"], a["offset"]
    if not all(isinstance(one, int) for one in (rows, columns, offset)) or rows > _MOST_ROWS:
        raise GraphError(f"{rows} rows and {columns} columns; allowed: constants, up to {_MOST_ROWS} rows")
    pieces: tuple[list[str], list[str]] = ([], [])
    for row in range(rows):
        first = 0 if lower else max(0, row + offset)
        last = min(columns, row + offset + 1) if lower else columns
        if last > first:
            pieces[0].append(m.add("full", shape=(last - first,), value=row, dtype="int64"))
            pieces[1].append(m.add("arange", start=Extent.of(first), stop=Extent.of(last)))
    if not pieces[0]:
        return m.add("full", shape=(2, 0), value=0, dtype="int64")
    joined = [m.reshape(_joined(m, one), (1, fake.shape[1])) for one in pieces]
    return m.cast(m.add("concat", *joined, axis=0), dtype_name(fake.dtype))


def _joined(m: Importer, pieces: Sequence[str]) -> str:
    while len(pieces) > 1:
        groups = [pieces[k : k + _CONCAT] for k in range(0, len(pieces), _CONCAT)]
        pieces = [one[0] if len(one) == 1 else m.add("concat", *one, axis=0) for one in groups]
    return pieces[0]


@rule("aten.copy.default")
def _copied(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x, source = m.tensor(a["self"]), m.value(a["src"])
    type_ = m.type(x)
    if not isinstance(source, str):
        return m.add("full", shape=type_.shape, value=source, dtype=type_.dtype)
    same = str(m.cast(source, type_.dtype))
    return same if m.type(same).shape == type_.shape else m.add("expand", same, shape=type_.shape)


def _between(m: Importer, x: str, axis: int, start: Extent, stop: Extent, source: str) -> str:
    """Return x with the elements from start to stop along an axis replaced."""
    length = m.type(x).shape[axis]
    pieces = [source]
    if start.terms:
        pieces.insert(0, m.slice(x, axis, 0, start))
    if stop != length:
        pieces.append(m.slice(x, axis, stop, length))
    return source if len(pieces) == 1 else m.add("concat", *pieces, axis=axis)


@rule("aten.slice_scatter.default")
def _slice_scatter(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x, source = m.tensor(a["self"]), m.tensor(a["src"])
    axis = axis_of(a["dim"], m.rank(x))
    length = m.type(x).shape[axis]
    start, stop = m.sliced(a, length)
    if a["step"] == 1:
        return _between(m, x, axis, start, stop, source)
    order = [axis, *(k for k in range(m.rank(x)) if k != axis)]
    positions = m.add("arange", start=start, stop=stop, step=a["step"])
    front, rows = m.transpose(x, order), m.transpose(source, order)
    changed = m.add("scatter_points", front, rows, positions, by="set")
    return m.transpose(changed, [order.index(k) for k in range(len(order))])


@rule("aten.select_scatter.default")
def _select_scatter(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x, source = m.tensor(a["self"]), m.tensor(a["src"])
    axis = axis_of(a["dim"], m.rank(x))
    shape = m.type(x).shape
    start = m.within(m.extent(a["index"]), shape[axis])
    wide = m.reshape(source, (*shape[:axis], ONE, *shape[axis + 1 :]))
    return _between(m, x, axis, start, start + 1, wide)


@rule("aten.masked_scatter.default")
def _masked_scatter(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Return a tensor with the elements of another, in their order, where truth values hold."""
    shape = m.symbols_shape(fake.shape)
    x, mask = (m.add("expand", m.tensor(a[key]), shape=shape) for key in ("self", "mask"))
    source = flattened(m, m.tensor(a["source"]), 0, m.rank(m.tensor(a["source"])) - 1)
    flat = flattened(m, mask, 0, len(shape) - 1)
    number = m.add("maximum", m.add("sub", m.add("cumsum", m.cast(flat, "int64"), axis=0), 1), 0)
    return m.add("where", mask, m.reshape(m.add("take", source, number, axis=0), shape), x)
