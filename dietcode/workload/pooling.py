"""Pooling: what slides over which axis of a tensor. Standard library only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from dietcode.workload.text import clip

if TYPE_CHECKING:  # needs pydantic
    from dietcode.workload.block import BlockNode

POOLINGS = ("maxpool", "avgpool")
MAX_SLIDES = 2  # axes that a window slides over
MAX_WINDOW = 64  # elements: each is a load in the generated code


class PoolAxis(NamedTuple):
    """A window over an axis of a tensor, in elements.

    Output position p sees ``p·stride - padding`` and the next ones, those of the axis alone.

    Attributes
    ----------
    axis, output : str
        Indices of the tensor's axis and of the output's.
    """

    axis: str
    output: str
    window: int
    stride: int
    padding: int
    padding_after: int


def pool_axes(node: BlockNode, own: str) -> tuple[PoolAxis, ...]:
    """Return the axes that a node's window slides over, outer first.

    Parameters
    ----------
    own : str
        Indices of its operand.

    Raises
    ------
    ValueError
        Its attributes and these indices do not fit together.
    """
    dims = str(node.attribute("dims"))
    pairs = [(old, new) for old, new in zip(own, dims, strict=False) if old != new]
    fits = len(dims) == len(own) and len(set(dims)) == len(dims) and own[-1:] == dims[-1:]
    if not fits or not 1 <= len(pairs) <= MAX_SLIDES or {new for _, new in pairs} & set(own):
        allowed = f"{clip(own)} with other letters for the 1 or {MAX_SLIDES} axes that the window slides over"
        raise ValueError(f"given dims {clip(dims)}; allowed: {allowed}, not the last one")
    window, strides = (_each(node, name, len(pairs)) for name in ("window", "strides"))
    if math.prod(window) > MAX_WINDOW:
        raise ValueError(f"given a window of {math.prod(window)} elements; allowed: at most {MAX_WINDOW}")
    padding = node.attribute("padding")
    if len(padding) == 2 * len(pairs):
        sides = list(zip(padding[::2], padding[1::2], strict=True))
    else:
        sides = [(side, side) for side in _each(node, "padding", len(pairs))]
    for width, side in zip(window, sides, strict=True):
        if max(side) >= width:
            allowed = f"less than the window of {width}, so that each position sees an element"
            raise ValueError(f"given a padding of {max(side)}; allowed: {allowed}")
    return tuple(
        PoolAxis(old, new, width, stride, *side)
        for (old, new), width, stride, side in zip(pairs, window, strides, sides, strict=True)
    )


def _each(node: BlockNode, name: str, count: int) -> tuple[int, ...]:
    """Return one number for each axis, of one for all or as many."""
    given: tuple[int, ...] = node.attribute(name)
    if len(given) == 1:
        return given * count
    if len(given) != count:
        most = f", or {2 * count}, before and after each" if name == "padding" else ""
        allowed = "1" if count == 1 else f"1 or {count}"
        raise ValueError(f"given {len(given)} numbers of {name}; allowed: {allowed}{most}")
    return given


def is_padded(axes: tuple[PoolAxis, ...]) -> bool:
    """Return whether a window may reach past the tensor."""
    return any(one.padding or one.padding_after for one in axes)


def taps(axes: tuple[PoolAxis, ...]) -> Iterator[tuple[int, ...]]:
    """Return the positions within a window, in the order in which they are combined."""
    return itertools.product(*(range(axis.window) for axis in axes))
