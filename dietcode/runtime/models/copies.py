"""Copies of values into memory that is there: by NumPy, large ones natively, by several threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Copy: TypeAlias = Callable[[Array, Array], None]  # of a source, second, into an array of its shape and dtype

LARGE_BYTES = 1 << 16  # from which a native copy pays
_MOST_AXES = 16  # that it takes
_FEW = 4  # positions of an axis, up to which a copy for each of them pays
_MANY = 4096  # elements of a value, from which it does


def copy_array(out: Array, source: Array) -> None:
    """Copy a value whose elements need not lie one after the other, by NumPy.

    NumPy goes along the result's last axis. Where that is short, as the channels of images are, and the
    source's elements follow each other along the axis before it, a copy for each of its positions takes less.
    """
    if (
        source.ndim > 1
        and 1 < source.shape[-1] <= _FEW
        and source.size >= _MANY
        and source.strides[-2] == source.itemsize
        and source.strides[-1] > source.itemsize
    ):
        for position in range(source.shape[-1]):
            out[..., position] = source[..., position]
        return
    np.copyto(out, source)


def native_copy(run: Callable[[Array, Array, int], Any]) -> Copy:
    """Return a copy that leaves large values to the launcher, where rows of both sides are whole.

    Parameters
    ----------
    run : callable
        The launcher's ``copy``, bound to threads.
    """

    def copy(out: Array, source: Array) -> None:
        num_bytes, element = out.nbytes, out.itemsize
        if (
            num_bytes < LARGE_BYTES
            or not source.strides[-1] == element == out.strides[-1]
            or source.ndim > _MOST_AXES
            or source.dtype != out.dtype
            or not source.flags.writeable  # what DLPack does not take
        ):
            copy_array(out, source)
        else:
            run(out, source, num_bytes.bit_length())

    return copy


def concatenate(parts: Sequence[Array], axis: int, out: Array, copy: Copy) -> None:
    """Write arrays one after the other into memory of the size of all, large ones by themselves."""
    if out.nbytes < LARGE_BYTES or max(part.nbytes for part in parts) < LARGE_BYTES:
        np.concatenate(parts, axis=axis, out=out)
        return
    before = (slice(None),) * (axis % out.ndim)
    begin = 0
    for part in parts:
        end = begin + part.shape[axis]
        copy(out[(*before, slice(begin, end))], part)
        begin = end
