"""Functions that graphs have no operator for, in operators that they have; importers share them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from dietcode.graph.extent import ONE, Extent, floor_divide, product_of
from dietcode.graph.graph import Value
from dietcode.graph.tensor_type import INTEGERS, GraphError
from dietcode.models.importing.builder import GraphBuilder

_SOFTPLUS_TERMS = 6


def bound_of(dtype: str, side: int) -> float:
    """Return the least (`side` -1) or the largest number (1) that a dtype has."""
    if dtype == "bool":
        return side > 0
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        return int(limits.max if side > 0 else limits.min)
    return side * math.inf


def truncated_quotient(b: GraphBuilder, x: Value, y: Value, dtype: str) -> str:
    """Return quotients rounded towards zero."""
    if dtype not in INTEGERS:
        return b.add("trunc", b.add("div", x, y))
    # No abs, which the least integer does not have.
    return b.add("floor_divide", b.add("sub", x, b.add("fmod", x, y)), y)


def clipped(b: GraphBuilder, x: str, low: Value, high: Value) -> str:
    """Return elements brought between bounds, numbers or tensors, of which either may be left out."""
    if isinstance(low, str) or isinstance(high, str):
        for operator, bound in (("maximum", low), ("minimum", high)):
            x = x if bound is None else b.add(operator, x, bound)
        return x
    return b.add("clip", x, low=low, high=high)


def hard_sigmoid(b: GraphBuilder, x: str) -> str:
    """Return ``clip(x + 3, 0, 6) / 6``."""
    return b.add("mul", b.add("clip", b.add("add", x, 3.0), low=0.0, high=6.0), 1.0 / 6.0)


def hard_swish(b: GraphBuilder, x: str) -> str:
    """Return x times its hard sigmoid."""
    return b.add("mul", x, hard_sigmoid(b, x))


def _halves(b: GraphBuilder, x: str) -> tuple[str, str]:
    """Return what x is above 0, and what below; sums of both have the sign of x, of -0 too."""
    return b.add("clip", x, low=-0.0, high=None), b.add("clip", x, low=None, high=0.0)


def leaky_relu(b: GraphBuilder, x: str, slope: float) -> str:
    """Return x, and below 0 a multiple of it."""
    above, below = _halves(b, x)
    return b.add("add", above, b.add("mul", below, float(slope)))


def elu(b: GraphBuilder, x: str, alpha: float, scale: float = 1.0, input_scale: float = 1.0) -> str:
    """Return ``scale · x``, and below 0 ``scale · alpha · (exp(input_scale · x) - 1)``.

    ``exp(y) - 1`` is ``2 t / (1 - t)`` of ``t = tanh(y / 2)``, which keeps the digits of small y.
    """
    above, below = _halves(b, x)
    t = b.add("tanh", b.add("mul", below, 0.5 * input_scale))
    bent = b.add("div", b.add("mul", t, 2.0 * alpha * scale), b.add("sub", 1.0, t))
    return b.add("add", above if scale == 1 else b.add("mul", above, float(scale)), bent)


def softplus(b: GraphBuilder, x: str) -> str:
    """Return ``log(1 + exp(x))`` as ``max(x, 0) + log(1 + e)``, e = exp(-|x|), which overflows nowhere.

    ``log(1 + e)`` is ``2·artanh(s)`` for ``s = e / (2 + e)``, at most 1/3, whose series keeps the digits of
    small e: the terms that are left out are below 3e-7 of it.
    """
    small = b.add("exp", b.add("neg", b.add("abs", x)))
    s = b.add("div", small, b.add("add", small, 2.0))
    square = b.add("square", s)
    series: Value = 2 / (2 * _SOFTPLUS_TERMS - 1)
    for k in range(_SOFTPLUS_TERMS - 2, -1, -1):
        series = b.add("add", b.add("mul", square, series), 2 / (2 * k + 1))
    return b.add("add", b.add("relu", x), b.add("mul", s, series))


def mish(b: GraphBuilder, x: str) -> str:
    """Return ``x · tanh(log(1 + exp(x)))``."""
    return b.add("mul", x, b.add("tanh", softplus(b, x)))


def is_nan(b: GraphBuilder, x: str) -> str:
    """Return where elements are no numbers: those differ from themselves."""
    return b.add("not_equal", x, x)


def is_infinite(b: GraphBuilder, x: str) -> str:
    """Return where elements are infinite."""
    if b.type(x).dtype in INTEGERS:
        return is_nan(b, x)  # none is
    return b.add("equal", b.add("abs", x), math.inf)


def prelu(b: GraphBuilder, x: str, weight: str) -> str:
    """Return x, and below 0 its product with a weight that broadcasts."""
    above, below = _halves(b, x)
    return b.add("add", above, b.add("mul", weight, below))


def log_sum_exp(b: GraphBuilder, x: str, axes: Sequence[int], keep: bool) -> str:
    """Return ``log(sum(exp(x)))`` over axes; of elements that are all -inf it is -inf, and inf beside inf."""
    least = [e.bounds(b.graph.ranges)[0] if k in axes else 1 for k, e in enumerate(b.type(x).shape)]
    if min(least, default=1) < 1:  # the largest of nothing is -inf here
        x = b.add("pad", x, pads=tuple((0, int(one < 1)) for one in least), value=-math.inf)
    largest = b.add("max", x, axes=tuple(axes), keep=True)
    # An infinity less itself is no number.
    below = b.add("where", b.add("equal", x, largest), 0.0, b.add("sub", x, largest), dtype=b.type(x).dtype)
    total = b.add("sum", b.add("exp", below), axes=tuple(axes), keep=keep)
    return b.add("add", b.add("log", total), b.reshape(largest, b.type(total).shape))


def norm(b: GraphBuilder, x: str, axes: Sequence[int], order: float, keep: bool) -> str:
    """Return the norm along some axes; order 0 counts, infinity is the largest, minus infinity the least."""
    axes = tuple(axes)
    if order == 2:
        return b.add("sqrt", b.add("sum", b.add("square", x), axes=axes, keep=keep))
    if order == 0:
        return b.add("sum", b.cast(b.add("not_equal", x, 0.0), b.type(x).dtype), axes=axes, keep=keep)
    size = b.add("abs", x)
    if order in (1, math.inf, -math.inf):
        return b.add({1: "sum", math.inf: "max"}.get(order, "min"), size, axes=axes, keep=keep)
    return b.add("pow", b.add("sum", b.add("pow", size, float(order)), axes=axes, keep=keep), 1.0 / order)


def scaled(b: GraphBuilder, x: str, weight: Value, bias: Value) -> str:
    """Return ``x · weight + bias``, of which either may be left out."""
    x = x if weight is None else b.add("mul", x, weight)
    return x if bias is None else b.add("add", x, bias)


def per_channel(b: GraphBuilder, value: Value, rank: int) -> Value:
    """Return a vector of the channels that goes with ``[n, c, spatial…]`` of a rank."""
    return None if value is None else b.reshape(value, (*b.type(value).shape, *[1] * (rank - 2)))


def batch_norm(
    b: GraphBuilder, x: str, weight: Value, bias: Value, mean: str, variance: str, eps: float
) -> str:
    """Return the norm of ``[n, c, spatial…]`` by statistics that were learned.

    Parameters
    ----------
    x : str
    weight, bias : str or None
    mean, variance : str
        Of each channel, as are weight and bias.
    eps : float
    """
    scale = b.add("rsqrt", b.add("add", variance, float(eps)))
    scale = scale if weight is None else b.add("mul", weight, scale)
    shift = b.add("neg", b.add("mul", mean, scale))
    shift = shift if bias is None else b.add("add", bias, shift)
    rank = b.rank(x)
    return scaled(b, x, per_channel(b, scale, rank), per_channel(b, shift, rank))


def group_norm(b: GraphBuilder, x: str, groups: int, weight: Value, bias: Value, eps: float) -> str:
    """Return the norm of ``[n, c, spatial…]`` over groups of channels.

    Parameters
    ----------
    x : str
    groups : int
    weight, bias : str or None
        Of each channel.
    eps : float
    """
    type_ = b.type(x)
    rows = (type_.shape[0], Extent.of(groups), floor_divide(type_.num_elements, type_.shape[0] * groups))
    flat = b.add("layernorm", b.reshape(x, rows), eps=eps, num_axes=1)
    whole = b.reshape(flat, type_.shape)
    return scaled(b, whole, per_channel(b, weight, type_.rank), per_channel(b, bias, type_.rank))


def completed(total: Extent, sizes: Sequence[Extent | None]) -> tuple[Extent, ...]:
    """Return sizes with None replaced by what is left of all elements."""
    rest = product_of(one for one in sizes if one is not None)
    return tuple(floor_divide(total, rest) if one is None else one for one in sizes)


def flattened(b: GraphBuilder, x: str, first: int, last: int) -> str:
    """Return x with its axes from `first` to `last` as one."""
    shape = b.type(x).shape
    middle = product_of(shape[first : last + 1])
    return b.reshape(x, (*shape[:first], middle, *shape[last + 1 :]))


def repeated(b: GraphBuilder, x: str, repeats: Sequence[Extent]) -> str:
    """Return copies of x, one after the other along each axis."""
    own, repeats = b.type(x).shape, tuple(repeats)
    repeats = (ONE,) * (len(own) - len(repeats)) + repeats
    own = (ONE,) * (len(repeats) - len(own)) + own
    both = [extent for pair in zip(repeats, own, strict=True) for extent in pair]
    spread = [one if k % 2 else ONE for k, one in enumerate(both)]
    whole = tuple(count * extent for count, extent in zip(repeats, own, strict=True))
    return b.reshape(b.add("expand", b.reshape(x, spread), shape=tuple(both)), whole)


def extreme_so_far(b: GraphBuilder, name: str, x: str, axis: int) -> tuple[str, str]:
    """Return the largest or smallest elements so far along an axis, and where each is, the last of equals.

    Parameters
    ----------
    name : str
        ``cummax`` or ``cummin``.
    x : str
    axis : int
        From the front.
    """
    type_ = b.type(x)
    found = b.add(name, x, axis=axis)
    length = type_.shape[axis]
    own = b.reshape(b.add("arange", stop=length), [length if k == axis else ONE for k in range(type_.rank)])
    # What is no number is the extreme from there on.
    is_new = b.add("or", b.add("equal", x, found), b.add("not_equal", x, x))
    return found, b.add("cummax", b.add("where", is_new, own, 0, dtype="int64"), axis=axis)


def enlarged(b: GraphBuilder, x: str, wide: Sequence[Extent]) -> str:
    """Return ``[n, c, spatial…]`` in a larger shape, each element repeated, as the nearest one does."""
    shape, wide = b.type(x).shape, tuple(wide)
    counts = [floor_divide(one, own) for own, one in zip(shape[2:], wide[2:], strict=True)]
    pairs = zip(shape[2:], counts, wide[2:], strict=True)
    if not all(count.is_constant and own * count == one for own, count, one in pairs):
        raise GraphError(f"interpolation of {b.type(x)}; allowed: to whole multiples, as scale_factor=2")
    both = [e for pair in zip(shape[2:], counts, strict=True) for e in pair]
    spread = [e if k % 2 == 0 else ONE for k, e in enumerate(both)]
    narrow = b.reshape(x, (*shape[:2], *spread))
    return b.reshape(b.add("expand", narrow, shape=(*shape[:2], *both)), wide)


def parts(b: GraphBuilder, x: str, axis: int, sizes: Sequence[Extent]) -> list[str]:
    """Return parts along an axis that follow each other."""
    begins = list(itertools.accumulate(sizes, initial=Extent()))
    return [b.slice(x, axis, begin, begin + size) for begin, size in zip(begins, sizes, strict=False)]
