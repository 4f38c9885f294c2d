"""Shapes, slices, positions, and tensors that are made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dietcode.graph.extent import ONE, Extent, floor_divide
from dietcode.graph.graph import Value
from dietcode.graph.tensor_type import INTEGERS, GraphError, axis_of, broadcast
from dietcode.models.importing.context import Imported, Importer, dtype_name, rule
from dietcode.models.importing.size_numbers import is_size_number
from dietcode.models.importing.sizes import masked
from dietcode.models.importing.spelled_out import (
    completed,
    extreme_so_far,
    flattened,
    is_nan,
    parts,
    repeated,
)


def _known_shape(m: Importer, x: str, sizes: Any) -> tuple[Extent, ...]:
    """Return sizes with -1 replaced by what is left of the elements."""
    shape = [None if isinstance(one, int) and one == -1 else m.extent(one) for one in sizes]
    return completed(m.type(x).num_elements, shape)


@rule("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.view_copy.default")
def _reshape(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    return m.reshape(x, _known_shape(m, x, list(a.values())[1]))


@rule("aten.flatten.using_ints")
def _flatten(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    return flattened(m, x, axis_of(a["start_dim"], m.rank(x)), axis_of(a["end_dim"], m.rank(x)))


@rule("aten.unflatten.int")
def _unflatten(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    shape = m.type(x).shape
    axis = axis_of(a["dim"], len(shape))
    sizes = [None if isinstance(one, int) and one == -1 else m.extent(one) for one in a["sizes"]]
    return m.reshape(x, (*shape[:axis], *completed(shape[axis], sizes), *shape[axis + 1 :]))


@rule("aten.unsqueeze.default")
def _unsqueeze(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    shape = m.type(x).shape
    axis = axis_of(a["dim"], len(shape) + 1)
    return m.reshape(x, (*shape[:axis], ONE, *shape[axis:]))


@rule("aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze.default")
def _squeeze(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    shape = m.type(x).shape
    dims = a.get("dim", list(range(len(shape))))
    gone = {axis_of(one, len(shape)) for one in (dims if isinstance(dims, list | tuple) else [dims])}
    for extent in (shape[axis] for axis in sorted(gone)):
        low, high = extent.bounds(m.graph.ranges)
        if low <= 1 <= high and extent != ONE:
            raise GraphError(
                f"squeeze of an axis of {extent}, which goes where it is 1 and stays elsewhere; allowed: "
                "axes that are always 1, by squeeze(dim), or ranges without 1"
            )
    return m.reshape(x, [e for axis, e in enumerate(shape) if axis not in gone or e != ONE])


@rule("aten.permute.default")
def _permute(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    return m.transpose(x, [axis_of(one, m.rank(x)) for one in a["dims"]])


@rule("aten.transpose.int")
def _transpose(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    axes = list(range(m.rank(x)))
    first, second = axis_of(a["dim0"], len(axes)), axis_of(a["dim1"], len(axes))
    axes[first], axes[second] = axes[second], axes[first]
    return m.transpose(x, axes)


@rule("aten.t.default", "aten.numpy_T.default", "aten.mT.default")
def _t(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    axes = list(range(m.rank(x)))
    return m.transpose(x, [*axes[:-2], *axes[-2:][::-1]])


@rule("aten.expand.default", "aten.expand_as.default")
def _expand(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    own = m.type(x).shape
    if "size" in a:
        sizes = list(a["size"])
        new = len(sizes) - len(own)
        shape = [
            own[k - new] if isinstance(one, int) and one == -1 else m.extent(one)
            for k, one in enumerate(sizes)
        ]
    else:
        shape = list(m.type(m.tensor(a["other"])).shape)
    return x if tuple(shape) == own else m.add("expand", x, shape=tuple(shape))


@rule("aten.repeat.default", "aten.tile.default")
def _repeat(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return repeated(m, m.tensor(a["self"]), m.shape(list(a.values())[1]))


@rule("aten.repeat_interleave.self_int")
def _repeat_interleave(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    if a["dim"] is None:
        x = m.reshape(x, (m.type(x).num_elements,))
    shape = m.type(x).shape
    axis, count = axis_of(a["dim"] or 0, len(shape)), m.extent(a["repeats"])
    spread = m.reshape(x, (*shape[: axis + 1], ONE, *shape[axis + 1 :]))
    wide = m.add("expand", spread, shape=(*shape[: axis + 1], count, *shape[axis + 1 :]))
    return m.reshape(wide, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))


@rule("aten.slice.Tensor")
def _slice(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    axis = axis_of(a["dim"], m.rank(x))
    length = m.type(x).shape[axis]
    start, stop = m.sliced(a, length)
    result = m.slice(x, axis, start, stop, a["step"])
    m.symbols.define(fake.shape[axis], m.type(result).shape[axis])
    return result


@rule("aten.narrow.default", "aten.narrow_copy.default")
def _narrow(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    axis = axis_of(a["dim"], m.rank(x))
    start = m.bounded(m.extent(a["start"]), m.type(x).shape[axis])
    return m.slice(x, axis, start, start + m.extent(a["length"]))


@rule("aten.select.int")
def _select(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    length = m.type(x).shape[axis_of(a["dim"], m.rank(x))]
    return m.select(x, a["dim"], m.within(m.extent(a["index"]), length))


@rule("aten.unbind.int")
def _unbind(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    return [m.select(x, a["dim"], k) for k in range(len(fake))]


@rule(
    *("aten.split.Tensor", "aten.split_with_sizes.default", "aten.split.sizes", "aten.chunk.default"),
    *("aten.tensor_split.sections", "aten.unsafe_chunk.default", "aten.unsafe_split.Tensor"),
)
def _split(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    axis = axis_of(a["dim"], m.rank(x))
    return tuple(parts(m, x, axis, [m.symbols.extent(one.shape[axis]) for one in fake]))


@rule("aten.cat.default", "aten.concat.default")
def _cat(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    dtype = dtype_name(fake.dtype)
    tensors = [m.cast(m.tensor(one), dtype) for one in a["tensors"]]
    tensors = [one for one in tensors if m.type(one).shape != (Extent(),)]
    return tensors[0] if len(tensors) == 1 else m.add("concat", *tensors, axis=a["dim"])


@rule("aten.stack.default")
def _stack(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    tensors = [m.tensor(one) for one in a["tensors"]]
    axis = axis_of(a["dim"], m.rank(tensors[0]) + 1)
    shape = m.type(tensors[0]).shape
    wide = [m.reshape(one, (*shape[:axis], ONE, *shape[axis:])) for one in tensors]
    return wide[0] if len(wide) == 1 else m.add("concat", *wide, axis=axis)


@rule("aten.flip.default")
def _flip(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    return m.add("flip", x, axes=tuple(axis_of(one, m.rank(x)) for one in a["dims"]))


@rule("aten.roll.default")
def _roll(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    shape, dims = m.type(x).shape, a["dims"]
    if not dims:  # of all elements one after the other
        x, dims = m.reshape(x, (m.type(x).num_elements,)), (0,)
    for shift, dim in zip(m.shape(a["shifts"]), dims, strict=True):
        axis = axis_of(dim, m.rank(x))
        length = m.type(x).shape[axis]
        if not shift.is_constant:
            raise GraphError("roll by a dynamic number; allowed: a constant one")
        if length.is_constant:
            turn = Extent.of(-shift.constant % length.constant)
        elif abs(shift.constant) <= length.bounds(m.graph.ranges)[0]:
            turn = Extent.of(-shift.constant) if shift.constant <= 0 else length - shift
        else:
            raise GraphError(
                f"roll by {shift} over {length}, which may be less; allowed: up to its least value"
            )
        if turn.terms:
            pieces = (m.slice(x, axis, turn, length), m.slice(x, axis, 0, turn))
            x = m.add("concat", *pieces, axis=axis)
    return m.reshape(x, shape)


@rule("aten.embedding.default")
def _embedding(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return m.add("take", m.tensor(a["weight"]), m.tensor(a["indices"]), axis=0, wraps=False)


@rule("aten.index_select.default", name="take")
@rule("aten.gather.default", name="take_along")
def _taken(m: Importer, a: Mapping[str, Any], fake: Any, *, name: str) -> Imported:
    return m.add(name, m.tensor(a["self"]), m.tensor(a["index"]), axis=a["dim"], wraps=False)


@rule("aten.index.Tensor")
def _index(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    positions = [None if one is None else m.tensor(one) for one in a["indices"]]
    axes = [axis for axis, one in enumerate(positions) if one is not None]
    names = [one for one in positions if one is not None]
    if len(names) == 1 and m.type(names[0]).dtype == "bool":
        return masked(m, x, axes[0], names[0], fake.shape[axes[0]])
    if any(m.type(one).dtype not in INTEGERS for one in names):
        raise GraphError("an index by truth values beside others; allowed: one alone, or whole numbers")
    if len(axes) == 1:
        return m.add("take", x, names[0], axis=axes[0])
    order = [*axes, *(k for k in range(m.rank(x)) if k not in axes)]
    taken = m.add("take_points", m.transpose(x, order), *names)
    if axes != list(range(axes[0], axes[0] + len(axes))):
        return taken  # axes that lie apart: what they become is first
    width = len(broadcast([m.type(one).shape for one in names]))
    back = [*range(width, width + axes[0]), *range(width), *range(width + axes[0], m.rank(taken))]
    return m.transpose(taken, back)


@rule("aten.topk.default")
def _topk(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    return m.results("top", x, axis=axis_of(a["dim"], m.rank(x)), num=m.extent(a["k"]), largest=a["largest"])


@rule("aten.sort.default", "aten.sort.stable", "aten.argsort.default")
def _sort(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    found = m.results("top", x, axis=axis_of(a["dim"], m.rank(x)), largest=a["descending"])
    return found if isinstance(fake, tuple | list) else found[1]


@rule("aten.median.dim", "aten.kthvalue.default")
def _in_order(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Return one of the elements in order: PyTorch's median is the lower of the two in the middle."""
    x = m.tensor(a["self"])
    axis = axis_of(a["dim"], m.rank(x))
    middle = floor_divide(m.type(x).shape[axis] - 1, Extent.of(2)) if "k" not in a else m.extent(a["k"]) - 1
    ordered = m.results("top", x, axis=axis, largest=False)
    found = [m.slice(one, axis, middle, middle + 1) for one in ordered]
    if "k" not in a and m.type(x).dtype not in INTEGERS:  # of rows with what is no number it is that
        largest = m.add("max", x, axes=(axis,), keep=True), m.add("argmax", x, axis=axis, keep=True)
        odd = is_nan(m, largest[0])
        found = [m.add("where", odd, *pair) for pair in zip(largest, found, strict=True)]
    return tuple(one if a["keepdim"] else m.select(one, axis, 0) for one in found)


