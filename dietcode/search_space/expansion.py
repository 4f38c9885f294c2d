"""Tiles made for one shape that today's tiles serve badly (paper, Figure 9)."""

from __future__ import annotations

from dietcode.search_space.limits import Limits, MicroKernel


def fitting_tiles(rows: int, columns: int, limits: Limits) -> list[MicroKernel]:
    """Viable tiles that cut a shape into equal rows of tiles with least padding.

    For each width every height ⌈rows / j⌉ that the register file holds: shrunk tiles are more tiles, for
    shapes that leave cores idle; stretched ones are fewer, for shapes whose last tile is mostly padding.
    They may lie outside [T0/2, 2·T0] of every seed.

    Parameters
    ----------
    rows, columns : int
        Flattened extents of the shape.

    Returns
    -------
    list of MicroKernel
        Wider before narrower, taller before shorter; no column tile wider than the columns need.

    >>> [tile.name for tile in fitting_tiles(3, 16, Limits(16, 32, 1 << 20, 2))]
    ['3x16', '2x16', '1x16']
    """
    widest = min(limits.num_registers - 2, -(-columns // limits.lanes))
    tiles = []
    for vectors in range(widest, 0, -1):
        tallest = min((limits.num_registers - 1 - vectors) // vectors, rows)
        heights = {-(-rows // -(-rows // height)) for height in range(1, tallest + 1)}
        tiles += [MicroKernel(height, vectors * limits.lanes) for height in sorted(heights, reverse=True)]
    return [tile for tile in tiles if limits.holds(tile)]
