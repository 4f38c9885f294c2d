"""Tiles made for one shape that the tiles of the space serve badly (paper, Figure 9)."""

from __future__ import annotations

from collections.abc import Sequence

from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.space import EXTENTS, distance, with_threads
from dietcode.search_space.problem import Problem

_MAX_PADDING = 0.125  # of a shape's rows, or columns, or the least that any tile has


def fitting_tiles(
    problem: Problem, micro_kernels: Sequence[CudaMicroKernel], rows: int, columns: int, limits: CudaLimits
) -> list[CudaMicroKernel]:
    """Return tiles that cut a shape with little padding, whatever their distance from the seeds.

    Parameters
    ----------
    tiles : sequence of CudaMicroKernel
        Give the threads' tiles and the other axes.
    rows, columns : int
        Flattened extents of the shape.

    Returns
    -------
    list of CudaMicroKernel
        Those nearest to the given ones first.
    """
    found: dict[CudaMicroKernel, float] = {}
    for micro_kernel in micro_kernels:
        for height in _fitting(rows):
            for width in _fitting(columns):
                other = with_threads(
                    micro_kernel, height, width, micro_kernel.thread_rows, micro_kernel.thread_columns
                )
                if other is not None and other not in found and limits.holds(problem, other):
                    found[other] = distance(other, micro_kernel)
    return sorted(found, key=lambda micro_kernel: (found[micro_kernel], micro_kernel.order))


def _fitting(extent: int) -> list[int]:
    """Return extents of tiles that pad little."""
    padding = {e: -(-extent // e) * e / extent - 1.0 for e in EXTENTS if e < 2 * extent or e == EXTENTS[0]}
    most = max(_MAX_PADDING, min(padding.values()))
    return [e for e, share in padding.items() if share <= most]
