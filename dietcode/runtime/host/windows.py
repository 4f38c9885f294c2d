"""Convolutions and pooling: windows of the last axes as a view, then one product or one reduction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dietcode.errors import ShapeError
from dietcode.runtime.host.layers import Results
from dietcode.runtime.host.pointwise import Array, Attributes, Operands, quiet


def _windows(x: Array, window: Sequence[int], attributes: Attributes) -> Array:
    """Return a view [..., positions…, window…] of padded data [..., spatial…]."""
    rank = len(window)
    axes = tuple(range(x.ndim - rank, x.ndim))
    spans = tuple((k - 1) * d + 1 for k, d in zip(window, attributes["dilation"], strict=True))
    sizes = x.shape[x.ndim - rank :]
    if any(size < span for size, span in zip(sizes, spans, strict=True)):
        raise ShapeError(f"windows over {list(spans)} elements of {list(sizes)}; allowed: at least as many")
    view = sliding_window_view(x, spans, axis=axes)
    steps = (slice(None, None, step) for step in (*attributes["strides"], *attributes["dilation"]))
    index: tuple[Any, ...] = (Ellipsis, *steps)
    return np.asarray(view[index])


def _padded(x: Array, pads: Sequence[tuple[int, int]], value: Any) -> Array:
    if not any(map(any, pads)):
        return x
    return np.pad(x, [(0, 0)] * (x.ndim - len(pads)) + list(pads), constant_values=value)


def _conv(operands: Operands, attributes: Attributes) -> Results:
    """Products of W[g, o, c·window] with the windows [n, g, c·window, positions]."""
    x, w = operands[:2]
    rank, groups = w.ndim - 2, attributes["groups"]
    view = _windows(_padded(x, attributes["pads"], 0), w.shape[2:], attributes)
    positions = view.shape[2 : 2 + rank]
    view = np.moveaxis(view, range(2 + rank, 2 + 2 * rank), range(2, 2 + rank))
    columns = view.reshape(x.shape[0], groups, int(np.prod(w.shape[1:])), int(np.prod(positions)))
    result = np.matmul(w.reshape(groups, w.shape[0] // groups, -1), columns)
    result = result.reshape(x.shape[0], w.shape[0], *positions)
    if len(operands) > 2 and operands[2] is not None:
        result += operands[2].reshape(-1, *[1] * rank)
    return (result,)


def _beyond(x: Array, attributes: Attributes) -> list[int]:
    """Return how far the last windows reach beyond the padding, with `ceil`."""
    found = []
    axes = zip(
        *(x.shape[x.ndim - len(attributes["window"]) :], attributes["window"]),
        *(attributes[name] for name in ("strides", "dilation", "pads")),
        strict=True,
    )
    for extent, window, stride, dilation, (before, after) in axes:
        span = (window - 1) * dilation + 1
        whole = extent + before + after
        count = (whole - span) // stride + 1
        if attributes["ceil"]:
            # A window begins within the data or what is put before it.
            count = min(-(-(whole - span) // stride) + 1, (extent + before - 1) // stride + 1)
        found.append(max(0, (count - 1) * stride + span - whole))
    return found


def _max_pool(operands: Operands, attributes: Attributes) -> Results:
    x = operands[0]
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    pads = [(a, b + c) for (a, b), c in zip(attributes["pads"], _beyond(x, attributes), strict=True)]
    view = _windows(_padded(x, pads, least), attributes["window"], attributes)
    return (view.max(axis=tuple(range(-len(pads), 0))),)


def _avg_pool(operands: Operands, attributes: Attributes) -> Results:
    x = operands[0]
    beyond = _beyond(x, attributes)
    pads = [(a, b + c) for (a, b), c in zip(attributes["pads"], beyond, strict=True)]
    view = _windows(_padded(x, pads, 0), attributes["window"], attributes)
    axes = tuple(range(-len(pads), 0))
    total = view.sum(axis=axes, dtype=x.dtype)
    return (np.asarray(total / _counts(x, attributes, beyond)),)


def _counts(x: Array, attributes: Attributes, beyond: Sequence[int]) -> Array:
    """Return the number of elements that each window counts, [positions…]."""
    rank = len(beyond)
    counts = []
    for axis, ((before, after), more) in enumerate(zip(attributes["pads"], beyond, strict=True)):
        padding = 1 if attributes["count_pads"] else 0
        counted = [padding] * before + [1] * x.shape[x.ndim - rank + axis] + [padding] * after + [0] * more
        own: Mapping[str, Any] = {name: [attributes[name][axis]] for name in ("strides", "dilation")}
        ones = _windows(np.array(counted, x.dtype), attributes["window"][axis : axis + 1], own)
        counts.append(ones.sum(axis=-1, dtype=x.dtype).reshape(-1, *[1] * (rank - 1 - axis)))
    return np.asarray(reduce(np.multiply, counts))


FUNCTIONS = {
    name: quiet(function)
    for name, function in {"conv": _conv, "max_pool": _max_pool, "avg_pool": _avg_pool}.items()
}
