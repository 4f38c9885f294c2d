"""Tiles made for one shape that today's tiles serve badly (paper, Figure 9)."""

from __future__ import annotations

from collections.abc import Sequence

from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.space import EXTENTS, distance, with_threads
from dietcode.search_space.problem import Problem

_MAX_PADDING = 0.125  # of a shape's rows, or columns, or the least that any tile has


def fitting_tiles(
    problem: Problem, tiles: Sequence[CudaMicroKernel], rows: int, columns: int, limits: CudaLimits
) -> list[CudaMicroKernel]:
    """Tiles that cut a shape with little padding, with the threads' tiles of others; they may lie anywhere.

    Parameters
    ----------
    tiles : sequence of CudaMicroKernel
        Whose threads' tiles are taken, and the other axes.
    rows, columns : int
        Flattened extents of the shape.

    Returns
    -------
    list of CudaMicroKernel
        The nearest to those that are given first.
    """
    found: dict[CudaMicroKernel, float] = {}
    for tile in tiles:
        for height in _fitting(rows):
            for width in _fitting(columns):
                other = with_threads(tile, height, width, tile.thread_rows, tile.thread_columns)
                if other is not None and other not in found and limits.holds(problem, other):
                    found[other] = distance(other, tile)
    return sorted(found, key=lambda tile: (found[tile], tile.order))


def _fitting(extent: int) -> list[int]:
    """Extents of tiles that pad little."""
    padding = {e: -(-extent // e) * e / extent - 1.0 for e in EXTENTS if e < 2 * extent or e == EXTENTS[0]}
    most = max(_MAX_PADDING, min(padding.values()))
    return [e for e, share in padding.items() if share <= most]
