"""The space of micro-kernels for CUDA: tiles in [T0/2, 2·T0] around each seed, steps along the other axes.

The seeds here come from the hardware alone; `dietcode.search_space.cuda.seeds` adds MetaSchedule's. With
8x8 sums a thread does 64 multiply-adds for 16 floats that it reads from shared memory, and 256 of them make a
tile of 128x128; the smaller seeds give small instances more blocks than a GPU has multiprocessors.

Operands of half precision are multiplied by the tensor cores, where these know their dtype: a warp of 64x64
sums needs 8 reads of 16 bytes a lane for 32 instructions, and copies are begun two or three pieces ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import MAX_SPLITS, CudaMicroKernel
from dietcode.search_space.problem import Problem

_THREAD_TILES = ((8, 8), (8, 4), (4, 8), (4, 4), (4, 2), (2, 4), (2, 2), (16, 8), (8, 16))
_WARP_TILES = ((64, 64), (64, 32), (32, 64), (32, 32), (32, 16), (16, 32), (16, 16), (32, 128), (16, 64))
_STEPS = {"simt": (8, 16, 32), "mma": (16, 32, 64, 128)}
EXTENTS = (8, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512)


@dataclass(frozen=True)
class CudaSeed:
    """A tile T0 that the space grows around, and where it comes from: ``hardware`` or ``metaschedule``."""

    tile: CudaMicroKernel
    source: str


def hardware_seeds(problem: Problem, limits: CudaLimits) -> list[CudaSeed]:
    """Large, middle and small tiles, for many, some and few rows; those that the architecture holds."""
    tensor_tiles = (
        CudaMicroKernel(128, 256, 64, 64, 32, stages=4, unit="mma"),
        CudaMicroKernel(128, 128, 64, 64, 32, stages=4, unit="mma"),
        CudaMicroKernel(64, 64, 32, 32, 64, stages=4, unit="mma"),
        CudaMicroKernel(16, 64, 16, 16, 64, stages=4, unit="mma"),
    )
    seeds = [CudaSeed(tile, "hardware") for tile in tensor_tiles if limits.holds(problem, tile)]
    if seeds:
        return seeds
    tiles = (
        CudaMicroKernel(128, 128, 8, 8, 16, 2, 2, stages=2),
        CudaMicroKernel(64, 64, 8, 4, 16, 2, 1, stages=2),
        CudaMicroKernel(16, 64, 4, 4, 16, stages=2),
    )
    return [CudaSeed(tile, "hardware") for tile in tiles if limits.holds(problem, tile)]


def build_space(
    problem: Problem,
    seeds: list[CudaSeed],
    limits: CudaLimits,
    max_rows: int | None = None,
    max_columns: int | None = None,
) -> list[Candidate]:
    """Viable tiles around all seeds, each once, credited to the first seed that reaches it.

    Parameters
    ----------
    max_rows, max_columns : int, optional
        Largest extents of the workload: a tile at least twice as large only pads, and is left out.

    Returns
    -------
    list of Candidate
        Seeds first, then those nearest to the seeds.
    """
    found: dict[CudaMicroKernel, str] = {}
    for seed in seeds:
        if limits.holds(problem, seed.tile):
            found.setdefault(seed.tile, seed.source)
    for seed in seeds:
        around = [
            tile
            for tile in _around(seed.tile)
            if not _only_pads(tile, max_rows, max_columns) and limits.holds(problem, tile)
        ]
        for _, _, tile in sorted((distance(tile, seed.tile), tile.order, tile) for tile in around):
            found.setdefault(tile, seed.source)
    return [Candidate(tile, source) for tile, source in found.items()]


def neighbours(
    problem: Problem, tile: CudaMicroKernel, limits: CudaLimits, longest: int
) -> list[CudaMicroKernel]:
    """Micro-kernels that differ in one axis: steps, threads' tiles and their parts, stages, splits, tails.

    Parameters
    ----------
    longest : int
        Longest reduction there is; no part of it gets less than two pieces.
    """
    found = [
        *(
            _changed(tile, splits=splits)
            for splits in (tile.splits // 2, tile.splits * 2)
            if 1 <= splits <= MAX_SPLITS and (splits == 1 or longest >= 2 * splits * tile.steps)
        ),
        *(
            _changed(tile, steps=steps)
            for steps in _STEPS[tile.unit]
            if steps in {tile.steps // 2, tile.steps * 2}
        ),
        *(with_threads(tile, tile.rows, tile.columns, *shape) for shape in _shapes(tile)),
        *(_changed(tile, row_vthreads=v, column_vthreads=w) for v in (1, 2) for w in (1, 2)),
        *(_changed(tile, stages=stages) for stages in (tile.stages - 1, tile.stages + 1)),
        *(_changed(tile, tails=tails) for tails in tile.allowed_tails),
    ]
    unique = dict.fromkeys(other for other in found if other is not None and other != tile)
    return [other for other in unique if limits.holds(problem, other)]


def _around(tile: CudaMicroKernel) -> Iterator[CudaMicroKernel]:
    """Tiles whose extents are in [T0/2, 2·T0], with the seed's tile of a thread or one that fits."""
    for rows in _extents_around(tile.rows):
        for columns in _extents_around(tile.columns):
            for shape in ((tile.thread_rows, tile.thread_columns), *_shapes(tile)):
                changed = with_threads(tile, rows, columns, *shape)
                if changed is not None:
                    yield changed


def _extents_around(extent: int) -> list[int]:
    return [e for e in EXTENTS if extent <= 2 * e <= 4 * extent]


def _shapes(tile: CudaMicroKernel) -> tuple[tuple[int, int], ...]:
    """What a thread, or a warp, may accumulate."""
    return _WARP_TILES if tile.unit == "mma" else _THREAD_TILES


def with_threads(
    tile: CudaMicroKernel, rows: int, columns: int, thread_rows: int, thread_columns: int
) -> CudaMicroKernel | None:
    """The tile with other extents, a thread's in two parts where these are still four wide."""
    extents = {"rows": rows, "columns": columns, "thread_rows": thread_rows, "thread_columns": thread_columns}
    if tile.unit == "mma":
        return _changed(tile, **extents)
    parts = {"row_vthreads": 2 if thread_rows >= 8 else 1, "column_vthreads": 2 if thread_columns >= 8 else 1}
    return _changed(tile, **extents, **parts)


def _changed(tile: CudaMicroKernel, **axes: int | str) -> CudaMicroKernel | None:
    try:
        return replace(tile, **axes)  # type: ignore[arg-type]
    except ValueError:
        return None


def _only_pads(tile: CudaMicroKernel, max_rows: int | None, max_columns: int | None) -> bool:
    too_tall = max_rows is not None and tile.rows >= 2 * max(1, max_rows) and tile.rows > EXTENTS[0]
    too_wide = max_columns is not None and tile.columns >= 2 * max(1, max_columns)
    return too_tall or (too_wide and tile.columns > EXTENTS[0])


def distance(tile: CudaMicroKernel, seed: CudaMicroKernel) -> float:
    """How far the extents, and the threads, are from the seed's: the largest ratio."""
    pairs = ((tile.rows, seed.rows), (tile.columns, seed.columns), (tile.threads, seed.threads))
    return max(max(a / b, b / a) for a, b in pairs)
