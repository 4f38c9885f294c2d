"""Convolutions with as many groups as a batch has images, each with its own weights: products of windows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dietcode.graph.extent import ONE, Extent, floor_divide, product_of
from dietcode.graph.graph import Value
from dietcode.models.importing.builder import GraphBuilder


def convolution_of_groups(
    b: GraphBuilder,
    x: str,
    w: str,
    bias: Value,
    groups: Extent,
    strides: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[tuple[int, int]],
) -> str:
    """Return a convolution of ``[n, groups·c, spatial…]`` by ``[groups·o, c, window…]``.

    The elements of all windows are copied next to each other, ``[groups, n, c·window, positions]``, and each
    group is one product with its weights.

    Parameters
    ----------
    x, w : str
    bias : str or None
        Of each channel of the result.
    groups : Extent
    strides, dilation, pads : sequence
        Of each spatial axis.
    """
    batch, _, *spatial = b.type(x).shape
    outer, inner, *window = b.type(w).shape
    counts = [one.constant for one in window]
    if any(pair != (0, 0) for pair in pads):
        x = b.add("pad", x, pads=((0, 0), (0, 0), *pads), value=0)
    sizes = [
        floor_divide(size + sum(pad) - d * (k - 1) - 1, Extent.of(stride)) + 1
        for size, pad, d, k, stride in zip(spatial, pads, dilation, counts, strides, strict=True)
    ]
    positions = product_of(sizes)
    parts = []
    for at in itertools.product(*map(range, counts)):
        part = x
        for axis, (offset, d, size, stride) in enumerate(zip(at, dilation, sizes, strides, strict=True), 2):
            part = b.slice(part, axis, offset * d, Extent.of(offset * d) + (size - 1) * stride + 1, stride)
        parts.append(b.reshape(part, (batch, groups, inner, ONE, positions)))
    windows = b.add("concat", *parts, axis=3) if len(parts) > 1 else parts[0]
    depth = inner * len(parts)
    windows = b.reshape(b.transpose(windows, (1, 0, 2, 3, 4)), (groups, batch, depth, positions))
    own = floor_divide(outer, groups)
    found = b.add("matmul", b.reshape(w, (groups, ONE, own, depth)), windows)
    result = b.reshape(b.transpose(found, (1, 0, 2, 3)), (batch, outer, *sizes))
    if bias is None:
        return result
    return b.add("add", result, b.reshape(bias, (outer, *(ONE for _ in sizes))))
