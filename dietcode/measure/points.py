"""Which waves a micro-kernel is timed on."""

from __future__ import annotations

import numpy as np

from dietcode.search_space.cpu.limits import MicroKernel
from dietcode.search_space.problem import IntArray, Problem

NUM_ANCHORS = 5


def choose_anchors(
    problem: Problem, extents: dict[str, IntArray], num_anchors: int = NUM_ANCHORS
) -> list[dict[str, int]]:
    """Instances spread evenly over the logarithm of the work, smallest and largest included.

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
    return [{letter: int(values[i]) for letter, values in extents.items()} for i in picked]


def wave_points(
    problem: Problem, micro_kernel: MicroKernel, anchors: list[dict[str, int]]
) -> list[dict[str, int]]:
    """Extents to time one micro-kernel on.

    Each anchor twice: once with dynamic row and column extents rounded up to full tiles (a full wave of the
    micro-kernel, nothing padded), and once as it is, where that differs.
    """
    points: list[dict[str, int]] = []
    for anchor in anchors:
        full = dict(anchor)
        for letters, tile in ((problem.rows, micro_kernel.rows), (problem.columns, micro_kernel.columns)):
            last = letters[-1:]
            alone = problem.product(letters[:-1], anchor) == 1
            slides = any(window.output in last for window in problem.windows)
            if last and alone and not slides and problem.extents[last[0]] is None:
                full[last[0]] = -(-anchor[last[0]] // tile) * tile
        for point in (full, anchor):
            if point not in points:
                points.append(point)
    return points
