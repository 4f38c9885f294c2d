"""Slices of ONNX, whose steps may go backwards, and diagonals."""

from __future__ import annotations

from dietcode.graph.extent import ONE, Extent, larger
from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.onnx.context import (
    OnnxImporter,
    OnnxNode,
    OnnxResult,
    dtype_of,
    is_far,
    onnx_rule,
)


@onnx_rule("Slice")
def _slice(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x = n.tensor(0)
    starts, stops = n.extents(1), n.extents(2)
    axes = n.axes(3, m.rank(x)) or list(range(len(starts)))
    steps = n.numbers(4, [1] * len(starts))
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        length = m.type(x).shape[axis]
        if step < 0:
            # Counted from the end, where a bound of p takes the place of length - 1 - p.
            begin, end = (length - _above(m, one, length) for one in (start, stop))
            end = larger(begin, end, m.graph.ranges)
            x = m.slice(m.add("flip", x, axes=(axis,)), axis, begin, end, -step)
            continue
        if step == 0:
            raise GraphError("a slice with step 0; allowed: any other whole number")
        x = m.slice(x, axis, *m.span(_near(start, length), _near(stop, length), length), step)
    return x


def _near(bound: Extent, length: Extent) -> Extent:
    """Return a bound of a slice that may be as far as numbers go."""
    if not is_far(bound):
        return bound
    return length if bound.constant > 0 else Extent()


def _above(m: OnnxImporter, bound: Extent, length: Extent) -> Extent:
    """Return a bound of a slice backwards and 1 more: how many elements there are up to it."""
    if is_far(bound):
        return length if bound.constant > 0 else Extent()
    low, high = bound.bounds(m.graph.ranges)
    if high < 0:
        bound = bound + length
    elif low < 0:
        raise GraphError(f"a slice that begins or ends at {bound}, whose sign is not known")
    return m.at_most(larger(bound + 1, Extent(), m.graph.ranges), length)


@onnx_rule("EyeLike")
def _eye_like(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    """Return 1 on a diagonal and 0 elsewhere, in the shape of an operand."""
    shape = m.shape(n.value(0))
    if len(shape) != 2:
        raise GraphError(f"{len(shape)} axes; allowed: two")
    rows = m.reshape(m.add("arange", stop=shape[0]), (shape[0], ONE))
    columns = m.add("arange", stop=shape[1])
    on = m.add("equal", m.add("add", rows, n.attribute("k", 0)), columns)
    given = n.attribute("dtype")
    return str(m.cast(on, m.dtype(n.value(0)) if given is None else dtype_of(given)))
