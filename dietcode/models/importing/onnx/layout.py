"""Shapes, slices, positions, and tensors that are made, of ONNX."""

from __future__ import annotations

import numpy as np

from dietcode.graph.extent import ONE, Extent, floor_divide, larger, product_of, smaller
from dietcode.graph.tensor_type import FLOATS, GraphError, axis_of, broadcast
from dietcode.models.importing.grids import BEYOND, grid_sample
from dietcode.models.importing.onnx.context import (
    OnnxImporter,
    OnnxNode,
    OnnxResult,
    onnx_rule,
)
from dietcode.models.importing.onnx.known import MOST_ELEMENTS, Known, known, sizes_of
from dietcode.models.importing.resampled import padded, padded_by_number
from dietcode.models.importing.spelled_out import completed, flattened, parts, repeated


@onnx_rule("Constant")
def _constant(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    for name in ("value", "value_int", "value_ints", "value_float", "value_floats"):
        given = n.attribute(name)
        if given is not None:
            array = given if name == "value" else np.array(given, "int64" if "int" in name else "float32")
            found = known(array)
            return found if array.size <= MOST_ELEMENTS else m.add_weight(n.proto.output[0], array)
    raise GraphError("a constant that is no tensor; allowed: numbers")


@onnx_rule("Shape")
def _shape(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    shape = m.shape(n.value(0))
    return sizes_of(shape[slice(n.attribute("start", 0), n.attribute("end"))])


@onnx_rule("Size")
def _size(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    found = np.empty((), object)
    found[()] = product_of(m.shape(n.value(0)))
    return known(found, "int64")


@onnx_rule("Reshape")
def _reshape(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x, keep_zeros = n.tensor(0), n.attribute("allowzero", 0)
    own = m.type(x).shape
    sizes: list[Extent | None] = []
    for axis, one in enumerate(n.extents(1)):
        if one.is_constant and one.constant == -1:
            sizes.append(None)
        elif not one.terms and not keep_zeros:
            if axis >= len(own):
                raise GraphError(f"size 0 for axis {axis} of {m.type(x)}; allowed: of an axis that is there")
            sizes.append(own[axis])
        else:
            sizes.append(one)
    if sizes.count(None) > 1:
        raise GraphError("more than one size -1; allowed: one")
    return m.reshape(x, completed(m.type(x).num_elements, sizes))


@onnx_rule("Flatten")
def _flatten(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x, axis = n.tensor(0), n.attribute("axis", 1)
    rank = m.rank(x)
    axis = rank if axis == rank else axis_of(axis, rank)
    ones = m.reshape(x, (ONE, *m.type(x).shape, ONE))
    rows = flattened(m, ones, 0, axis)
    return flattened(m, rows, 1, m.rank(rows) - 1)


@onnx_rule("Squeeze")
def _squeeze(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x = n.tensor(0)
    shape = m.type(x).shape
    axes = n.axes(1, len(shape))
    if axes is None and any(not e.is_constant and e.bounds(m.graph.ranges)[0] <= 1 for e in shape):
        raise GraphError(f"of {m.type(x)} without axes, any of which may be 1; allowed: with axes")
    gone = [axis for axis, e in enumerate(shape) if e == ONE] if axes is None else axes
    if any(shape[axis] != ONE for axis in gone):
        raise GraphError(f"axes {gone} of {m.type(x)}; allowed: axes of extent 1")
    return m.reshape(x, [e for axis, e in enumerate(shape) if axis not in gone])


@onnx_rule("Unsqueeze")
def _unsqueeze(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x = n.tensor(0)
    given = n.numbers(1, n.attribute("axes", []))
    rank = m.rank(x) + len(given)
    new = [axis_of(int(one), rank) for one in given]
    rest = iter(m.type(x).shape)
    return m.reshape(x, [ONE if axis in new else next(rest) for axis in range(rank)])


@onnx_rule("Transpose")
def _transpose(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x = n.tensor(0)
    return m.transpose(x, n.attribute("perm", list(range(m.rank(x)))[::-1]))


@onnx_rule("Expand")
def _expand(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x = n.tensor(0)
    shape = broadcast([m.type(x).shape, n.extents(1)])
    return x if shape == m.type(x).shape else m.add("expand", x, shape=shape)


@onnx_rule("Tile")
def _tile(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    return repeated(m, n.tensor(0), n.extents(1))


@onnx_rule("Concat")
def _concat(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    tensors = [m.tensor(one) for one in n.values]
    axis = axis_of(n.attribute("axis"), m.rank(tensors[0]))
    filled = [one for one in tensors if m.type(one).shape[axis].terms] or tensors[:1]
    return filled[0] if len(filled) == 1 else m.add("concat", *filled, axis=axis)


@onnx_rule("Split")
def _split(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x = n.tensor(0)
    axis = axis_of(n.attribute("axis", 0), m.rank(x))
    length, count = m.type(x).shape[axis], n.attribute("num_outputs", n.num_results)
    if n.value(1) is not None:
        sizes = list(n.extents(1))
    else:
        each = floor_divide(length + (count - 1), Extent.of(count))
        if each * count != length:
            _check_parts(m, length, count)
        sizes = [each] * (count - 1)
        sizes.append(length - each * (count - 1))
    return parts(m, x, axis, sizes)


def _check_parts(m: OnnxImporter, length: Extent, count: int) -> None:
    """Refuse lengths that parts of equal size, rounded up, exceed before the last part."""
    low, high = length.bounds(m.graph.ranges)
    for size in range(max(low, 0), min(high, count * count) + 1):
        if -(-size // count) * (count - 1) > size:
            raise GraphError(
                f"{length}, which may be {size}, in {count} parts; allowed: sizes that fill them"
            )


@onnx_rule("Gather")
def _gather(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x, positions = n.tensor(0), n.value(1)
    axis = axis_of(n.attribute("axis", 0), m.rank(x))
    if isinstance(positions, Known) and positions.array.size == 1 and positions.array.ndim < 2:
        position = m.within(n.extents(1)[0], m.type(x).shape[axis])
        if positions.array.ndim:
            return m.slice(x, axis, position, position + 1)
        return m.select(x, axis, position)
    return m.add("take", x, m.tensor(positions), axis=axis)


@onnx_rule("GatherElements")
def _gather_elements(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x = n.tensor(0)
    return m.add("take_along", x, n.tensor(1), axis=axis_of(n.attribute("axis", 0), m.rank(x)))


@onnx_rule("GatherND")
def _gather_points(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x, columns = n.tensor(0), _columns(m, n.tensor(1))
    shape = m.type(columns[0]).shape
    batch = [
        m.reshape(
            m.add("arange", stop=shape[axis]), [shape[k] if k == axis else ONE for k in range(len(shape))]
        )
        for axis in range(n.attribute("batch_dims", 0))
    ]
    return m.add("take_points", x, *batch, *columns)


def _columns(m: OnnxImporter, positions: str) -> list[str]:
    """Return the positions along each axis."""
    width = m.type(positions).shape[-1]
    if not width.is_constant:
        raise GraphError(f"positions {m.type(positions)}; allowed: a constant number of axes")
    return [m.select(positions, -1, k) for k in range(width.constant)]


_REDUCTIONS = {"none": "set"}  # others have the graph's names


@onnx_rule("ScatterElements")
def _scatter_elements(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x, word = n.tensor(0), n.attribute("reduction", "none")
    axis, by = axis_of(n.attribute("axis", 0), m.rank(x)), _REDUCTIONS.get(word, word)
    return m.add("scatter_along", x, n.tensor(1), n.tensor(2), axis=axis, by=by)


@onnx_rule("ScatterND")
def _scatter_points(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    word = n.attribute("reduction", "none")
    columns = _columns(m, n.tensor(1))
    return m.add("scatter_points", n.tensor(0), n.tensor(2), *columns, by=_REDUCTIONS.get(word, word))


@onnx_rule("Pad")
def _pad(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    mode = n.attribute("mode", "constant")
    x, given = n.tensor(0), n.extents(1)
    axes = n.axes(3, m.rank(x))
    axes = list(range(m.rank(x))) if axes is None else axes
    if len(given) != 2 * len(axes):
        raise GraphError(f"{len(given)} pads; allowed: {2 * len(axes)}, two of each axis")
    pairs = [(Extent(), Extent())] * m.rank(x)
    for number, axis in enumerate(axes):
        pairs[axis] = (given[number], given[number + len(axes)])
    value = n.number(2, 0)
    if mode == "constant" and all(one.is_constant for one in given):
        pads = tuple((before.constant, after.constant) for before, after in pairs)
        return m.add("pad", x, pads=pads, value=value)
    for axis, (before, after) in enumerate(pairs):
        if mode == "constant":
            x = padded_by_number(m, x, axis, before, after, value)
        else:
            x = padded(m, x, axis, before, after, mode)
    return x


@onnx_rule("GridSample")
def _grid_sample(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    mode, beyond = n.attribute("mode", "linear"), n.attribute("padding_mode", "zeros")
    if mode not in ("linear", "bilinear", "nearest"):
        raise GraphError(f"GridSample with {mode} interpolation; allowed: linear, nearest")
    aligned = bool(n.attribute("align_corners", 0))
    return grid_sample(m, n.tensor(0), n.tensor(1), mode == "nearest", BEYOND.index(beyond), aligned)


@onnx_rule("SpaceToDepth", "DepthToSpace")
def _blocks(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    """Return blocks of space as channels, or channels as blocks of space."""
    x, size, mode = n.tensor(0), Extent.of(n.attribute("blocksize")), n.attribute("mode", "DCR")
    batch, channels, height, width = m.type(x).shape
    if n.proto.op_type == "SpaceToDepth":
        rows, columns = floor_divide(height, size), floor_divide(width, size)
        apart = m.reshape(x, (batch, channels, rows, size, columns, size))
        order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
        return m.reshape(m.transpose(apart, order), (batch, channels * size * size, rows, columns))
    inner = floor_divide(channels, size * size)
    if mode == "DCR":
        spread, axes = (batch, size, size, inner, height, width), (0, 3, 4, 1, 5, 2)
    else:
        spread, axes = (batch, inner, size, size, height, width), (0, 1, 4, 2, 5, 3)
    return m.reshape(m.transpose(m.reshape(x, spread), axes), (batch, inner, height * size, width * size))


@onnx_rule("ConstantOfShape")
def _filled(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    shape, value = n.extents(0), n.attribute("value", np.zeros(1, np.float32))
    if len(shape) < 2 and all(one.is_constant and 0 <= one.constant <= MOST_ELEMENTS for one in shape):
        return known(np.full([one.constant for one in shape], value.reshape(-1)[0], value.dtype))
    return m.add("full", shape=shape, value=value.reshape(-1)[0].item(), dtype=known(value).dtype)


@onnx_rule("Range")
def _range(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    dtype = m.dtype(n.value(0))
    (start,), (stop,), (step,) = (n.extents(k) for k in range(3))
    if not step.is_constant or not step.terms:
        raise GraphError(f"step {step}; allowed: a constant that is not 0")
    stop = (larger if step.constant > 0 else smaller)(start, stop, m.graph.ranges)  # none where it is before
    if start.is_constant and stop.is_constant:
        first, last = start.constant, stop.constant
        if abs(last - first) <= MOST_ELEMENTS:
            return known(np.arange(first, last, step.constant).astype(dtype))
    whole = m.add("arange", start=start, stop=stop, step=step.constant, dtype="int64")
    return str(m.cast(whole, dtype))


@onnx_rule("Trilu")
def _triangle(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    side = "upper" if n.attribute("upper", 1) else "lower"
    return m.add("triangle", n.tensor(0), side=side, diagonal=n.number(1, 0))


@onnx_rule("OneHot")
def _one_hot(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x, values = n.tensor(0), n.value(2)
    (depth,) = n.extents(1)
    if m.type(x).dtype not in FLOATS:
        x = str(m.cast(x, "int64"))  # a smaller dtype may not have the depth
    x = m.add("where", m.add("less", x, 0), m.add("add", x, m.cast(m.number(depth), m.type(x).dtype)), x)
    axis = axis_of(n.attribute("axis", -1), m.rank(x) + 1)
    shape = m.type(x).shape
    classes = m.add("arange", stop=depth, dtype=m.type(x).dtype)
    along = m.reshape(classes, (depth, *[1] * (len(shape) - axis)))
    hit = m.add("equal", m.reshape(x, (*shape[:axis], ONE, *shape[axis:])), along)
    off, on = n.numbers(2) if isinstance(values, Known) else (m.select(n.tensor(2), 0, k) for k in (0, 1))
    return m.add("where", hit, on, off, dtype=m.dtype(values))


@onnx_rule("TopK")
def _top(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x, counts = n.tensor(0), n.extents(1)
    if len(counts) != 1:
        raise GraphError(f"{len(counts)} numbers of elements; allowed: one")
    n.ignore("sorted")  # they are
    axis = axis_of(n.attribute("axis", -1), m.rank(x))
    return m.results("top", x, axis=axis, num=counts[0], largest=bool(n.attribute("largest", 1)))


@onnx_rule("ArgMax", name="argmax")
@onnx_rule("ArgMin", name="argmin")
def _position(m: OnnxImporter, n: OnnxNode, name: str) -> OnnxResult:
    x = n.tensor(0)
    axis, keep = axis_of(n.attribute("axis", 0), m.rank(x)), bool(n.attribute("keepdims", 1))
    if not n.attribute("select_last_index", 0):
        return m.add(name, x, axis=axis, keep=keep)
    first = m.add(name, m.add("flip", x, axes=(axis,)), axis=axis, keep=keep)
    return m.add("sub", m.number(m.type(x).shape[axis] - 1), first)


@onnx_rule("ReverseSequence")
def _reversed(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    """Return sequences of which each begins with its own first elements, the other way round."""
    x, lengths = n.tensor(0), n.tensor(1)
    batch, time = n.attribute("batch_axis", 1), n.attribute("time_axis", 0)
    steps = m.add("arange", stop=m.type(x).shape[time], dtype=m.type(lengths).dtype)
    steps = m.reshape(steps, (*m.type(steps).shape, ONE))
    back = m.add("sub", m.add("sub", lengths, steps), 1)
    own = m.add("where", m.add("less", steps, lengths), back, steps)
    rows = m.add("arange", stop=m.type(x).shape[batch])
    order = [time, batch, *(k for k in range(m.rank(x)) if k not in (batch, time))]
    taken = m.add("take_points", m.transpose(x, order), own, rows)
    return m.transpose(taken, [order.index(k) for k in range(len(order))])
