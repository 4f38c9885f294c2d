"""Images and sequences in another size: interpolation, padding by elements, windows, transposed convolutions.

Importers share these; all of it is said in operators that graphs have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dietcode.graph.extent import ONE, Extent, floor_divide, larger
from dietcode.graph.graph import Value
from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.builder import GraphBuilder
from dietcode.models.importing.spelled_out import enlarged


def _ratio(
    b: GraphBuilder,
    over: Extent,
    under: Extent,
    scale: float | None,
    dtype: str,
    exact: Sequence[int] = (),
) -> Value:
    """Return how much of the old one an element of the new size is; `exact` as of `interpolated`."""
    if scale is not None:
        ratio: Value = 1.0 / scale
        for times in exact:
            low, high = (under - over * times).bounds(b.graph.ranges)
            if low == high == 0:
                return 1.0 / times
            if low <= 0 <= high:
                sizes = [b.add("extent", value=one) for one in (over * times, under)]
                ratio = b.add("where", b.add("equal", *sizes), 1.0 / times, ratio, dtype=dtype)
        return ratio
    if over.is_constant and under.is_constant:
        return over.constant / max(1, under.constant)
    sizes = [b.add("cast", b.add("extent", value=one), dtype=dtype) for one in (over, under)]
    return b.add("div", sizes[0], b.add("maximum", sizes[1], 1.0))


def nearest(
    b: GraphBuilder,
    x: str,
    wide: Sequence[Extent],
    scales: Sequence[float | None],
    centred: bool,
    exact: Sequence[int] = (),
) -> str:
    """Return ``[n, c, spatial…]`` in another shape, each element that of x which is nearest.

    Parameters
    ----------
    x : str
    wide : sequence of Extent
        The new shape.
    scales : sequence of float or None
        New elements for each old one along a spatial axis, where that is not the quotient of the sizes.
    centred : bool
        Whether an element's centre tells which is nearest, or its beginning.
    exact : sequence of int
        As of `interpolated`.
    """
    for axis, (size, scale) in enumerate(zip(wide[2:], scales, strict=True), start=2):
        own = b.type(x).shape[axis]
        count = floor_divide(size, own)
        if own * count == size and count.is_constant and scale in (None, float(count.constant)):
            x = enlarged(b, x, (*b.type(x).shape[:axis], size, *b.type(x).shape[axis + 1 :]))
            continue
        at = b.add("cast", b.add("arange", stop=size), dtype="float32")
        at = b.add("add", at, 0.5) if centred else at
        at = b.add("floor", b.add("mul", at, _ratio(b, own, size, scale, "float32", exact)))
        at = b.add("minimum", b.add("cast", at, dtype="int64"), b.number(own - 1))
        x = b.add("take", x, at, axis=axis)
    return x


def interpolated(
    b: GraphBuilder,
    x: str,
    axis: int,
    wide: Extent,
    scale: float | None,
    aligned: bool,
    exact: Sequence[int] = (),
) -> str:
    """Return x in another size along an axis, linear between its elements, as PyTorch has it.

    Parameters
    ----------
    x : str
        In floating point.
    axis : int
    wide : Extent
        The new size.
    scale : float, optional
        New elements for each old one, where that is not the quotient of the sizes.
    aligned : bool
        Whether the corners' elements stay where they are; else the corners themselves do.
    exact : sequence of int
        Where the new size is so many times the old one, that counts and not the scale, as in PyTorch.
    """
    return linearly_between(b, x, axis, *_around(b, x, axis, wide, scale, aligned, exact))


def linearly_between(b: GraphBuilder, x: str, axis: int, below: str, far: str) -> str:
    """Return what lies between elements along an axis, those at the ends being repeated beyond.

    Parameters
    ----------
    x : str
        In floating point.
    axis : int
    below : str
        The position before each place, whole numbers.
    far : str
        How far behind it the place is, from 0 up to 1.
    """
    last = b.number(b.type(x).shape[axis] - 1)

    def elements(position: str) -> str:
        return b.add("take", x, b.add("minimum", b.add("maximum", position, 0), last), axis=axis)

    weight = b.reshape(far, (*b.type(far).shape, *[ONE] * (b.rank(x) - 1 - axis)))
    first, second = elements(below), elements(b.add("add", below, 1))
    near = b.add("mul", first, b.add("sub", 1.0, weight))
    return b.add("add", near, b.add("mul", second, weight))


def cubically_interpolated(
    b: GraphBuilder, x: str, axis: int, wide: Extent, scale: float | None, aligned: bool, bend: float = -0.75
) -> str:
    """Return x in another size along an axis, by cubic functions over four elements, as PyTorch has it.

    Parameters
    ----------
    x, axis, wide, scale, aligned
        As of `interpolated`.
    bend : float
        Of the function, which is ``A`` in R. Keys, "Cubic convolution interpolation", 1981.
    """
    return cubically_between(b, x, axis, *_around(b, x, axis, wide, scale, aligned), bend)


def cubically_between(b: GraphBuilder, x: str, axis: int, below: str, far: str, bend: float) -> str:
    """Return what lies between elements, as `linearly_between` does, by cubic functions over four elements.

    Parameters
    ----------
    x, axis, below, far
        As of `linearly_between`.
    bend : float
        As of `cubically_interpolated`.
    """
    last = b.number(b.type(x).shape[axis] - 1)
    far = b.reshape(far, (*b.type(far).shape, *[ONE] * (b.rank(x) - 1 - axis)))
    total: str | None = None
    for place in range(-1, 3):
        distance = b.add("abs", b.add("sub", far, float(place)))
        if place in (0, 1):  # ((A + 2) d - (A + 3)) d² + 1
            line = b.add("sub", b.add("mul", distance, bend + 2), bend + 3)
            weight = b.add("add", b.add("mul", line, b.add("square", distance)), 1.0)
        else:  # A ((d - 5) d + 8) d - 4 A
            line = b.add("add", b.add("mul", b.add("sub", distance, 5.0), distance), 8.0)
            weight = b.add("mul", b.add("sub", b.add("mul", line, distance), 4.0), bend)
        row = b.add("minimum", b.add("maximum", b.add("add", below, place), 0), last)
        part = b.add("mul", b.add("take", x, row, axis=axis), weight)
        total = part if total is None else b.add("add", total, part)
    return str(total)


def _around(
    b: GraphBuilder,
    x: str,
    axis: int,
    wide: Extent,
    scale: float | None,
    aligned: bool,
    exact: Sequence[int] = (),
) -> tuple[str, str]:
    """Return the position before each place of a new size, and how far behind it the place is."""
    at = _places(b, b.type(x).shape[axis], wide, scale, aligned, b.type(x).dtype, exact)
    below = b.add("floor", at)
    return b.add("cast", below, dtype="int64"), b.add("sub", at, below)


def _places(
    b: GraphBuilder,
    narrow: Extent,
    wide: Extent,
    scale: float | None,
    aligned: bool,
    dtype: str,
    exact: Sequence[int] = (),
) -> str:
    """Return where the elements of a new size lie among those of the old one."""
    at = b.add("cast", b.add("arange", stop=wide), dtype=dtype)
    if aligned:
        return b.add("mul", at, _ratio(b, narrow - 1, wide - 1, None, dtype))
    ratio = _ratio(b, narrow, wide, scale, dtype, exact)
    return b.add("sub", b.add("mul", b.add("add", at, 0.5), ratio), 0.5)


def padded_by_number(b: GraphBuilder, x: str, axis: int, before: Extent, after: Extent, value: float) -> str:
    """Return x with a number put before and after along an axis, as often as sizes say.

    Parameters
    ----------
    x : str
    axis : int
    before, after : Extent
        How many; what is below zero takes elements away.
    value : float
    """
    ranges, zero, type_ = b.graph.ranges, Extent(), b.type(x)
    begin, end = (larger(zero - one, zero, ranges) for one in (before, after))
    pieces = [b.slice(x, axis, begin, type_.shape[axis] - end)]
    for place, many in ((0, before), (len(pieces) + 1, after)):
        more = larger(many, zero, ranges)
        if more.bounds(ranges)[1] > 0:
            shape = (*type_.shape[:axis], more, *type_.shape[axis + 1 :])
            pieces.insert(place, b.add("full", shape=shape, value=value, dtype=type_.dtype))
    return b.add("concat", *pieces, axis=axis) if len(pieces) > 1 else pieces[0]


def padded(b: GraphBuilder, x: str, axis: int, before: Extent, after: Extent, mode: str) -> str:
    """Return x with elements of its own put before and after along an axis.

    Parameters
    ----------
    x : str
    axis : int
    before, after : Extent
        How many.
    mode : str
        ``reflect`` or ``edge`` or ``wrap``, as `numpy.pad` has them; ``reflect once`` where there are fewer
        than the axis has.
    """
    if not (before.terms or after.terms):
        return x
    length = b.type(x).shape[axis]
    if mode == "edge" and any(one.bounds(b.graph.ranges)[0] < 0 for one in (before, after)):
        raise GraphError("padding that takes elements away; allowed: 0 or more")
    at = b.add("arange", start=Extent() - before, stop=length + after)
    last = b.number(length - 1)
    if mode == "reflect":
        turn = b.number(larger((length - 1) * 2, ONE, b.graph.ranges))
        at = b.add("remainder", at, turn)
        at = b.add("minimum", at, b.add("sub", turn, at)) if length != ONE else b.add("mul", at, 0)
    elif mode == "reflect once":
        from_end = b.add("abs", b.add("sub", last, b.add("abs", at)))
        at = b.add("sub", last, from_end)
    elif mode == "edge":
        at = b.add("minimum", b.add("maximum", at, 0), last)
    else:
        at = b.add("remainder", at, b.number(length))
    return b.add("take", x, at, axis=axis)


def windows(
    b: GraphBuilder, x: str, axis: int, count: Extent, size: int, step: int, dilation: int = 1
) -> str:
    """Return windows along an axis: in its place how many, and behind it the elements of each.

    Parameters
    ----------
    x : str
    axis : int
    count : Extent
        Of windows.
    size, step, dilation : int
        Elements of a window, from one window to the next, and from one element to the next.
    """
    begins = b.add("arange", stop=count * step, step=step)
    within = b.add("arange", stop=Extent.of(size * dilation), step=dilation)
    at = b.add("add", b.reshape(begins, (count, ONE)), b.reshape(within, (ONE, Extent.of(size))))
    return b.add("take", x, at, axis=axis)


@dataclass(frozen=True)
class TransposedConvolution:
    """How a transposed convolution moves, for each spatial axis.

    Attributes
    ----------
    strides, dilation : tuple of int
    pads : tuple of (int, int)
        What is cut off the result before and after.
    more : tuple of int
        Elements that the result has beyond.
    groups : int
    """

    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    more: tuple[int, ...]
    groups: int


def transposed_convolution(b: GraphBuilder, x: str, w: str, bias: Value, how: TransposedConvolution) -> str:
    """Return a transposed convolution of ``[n, c, spatial…]`` by weights ``[c, o / groups, spatial…]``."""
    window = [one.constant for one in b.type(w).shape[2:]]
    rank = len(window)
    alone = all(pair == (0, 0) for pair in how.pads) and not any(how.more)
    if alone and how.groups == 1 and tuple(window) == how.strides and set(how.dilation) == {1}:
        return _apart(b, x, w, bias, window)
    groups = how.groups
    channels, inner = (one.constant for one in b.type(w).shape[:2])
    spatial = tuple(Extent.of(one) for one in window)
    apart = b.reshape(w, (groups, channels // groups, inner, *spatial))
    turned = b.transpose(apart, (0, 2, 1, *range(3, 3 + rank)))
    kernel = b.reshape(turned, (groups * inner, channels // groups, *spatial))
    kernel = b.add("flip", kernel, axes=tuple(range(2, 2 + rank)))
    for axis, stride in enumerate(how.strides, start=2):
        x = _spread(b, x, axis, stride)
    spans = [(k - 1) * d for k, d in zip(window, how.dilation, strict=True)]
    pads = tuple(
        (span - low, span - high + more)
        for span, (low, high), more in zip(spans, how.pads, how.more, strict=True)
    )
    if any(min(pair) < 0 for pair in pads):
        x = b.add("pad", x, pads=((0, 0), (0, 0), *pads), value=0)
        pads = ((0, 0),) * rank
    operands = () if bias is None else (bias,)
    ones = (1,) * rank
    return b.add(
        *("conv", x, kernel, *operands), strides=ones, dilation=how.dilation, pads=pads, groups=groups
    )


def _spread(b: GraphBuilder, x: str, axis: int, stride: int) -> str:
    """Return x with zeros between the elements along an axis."""
    if stride == 1:
        return x
    shape = b.type(x).shape
    single = b.reshape(x, (*shape[: axis + 1], ONE, *shape[axis + 1 :]))
    pads = [(0, 0)] * (len(shape) + 1)
    pads[axis + 1] = (0, stride - 1)
    wide = b.add("pad", single, pads=tuple(pads), value=0)
    flat = b.reshape(wide, (*shape[:axis], shape[axis] * stride, *shape[axis + 1 :]))
    return b.slice(flat, axis, 0, (shape[axis] - 1) * stride + 1)


def _apart(b: GraphBuilder, x: str, w: str, bias: Value, window: Sequence[int]) -> str:
    """Return a transposed convolution whose windows do not overlap: each element becomes a block."""
    rank = len(window)
    batch, _, *sizes = b.type(x).shape
    channels, outer = b.type(w).shape[:2]
    blocks = tuple(Extent.of(one) for one in window)
    rows = outer
    for one in blocks:
        rows = rows * one
    turned = b.transpose(w, (*range(1, 2 + rank), 0))
    kernel = b.reshape(turned, (rows, channels, *[ONE] * rank))
    ones = (1,) * rank
    y = b.add("conv", x, kernel, strides=ones, dilation=ones, pads=((0, 0),) * rank, groups=1)
    y = b.reshape(y, (batch, outer, *blocks, *sizes))
    order = [0, 1]
    for axis in range(rank):
        order += [2 + rank + axis, 2 + axis]
    whole = [size * one for size, one in zip(sizes, blocks, strict=True)]
    y = b.reshape(b.transpose(y, order), (batch, outer, *whole))
    return y if bias is None else b.add("add", y, b.reshape(bias, (outer, *[ONE] * rank)))
