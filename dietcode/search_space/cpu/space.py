"""The space of micro-kernels: every viable tile in [T0/2, 2·T0] around each seed (paper, section 4.3)."""

from __future__ import annotations

from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.seed import Seed


def hardware_seeds(limits: Limits) -> list[Seed]:
    """Return seeds from the register file alone: the narrow tile and the one with the fewest loads."""
    return [
        Seed(tile.rows, tile.columns, "hardware") for tile in (limits.narrow_tile(), limits.square_tile())
    ]


def tile_range(extent: int) -> range:
    """Return every integer in [extent/2, 2·extent]."""
    return range(max(1, -(-extent // 2)), 2 * extent + 1)


def build_space(
    seeds: list[Seed],
    limits: Limits,
    max_rows: int | None = None,
    max_columns: int | None = None,
    mutate: bool = True,
) -> list[Candidate]:
    """Return viable tiles around all seeds, each once, credited to the first seed that reaches it.

    Parameters
    ----------
    max_rows, max_columns : int, optional
        Largest extents of the workload: a tile with more than twice as many rows, or more vectors than
        the columns fill, only pads, and is left out.
    mutate : bool
        Take [T0/2, 2·T0] rather than T0 alone, columns rounded down to whole vectors.

    Returns
    -------
    list of Candidate
        Seeds first, then larger register tiles before smaller ones.
    """
    found: dict[MicroKernel, str] = {}
    for seed in seeds:
        for tile in _tiles_around(seed, limits) if mutate else _tile_of(seed, limits):
            too_tall = max_rows is not None and tile.rows >= 2 * max(1, max_rows)
            too_wide = max_columns is not None and tile.columns >= max_columns + limits.lanes
            if not mutate or not (too_tall or too_wide):
                found.setdefault(tile, seed.source)
    at_seed = {(seed.rows, seed.columns) for seed in seeds}
    order = sorted(found, key=lambda t: ((t.rows, t.columns) not in at_seed, -t.rows * t.columns, -t.rows))
    return [Candidate(tile, found[tile]) for tile in order]


def _tile_of(seed: Seed, limits: Limits) -> list[MicroKernel]:
    """Return T0, its columns whole vectors and its rows as many as the register file holds."""
    columns = max(limits.lanes, seed.columns // limits.lanes * limits.lanes)
    tiles = [MicroKernel(rows, columns) for rows in range(seed.rows, 0, -1)]
    return [tile for tile in tiles if limits.holds(tile)][:1]


def _tiles_around(seed: Seed, limits: Limits) -> list[MicroKernel]:
    columns = [c for c in tile_range(seed.columns) if c % limits.lanes == 0] or [limits.lanes]
    tiles = [MicroKernel(r, c) for r in tile_range(seed.rows) for c in columns]
    return [tile for tile in tiles if limits.holds(tile)]