@rule("aten.one_hot.default")
def _one_hot(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    if a["num_classes"] < 0:
        raise GraphError("one_hot without num_classes, whose size depends on values; give num_classes")
    wide = m.reshape(x, (*m.type(x).shape, ONE))
    none = m.add("full", shape=(*m.type(x).shape, Extent.of(a["num_classes"])), value=0, dtype="int64")
    one = m.add("full", shape=m.type(wide).shape, value=1, dtype="int64")
    return m.add("scatter_along", none, wide, one, axis=-1, wraps=False)


def _filled(m: Importer, shape: tuple[Extent, ...], value: Value, fake: Any) -> str:
    dtype = dtype_name(fake.dtype)
    if isinstance(value, str):
        return m.add("expand", m.cast(value, dtype), shape=shape)
    if isinstance(value, float) and math.isfinite(value) and dtype in INTEGERS:
        value = int(value)
    return m.add("full", shape=shape, value=value, dtype=dtype)


@rule("aten.full.default", "aten.new_full.default", "aten.full_like.default")
@rule("aten.zeros.default", "aten.new_zeros.default", "aten.zeros_like.default", value=0)
@rule("aten.empty.memory_format", "aten.new_empty.default", "aten.empty_like.default", value=0)
@rule("aten.ones.default", "aten.new_ones.default", "aten.ones_like.default", value=1)
def _full(m: Importer, a: Mapping[str, Any], fake: Any, value: int | None = None) -> Imported:
    shape = m.shape(a["size"]) if "size" in a else m.type(m.tensor(a["self"])).shape
    return _filled(m, shape, m.value(a["fill_value"]) if value is None else value, fake)


@rule("aten.scalar_tensor.default")
def _scalar(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    value = m.value(a["s"])
    return m.cast(value, dtype_name(fake.dtype)) if isinstance(value, str) else _filled(m, (), value, fake)


@rule("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def _arange(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    step = a.get("step", 1)
    given = [a.get("start", 0), a["end"], step]
    dtype = dtype_name(fake.dtype)
    if any(isinstance(one, float) and not one.is_integer() for one in given) or any(map(_is_number, given)):
        return _arange_of_fractions(m, a.get("start", 0), step, m.symbols.extent(fake.shape[0]), dtype)
    start, stop, step = (int(one) if isinstance(one, float) else one for one in given)
    if not isinstance(step, int):
        numbers = m.add("arange", stop=m.symbols.extent(fake.shape[0]))
        spread = m.add("mul", numbers, m.value(step))
        return m.cast(m.add("add", spread, m.value(start)) if start else spread, dtype)
    whole = m.add("arange", start=m.extent(start), stop=m.extent(stop), step=step, dtype="int64")
    return m.cast(whole, dtype)


def _is_number(given: Any) -> bool:
    return hasattr(given, "meta") and is_size_number(given)


def _arange_of_fractions(m: Importer, start: Any, step: Any, count: Extent, dtype: str) -> str:
    """Return numbers a fraction apart, each by a product: a sum of steps would gather their errors."""
    numbers = m.cast(m.add("arange", stop=count), "float64")
    steps = m.add("mul", numbers, m.cast(m.value(step), "float64"))
    return str(m.cast(m.add("add", steps, m.cast(m.value(start), "float64")), dtype))


@rule("aten.cummax.default", name="cummax")
@rule("aten.cummin.default", name="cummin")
def _extreme_so_far(m: Importer, a: Mapping[str, Any], fake: Any, name: str) -> Imported:
    x = m.tensor(a["self"])
    return extreme_so_far(m, name, x, axis_of(a["dim"], m.rank(x)))


@rule("aten.diagonal.default", "aten.linalg_diagonal.default")
def _diagonal(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a.get("self", a.get("A")))
    first, second = axis_of(a["dim1"], m.rank(x)), axis_of(a["dim2"], m.rank(x))
    rest = [k for k in range(m.rank(x)) if k not in (first, second)]
    own = _diagonal_positions(m, m.symbols.extent(fake.shape[-1]), a["offset"])
    taken = m.add("take_points", m.transpose(x, [first, second, *rest]), *own)
    return m.transpose(taken, [*range(1, m.rank(taken)), 0])


@rule("aten.diagonal_scatter.default")
def _diagonal_scatter(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x, source = m.tensor(a["self"]), m.tensor(a["src"])
    first, second = axis_of(a["dim1"], m.rank(x)), axis_of(a["dim2"], m.rank(x))
    order = [first, second, *(k for k in range(m.rank(x)) if k not in (first, second))]
    own = _diagonal_positions(m, m.type(source).shape[-1], a["offset"])
    rows = m.transpose(source, [m.rank(source) - 1, *range(m.rank(source) - 1)])
    changed = m.add("scatter_points", m.transpose(x, order), rows, *own, by="set")
    return m.transpose(changed, [order.index(k) for k in range(len(order))])


def _diagonal_positions(m: Importer, count: Extent, offset: int) -> list[str]:
    """Return the rows and the columns of a diagonal's elements."""
    return [
        m.add("arange", start=Extent.of(one), stop=count + one) for one in (-min(offset, 0), max(offset, 0))
    ]


@rule("aten.bucketize.Tensor", "aten.searchsorted.Tensor")
def _places(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Return how many of the sorted numbers come before each value."""
    bounds = m.tensor(a["boundaries"] if "boundaries" in a else a["sorted_sequence"])
    x = m.tensor(a["self"])
    if a.get("sorter") is not None:
        raise GraphError("searchsorted with a sorter; allowed: a sequence that is sorted")
    shape = m.type(bounds).shape
    if len(shape) > 1:
        bounds = m.reshape(bounds, (*shape[:-1], ONE, shape[-1]))
    wide = m.reshape(x, (*m.type(x).shape, ONE))
    up_to = a["right"] or a.get("side") == "right"
    before = m.add("less_equal" if up_to else "less", bounds, wide)
    total = m.add("sum", m.cast(before, "int64"), axes=(m.rank(wide) - 1,))
    return m.cast(total, dtype_name(fake.dtype))
