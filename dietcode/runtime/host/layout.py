"""Shapes, positions and orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dietcode.errors import ShapeError
from dietcode.runtime.host.layers import Results
from dietcode.runtime.host.pointwise import Array, Attributes, Operands


def _reshape(operands: Operands, attributes: Attributes) -> Results:
    return (operands[0].reshape(attributes["shape"]),)


def _transpose(operands: Operands, attributes: Attributes) -> Results:
    return (operands[0].transpose(attributes["axes"]),)


def _expand(operands: Operands, attributes: Attributes) -> Results:
    return (np.broadcast_to(operands[0], attributes["shape"]),)


def _slice(operands: Operands, attributes: Attributes) -> Results:
    x = operands[0]
    bounds = slice(attributes["start"], attributes["stop"], attributes["step"])
    return (x[(slice(None),) * (attributes["axis"] % x.ndim) + (bounds,)],)


def _flip(operands: Operands, attributes: Attributes) -> Results:
    return (np.flip(operands[0], tuple(attributes["axes"])),)


def _rotate(operands: Operands, attributes: Attributes) -> Results:
    x, by = operands[0], attributes["by"]
    leaving = x[..., x.shape[-1] - by :]
    return (
        np.concatenate((-leaving if attributes["negate"] else leaving, x[..., : x.shape[-1] - by]), axis=-1),
    )


def _concat(operands: Operands, attributes: Attributes) -> Results:
    return (np.concatenate(operands, axis=attributes["axis"]),)


def _concat_into(operands: Operands, attributes: Attributes, out: Array) -> None:
    np.concatenate(operands, axis=attributes["axis"], out=out)


def _pad(operands: Operands, attributes: Attributes) -> Results:
    x, pads = operands[0], attributes["pads"]
    kept = x[tuple(slice(max(0, -a), size - max(0, -b)) for size, (a, b) in zip(x.shape, pads, strict=True))]
    more = [(max(0, a), max(0, b)) for a, b in pads]
    return (np.pad(kept, more, constant_values=attributes["value"]) if any(map(any, more)) else kept,)


_UNSIGNED = {np.dtype(f"int{bits}"): np.dtype(f"uint{bits}") for bits in (32, 64)}


def first_outside(positions: Array, length: int, wraps: bool) -> int | None:
    """Return a position outside of an axis; None where all are within.

    Parameters
    ----------
    positions : int array
    length : int
        Of the axis.
    wraps : bool
        Whether those below 0 count from the end.
    """
    if not positions.size:
        return None
    unsigned = _UNSIGNED.get(positions.dtype)  # where numbers below 0 are the largest: one pass is enough
    if unsigned is not None and np.maximum.reduce(positions.view(unsigned), axis=None) < length:
        return None
    low, high = int(positions.min()), int(positions.max())
    if low < (-length if wraps else 0):
        return low
    return high if high >= length else None


def _check(name: str, positions: Sequence[Array], x: Array, axis: int, attributes: Attributes) -> None:
    """Check tensors of positions, one for each axis from one on.

    Raises
    ------
    ShapeError
    """
    for at, own in enumerate(positions, axis):
        length, wraps = x.shape[at], attributes.get("wraps", True)
        wrong = first_outside(own, length, wraps)
        if wrong is not None:
            allowed = f"{-length if wraps else 0} to {length - 1}" if length else "none, it has no elements"
            raise ShapeError(
                f"{name}: position {wrong} along axis {at} of {length} elements; allowed: {allowed}"
            )


def _take(operands: Operands, attributes: Attributes) -> Results:
    x, positions = operands
    axis = attributes["axis"] % x.ndim
    _check("take", [positions], x, axis, attributes)
    return (np.take(x, positions, axis=axis),)


def _take_along(operands: Operands, attributes: Attributes) -> Results:
    x, positions = operands
    axis = attributes["axis"] % x.ndim
    _check("take_along", [positions], x, axis, attributes)
    # On other axes there may be fewer positions than elements.
    own = x[tuple(slice(None) if k == axis else slice(size) for k, size in enumerate(positions.shape))]
    return (np.take_along_axis(own, positions, axis=axis),)


def _take_points(operands: Operands, attributes: Attributes) -> Results:
    x, *positions = operands
    _check("take_points", positions, x, 0, attributes)
    return (np.asarray(x[tuple(positions)]),)


_CHANGES: Mapping[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _changed(x: Array, at: tuple[Array, ...], source: Array, by: str) -> Array:
    """Return a copy with elements at positions changed, each as often as it has a position."""
    found = np.array(x, order="C", copy=True)
    if by == "set":
        found[at] = source
    else:
        _CHANGES[by].at(found, at, source)
    return found


def _scatter_along(operands: Operands, attributes: Attributes) -> Results:
    x, positions, source = operands
    axis = attributes["axis"] % x.ndim
    _check("scatter_along", [positions], x, axis, attributes)
    at = list(np.ogrid[tuple(slice(size) for size in positions.shape)])
    at[axis] = positions
    return (_changed(x, tuple(at), source, attributes["by"]),)


def _scatter_points(operands: Operands, attributes: Attributes) -> Results:
    x, source, *positions = operands
    _check("scatter_points", positions, x, 0, attributes)
    return (_changed(x, tuple(positions), source, attributes["by"]),)


def _full(operands: Operands, attributes: Attributes) -> Results:
    value = np.asarray(attributes["value"]).astype(attributes["dtype"])
    return (np.full(attributes["shape"], value),)


def _arange(operands: Operands, attributes: Attributes) -> Results:
    whole = np.arange(attributes["start"], attributes["stop"], attributes["step"], dtype=np.int64)
    return (whole.astype(attributes["dtype"], copy=False),)


def _extent(operands: Operands, attributes: Attributes) -> Results:
    return (np.asarray(attributes["value"], np.int64),)


def _triangle(operands: Operands, attributes: Attributes) -> Results:
    x, lower = operands[0], attributes["side"] == "lower"
    # The upper triangle is what is not in the lower one that ends before its diagonal.
    below = np.tri(x.shape[-2], x.shape[-1], attributes["diagonal"] - (0 if lower else 1), dtype=bool)
    return (np.where(below if lower else ~below, x, np.zeros((), x.dtype)),)


def _top(operands: Operands, attributes: Attributes) -> Results:
    """Return elements in order and their positions; equal ones stay in their order, NaN is the largest."""
    x = operands[0]
    axis = attributes["axis"] % x.ndim if x.ndim else None
    if axis is None:
        return (x.copy(), np.zeros((), np.int64))
    if attributes["largest"]:
        backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        order = x.shape[axis] - 1 - np.flip(backwards, axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    num = attributes["num"]
    if num is not None and num > x.shape[axis]:
        raise ShapeError(
            f"top: {num} along axis {axis} of {x.shape[axis]} elements; allowed: as many, or fewer"
        )
    if num is not None:
        order = order[(slice(None),) * axis + (slice(num),)]
    order = np.ascontiguousarray(order, np.int64)
    return (np.take_along_axis(x, order, axis=axis), order)


def _nonzero(operands: Operands, attributes: Attributes) -> Results:
    return (np.stack(np.nonzero(np.atleast_1d(operands[0])), axis=1)[:, : operands[0].ndim].astype(np.int64),)


def _repeat_each(operands: Operands, attributes: Attributes) -> Results:
    counts = operands[0]
    if counts.size and counts.min() < 0:
        raise ShapeError(f"repeat_each: a position {counts.min()} times; allowed: from 0")
    return (np.repeat(np.arange(len(counts), dtype=np.int64), counts),)


def _size(operands: Operands, attributes: Attributes) -> Results:
    return (np.asarray(operands[0], np.int64),)


def _assert(operands: Operands, attributes: Attributes) -> Results:
    """Check what a model requires.

    Raises
    ------
    ShapeError
        It does not hold.
    """
    value, least, most = attributes["value"], attributes["least"], attributes["most"]
    holds = all(bool(one.all()) for one in operands)
    holds = holds and (least is None or least <= value) and (most is None or value <= most)
    if not holds:
        raise ShapeError(f"the model requires {attributes['text']}")
    return (np.asarray(True),)


FUNCTIONS: dict[str, Callable[[Operands, Attributes], Results]] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "expand": _expand,
    "slice": _slice,
    "flip": _flip,
    "rotate": _rotate,
    "concat": _concat,
    "pad": _pad,
    "take": _take,
    "take_along": _take_along,
    "take_points": _take_points,
    "scatter_along": _scatter_along,
    "scatter_points": _scatter_points,
    "full": _full,
    "arange": _arange,
    "extent": _extent,
    "triangle": _triangle,
    "top": _top,
    "nonzero": _nonzero,
    "repeat_each": _repeat_each,
    "size": _size,
    "assert": _assert,
}
WRITERS: Mapping[str, Callable[[Operands, Attributes, Array], Any]] = {"concat": _concat_into}
