"""How large tensors may be: what passes these limits is refused when it is read, before it is allocated."""

from __future__ import annotations

import math

import numpy as np

from dietcode.graph.extent import Ranges
from dietcode.graph.tensor_type import GraphError, TensorType

MAX_EXTENT = 2**31 - 1
_MOST_BYTES = 2**40  # at the largest shapes of the declared ranges
_LEAST_BYTES = 2**34  # at the smallest: no shape can do with less
_MADE_BYTES = 2**30  # of what is made of numbers alone
_ADVICE = "narrow the ranges, or compute it in smaller pieces"


def check_size(type_: TensorType, ranges: Ranges, is_made: bool = False) -> None:
    """Refuse negative extents, and tensors that no machine holds.

    Parameters
    ----------
    type_ : TensorType
    ranges : mapping of str to (int, int)
        Of the dimensions.
    is_made : bool
        Whether it is made of numbers alone, as by ``full`` and ``arange``.

    Raises
    ------
    GraphError
        Names the tensor, its size and the limit.
    """
    bounds = [extent.bounds(ranges) for extent in type_.shape]
    for extent, (low, high) in zip(type_.shape, bounds, strict=True):
        if high < 0 or high > MAX_EXTENT:
            raise GraphError(f"{type_}: extent {extent} is {low} to {high}; allowed: 0 to {MAX_EXTENT}")
    item_bytes = np.dtype(type_.dtype).itemsize
    most = math.prod(high for _, high in bounds) * item_bytes
    least = math.prod(max(0, low) for low, _ in bounds) * item_bytes
    limits = [(most, _MOST_BYTES, "at its largest"), (least, _LEAST_BYTES, "at its smallest")]
    if is_made:
        limits.append((least, _MADE_BYTES, "made of numbers alone"))
    for num_bytes, limit, where in limits:
        if num_bytes > limit:
            raise GraphError(
                f"{type_}: {num_bytes / 2**30:.1f} GiB {where}; allowed: {limit >> 30} GiB ({_ADVICE})"
            )
