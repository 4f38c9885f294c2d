"""Tiles made for one shape that the tiles of the space serve badly (paper, Figure 9)."""

from __future__ import annotations

from dietcode.search_space.cpu.axes import allows
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.problem import Problem


def fitting_tiles(problem: Problem, rows: int, columns: int, limits: Limits) -> list[MicroKernel]:
    """Return viable tiles that cut a shape into equal rows of tiles with least padding.

    For each width every height ⌈rows / j⌉ that the register file holds: shrunk tiles are more tiles, for
    shapes that leave cores idle; stretched ones are fewer, for shapes whose last tile is mostly padding.
    They may lie outside [T0/2, 2·T0] of every seed. Where half or a quarter of a register holds all
    columns, and the problem allows it, there are tiles of such narrow vectors too.

    Parameters
    ----------
    rows, columns : int
        Flattened extents of the shape.

    Returns
    -------
    list of MicroKernel
        Wider before narrower, taller before shorter; no column tile wider than the columns need.
    """
    narrow = [width for width in (limits.lanes // 2, limits.lanes // 4) if width >= max(columns, 4)]
    widest = min(limits.num_registers - 2, -(-columns // limits.lanes))
    tiles = []
    widths = [(vectors, vectors * limits.lanes) for vectors in range(widest, 0, -1)]
    for vectors, width in [*widths, *((1, width) for width in narrow)]:
        tallest = min((limits.num_registers - 1 - vectors) // vectors, rows)
        heights = {-(-rows // -(-rows // height)) for height in range(1, tallest + 1)}
        tiles += [MicroKernel(height, width) for height in sorted(heights, reverse=True)]
    return [tile for tile in tiles if allows(problem, tile, limits)]
