"""Largest elements and means of windows: of one size, and of as many as are wanted."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from dietcode.graph.extent import ONE, Extent, floor_divide
from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.builder import GraphBuilder
from dietcode.models.importing.context import Imported, Importer, rule
from dietcode.models.importing.spelled_out import bound_of, is_nan


def pairs(numbers: Sequence[int], rank: int) -> tuple[tuple[int, int], ...]:
    """Return the same number before and after, for each spatial axis."""
    return tuple((number, number) for number in each(numbers, rank))


def each(numbers: Any, rank: int, default: Sequence[int] = ()) -> tuple[int, ...]:
    """Return a number for each spatial axis; PyTorch takes one for all, too."""
    numbers = list(numbers) if isinstance(numbers, list | tuple) else [numbers]
    numbers = numbers or list(default)
    return tuple(numbers * rank if len(numbers) == 1 else numbers)


def _pooled(m: Importer, operator: str, a: Mapping[str, Any], rank: int, **more: Any) -> str:
    """Return windows along the last axes; those along three are windows along two, and then along one."""
    x, window = m.tensor(a["self"]), each(a["kernel_size"], rank)
    strides, dilation = each(a["stride"], rank, window), each(a.get("dilation", 1), rank)
    pads, ceil = pairs(a["padding"], rank), bool(a["ceil_mode"])

    def along(x: str, axes: slice) -> str:
        own = {"window": window[axes], "strides": strides[axes], "pads": pads[axes]}
        return m.add(operator, x, **own, dilation=dilation[axes], ceil=ceil, **more)

    if rank < 3:
        return along(x, slice(None))
    *lead, depth, height, width = m.type(x).shape
    x = along(m.reshape(x, (*lead[:-1], lead[-1] * depth, height, width)), slice(1, None))
    *_, height, width = m.type(x).shape
    x = m.reshape(x, (*lead, depth, height * width))
    own = {"window": (*window[:1], 1), "strides": (*strides[:1], 1), "pads": (*pads[:1], (0, 0))}
    x = m.add(operator, x, **own, dilation=(*dilation[:1], 1), ceil=ceil, **more)
    return m.reshape(x, (*lead, m.type(x).shape[-2], height, width))


def _largest(m: Importer, a: Mapping[str, Any], fake: Any, *, rank: int) -> Imported:
    return _pooled(m, "max_pool", a, rank)


def _largest_and_where(m: Importer, a: Mapping[str, Any], fake: Any, *, rank: int) -> Imported:
    """Return the largest elements, and the position of each among those of its channel."""
    found, x, window = _pooled(m, "max_pool", a, rank), m.tensor(a["self"]), each(a["kernel_size"], rank)
    options = {"strides": each(a["stride"], rank, window), "dilation": each(a["dilation"], rank)}
    pads = pairs(a["padding"], rank)
    wide = found if m.rank(found) > rank + 1 else m.reshape(found, (ONE, *m.type(found).shape))
    image = x if m.rank(x) > rank + 1 else m.reshape(x, (ONE, *m.type(x).shape))
    at = largest_positions(m, image, wide, positions(m, image), window=window, pads=pads, **options)
    count = reduce(lambda one, other: one * other, m.type(x).shape[-rank:], ONE)
    return found, m.reshape(m.add("remainder", at, m.number(count)), m.type(found).shape)


def positions(b: GraphBuilder, x: str, columns_first: bool = False) -> str:
    """Return the position of each element of a tensor ``[n, c, spatial…]``, all its axes as one.

    With `columns_first` the first of the spatial axes changes fastest.
    """
    shape = b.type(x).shape
    rest = shape[2:][::-1] if columns_first else shape[2:]
    count = reduce(lambda one, other: one * other, shape, ONE)
    places = b.reshape(b.add("arange", stop=count), (*shape[:2], *rest))
    return b.transpose(places, [0, 1, *range(len(shape) - 1, 1, -1)]) if columns_first else places


def largest_positions(b: GraphBuilder, x: str, found: str, places: str, **options: Any) -> str:
    """Return the position of the first largest element of each window.

    Of elements that are no numbers it is the last, as in PyTorch.

    Parameters
    ----------
    b : GraphBuilder
    x : str
        ``[n, c, spatial…]``.
    found : str
        What ``max_pool`` gives.
    places : str
        The position of each element of x, as of `positions`.
    **options
        Its attributes.
    """
    # With ceil_mode the last window may end less than a stride behind.
    around = [
        (before, after + s - 1)
        for (before, after), s in zip(options["pads"], options["strides"], strict=True)
    ]
    pads = ((0, 0), (0, 0), *around)
    wide = b.add("pad", x, pads=pads, value=bound_of(b.type(x).dtype, -1))
    places = b.add("pad", places, pads=pads, value=-1)
    best = at = ""
    for offsets in itertools.product(*map(range, options["window"])):
        value, place = wide, places
        for number, offset in enumerate(offsets):
            first, stride = offset * options["dilation"][number], options["strides"][number]
            stop = (b.type(found).shape[2 + number] - 1) * stride + first + 1
            value, place = (b.slice(one, 2 + number, first, stop, stride) for one in (value, place))
        if not best:
            best, at = value, place
            continue
        more = b.add("or", b.add("less", best, value), is_nan(b, value))
        if options.get("ceil") or any(map(any, options["pads"])):  # a window's first element counts
            more = b.add("or", more, b.add("less", at, 0))
        at = b.add("where", more, place, at, dtype="int64")
        best = b.add("maximum", best, value)
    return at


def _mean(m: Importer, a: Mapping[str, Any], fake: Any, rank: int) -> Imported:
    if a.get("divisor_override") is not None:
        raise GraphError("avg_pool with divisor_override; allowed: without")
    return _pooled(m, "avg_pool", a, rank, count_pads=a["count_include_pad"])


for _rank in (1, 2, 3):
    rule(f"aten.avg_pool{_rank}d.default", rank=_rank)(_mean)
    rule(f"aten.max_pool{_rank}d.default", rank=_rank)(_largest)
    if _rank > 1:
        rule(f"aten.max_pool{_rank}d_with_indices.default", rank=_rank)(_largest_and_where)


def adaptive_pool(b: GraphBuilder, x: str, sizes: Sequence[Extent], reduction: str) -> str:
    """Return the reductions of as many windows as are wanted along each of the last axes.

    Window i of S along an axis of extent E goes from ``floor(i E / S)`` to ``ceil((i + 1) E / S)``.

    Parameters
    ----------
    x : str
    sizes : sequence of Extent
        How many along each of the last axes.
    reduction : 'mean' or 'max'
    """
    first = b.rank(x) - len(sizes)
    extents = b.type(x).shape[first:]
    if all(size == ONE for size in sizes):
        return b.add(reduction, x, axes=tuple(range(first, b.rank(x))), keep=True)
    windows = [floor_divide(e, s) for e, s in zip(extents, sizes, strict=True)]
    whole = [window * s == e for window, e, s in zip(windows, extents, sizes, strict=True)]
    if all(whole) and len(sizes) < 3 and all(one.is_constant for one in windows):
        one = tuple(window.constant for window in windows)
        none = {"pads": ((0, 0),) * len(one), "dilation": (1,) * len(one), "ceil": False}
        more = {"count_pads": True} if reduction == "mean" else {}
        operator = {"mean": "avg_pool", "max": "max_pool"}[reduction]
        return b.add(operator, x, window=one, strides=one, **none, **more)
    for axis, size in enumerate(sizes, start=first):
        x = _pooled_along(b, x, axis, size, reduction)
    return x


def _pooled_along(b: GraphBuilder, x: str, axis: int, size: Extent, reduction: str) -> str:
    shape = b.type(x).shape
    extent, window = shape[axis], floor_divide(shape[axis], size)
    if size == extent:
        return x
    if size == ONE:
        return b.add(reduction, x, axes=(axis,), keep=True)
    if window * size == extent:
        x = b.reshape(x, (*shape[:axis], size, window, *shape[axis + 1 :]))
        return b.add(reduction, x, axes=(axis + 1,), keep=False)
    longest = floor_divide(extent + size - 1, size) + 1  # a window may begin and end within elements
    numbers = [b.add("extent", value=one) for one in (extent, size)]
    at = b.add("arange", stop=size)
    begin = b.add("floor_divide", b.add("mul", at, numbers[0]), numbers[1])
    rounded_up = b.add("add", b.add("mul", b.add("add", at, 1), numbers[0]), b.add("sub", numbers[1], 1))
    end = b.add("floor_divide", rounded_up, numbers[1])
    columns = [b.reshape(one, (size, ONE)) for one in (begin, end)]
    positions = b.add("add", columns[0], b.reshape(b.add("arange", stop=longest), (ONE, longest)))
    found = b.add("take", x, b.add("minimum", positions, b.add("sub", columns[1], 1)), axis=axis)
    if reduction == "max":  # the last element of a window, again
        return b.add("max", found, axes=(axis + 1,), keep=False)
    behind = (ONE,) * (b.rank(x) - 1 - axis)
    inside = b.reshape(b.add("less", positions, columns[1]), (size, longest, *behind))
    total = b.add("sum", b.add("where", inside, found, 0.0), axes=(axis + 1,), keep=False)
    count = b.add("cast", b.add("sub", end, begin), dtype=b.type(x).dtype)
    return b.add("div", total, b.reshape(count, (size, *behind)))


def _adaptive_sizes(m: Importer, x: str, given: Sequence[Any]) -> list[Extent]:
    own = m.type(x).shape[m.rank(x) - len(given) :]
    return [e if one is None else m.extent(one) for e, one in zip(own, given, strict=True)]


@rule(
    *(f"aten.adaptive_avg_pool{rank}d.default" for rank in (1, 2, 3)),
    *(f"aten._adaptive_avg_pool{rank}d.default" for rank in (2, 3)),
)
def _adaptive_mean(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    return adaptive_pool(m, x, _adaptive_sizes(m, x, a["output_size"]), "mean")


@rule(*(f"aten.adaptive_max_pool{rank}d.default" for rank in (1, 2, 3)))
def _adaptive_largest(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    return adaptive_pool(m, x, _adaptive_sizes(m, x, a["output_size"]), "max"), None
