"""Which waves a micro-kernel is timed on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dietcode.measure.requests import Point
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.problem import AnyProblem, IntArray

NUM_ANCHORS = 5
_NUM_BETWEEN = 3  # instances between two anchors, at most
_NUM_EACH = 2  # instances of a kind, at least


def choose_anchors(
    problem: AnyProblem, extents: dict[str, IntArray], num_anchors: int = NUM_ANCHORS
) -> list[dict[str, int]]:
    """Choose instances spread evenly over the logarithm of the work, smallest and largest included.

    Parameters
    ----------
    extents : dict of str to int64 array [num_instances]
        Extents of every instance.
    """
    flops = np.broadcast_to(problem.flops(extents), len(next(iter(extents.values()))))
    order = np.argsort(flops, kind="stable")
    logs = np.log(flops[order])
    wanted = np.linspace(logs[0], logs[-1], num_anchors)
    nearest = (int(order[int(np.abs(logs - value).argmin())]) for value in wanted)
    # Few instances are all measured: equal work may come from another reduction.
    picked = dict.fromkeys(nearest if len(order) > num_anchors else (int(i) for i in order))
    return [{index: int(values[i]) for index, values in extents.items()} for i in picked]


def choose_between(problem: AnyProblem, extents: dict[str, IntArray]) -> list[dict[str, int]]:
    """Choose up to three instances between each two of `choose_anchors`, by the logarithm of the work.

    Parameters
    ----------
    extents : dict of str to int64 array [num_instances]
        Extents of every instance.
    """
    anchors = choose_anchors(problem, extents)
    num_points = (NUM_ANCHORS - 1) * (_NUM_BETWEEN + 1) + 1
    return [p for p in choose_anchors(problem, extents, num_points) if p not in anchors]


def choose_of_kinds(
    problem: AnyProblem, extents: dict[str, IntArray], kinds: IntArray
) -> list[dict[str, int]]:
    """Choose instances of each kind that `choose_anchors` has fewer than two of, within the range of work.

    Parameters
    ----------
    extents : dict of str to int64 array [num_instances]
        Extents of every instance.
    kinds : int64 array [num_instances]
        The kind of each.
    """
    anchors: list[dict[str, int]] = choose_anchors(problem, extents)
    found: list[dict[str, int]] = []
    for kind in np.unique(kinds).tolist():
        own = {index: values[kinds == kind] for index, values in extents.items()}
        known = sum(any(_at(own, anchor)) for anchor in anchors)
        inside = choose_anchors(problem, own, _NUM_EACH + 2)
        found += (inside[1:-1] if len(inside) > _NUM_EACH else inside)[known:_NUM_EACH]
    return [point for point in found if point not in anchors]


def _at(extents: dict[str, IntArray], point: Point) -> Any:
    """Return which instances have the extents of a point, bool [num_instances]."""
    return np.logical_and.reduce([values == point[index] for index, values in extents.items()])


def full_wave(problem: AnyProblem, micro_kernel: AnyMicroKernel, anchor: Point) -> dict[str, int]:
    """Return an anchor with dynamic rows and columns rounded up to whole tiles, so that nothing is padded."""
    full = dict(anchor)
    for indices, tile in ((problem.rows, micro_kernel.rows), (problem.columns, micro_kernel.columns)):
        if can_grow(problem, indices, anchor):
            full[indices[-1]] = -(-anchor[indices[-1]] // tile) * tile
    return full


def can_grow(problem: AnyProblem, indices: Sequence[str], anchor: Point) -> bool:
    """Whether there may be more rows, or columns: their last index varies, alone, and no window slides."""
    last = indices[-1:]
    alone = problem.product(tuple(indices[:-1]), dict(anchor)) == 1
    slides = any(window.output in last for window in problem.windows)
    return bool(last) and bool(alone) and not slides and problem.extents[last[0]] is None


def wave_points(
    grow: Callable[[Point], Point], anchors: Sequence[Point], first: Point | None = None
) -> list[dict[str, int]]:
    """Return the extents to time one micro-kernel on.

    Each anchor twice: grown to a full wave, and once as it is, where that differs.

    Parameters
    ----------
    grow : callable
        Returns the full wave of an anchor.
    first : mapping of str to int, optional
        A point to begin with.
    """
    points = [] if first is None else [dict(first)]
    for anchor in anchors:
        for point in (dict(grow(anchor)), dict(anchor)):
            if point not in points:
                points.append(point)
    return points
