"""The space of micro-kernels for CUDA: tiles in [T0/2, 2·T0] around each seed, steps along the other axes.

The seeds here come from the hardware alone; `dietcode.search_space.cuda.seeds` adds MetaSchedule's. With
8x8 accumulators a thread does 64 multiply-adds for 16 floats that it reads from shared memory, and 256
threads make a tile of 128x128; smaller seeds give small instances more blocks than a GPU has multiprocessors.

Operands of half precision are multiplied by the tensor cores, where these know their dtype: a warp of 64x64
accumulators needs 8 reads of 16 bytes a lane for 32 instructions, and copies begin two or three tiles of the
reduction ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import (
    MAX_CLUSTER,
    MAX_SPLITS,
    WARPGROUP_UNITS,
    CudaMicroKernel,
)
from dietcode.search_space.problem import Problem

_THREAD_TILES = ((8, 8), (8, 4), (4, 8), (4, 4), (4, 2), (2, 4), (2, 2), (16, 8), (8, 16))
_WARP_TILES = ((64, 64), (64, 32), (32, 64), (32, 32), (32, 16), (16, 32), (16, 16), (32, 128), (16, 64))
_WARPGROUP_TILES = (
    (64, 256),
    (64, 192),
    (64, 160),
    (64, 128),
    (64, 96),
    (64, 64),
    (64, 32),
    (64, 16),
    (128, 128),
    (128, 64),
)
_SHAPES = {"simt": _THREAD_TILES, "mma": _WARP_TILES, "wgmma": _WARPGROUP_TILES, "tma": _WARPGROUP_TILES}
_TENSOR_K_TILES = (16, 32, 64, 128)
_K_TILES = {"simt": (8, 16, 32), "mma": _TENSOR_K_TILES, "wgmma": _TENSOR_K_TILES, "tma": _TENSOR_K_TILES}
# What copies in bulk allow of blocks: alone, in clusters along the rows or the columns, a persistent grid.
_BLOCKS: tuple[dict[str, Any], ...] = (
    {"cluster_rows": 1, "cluster_columns": 1},
    {"cluster_rows": MAX_CLUSTER, "cluster_columns": 1},
    {"cluster_rows": 1, "cluster_columns": MAX_CLUSTER},
    {"persistent": False},
    {"persistent": True},
)
EXTENTS = (8, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512)


@dataclass(frozen=True)
class CudaSeed:
    """A micro-kernel T0 that the space grows around, and its source: ``hardware`` or ``metaschedule``."""

    micro_kernel: CudaMicroKernel
    source: str


def hardware_seeds(problem: Problem, limits: CudaLimits) -> list[CudaSeed]:
    """Return those of a large, a middle and a small tile, for many, some and few rows, that it holds.

    Large ones also with more steps of the reduction at a time on tensor cores, which halves the barriers, and
    with fewer on SIMT units, which leaves shared memory for more blocks. Where warpgroups multiply seeds for
    them come first, and those of warps stay, since a warpgroup's tile has 64 rows at least. Two of those that
    copy in bulk are in clusters, one of them in a persistent grid: the space around others has their tiles.
    """
    tensor_tiles = (
        CudaMicroKernel(128, 256, 64, 256, 64, stages=4, unit="wgmma"),
        CudaMicroKernel(128, 128, 64, 128, 64, stages=3, unit="wgmma"),
        CudaMicroKernel(64, 256, 64, 256, 64, stages=4, unit="wgmma"),
        CudaMicroKernel(64, 64, 64, 64, 64, stages=4, unit="wgmma"),
        CudaMicroKernel(128, 256, 64, 256, 64, stages=4, unit="tma"),
        CudaMicroKernel(128, 128, 64, 128, 64, stages=4, unit="tma"),
        CudaMicroKernel(128, 256, 64, 256, 64, stages=4, unit="tma", cluster_rows=2, persistent=True),
        CudaMicroKernel(128, 128, 64, 128, 64, stages=4, unit="tma", cluster_rows=2),
        CudaMicroKernel(128, 256, 64, 64, 32, stages=4, unit="mma"),
        CudaMicroKernel(128, 128, 64, 64, 32, stages=4, unit="mma"),
        CudaMicroKernel(64, 64, 32, 32, 64, stages=4, unit="mma"),
        CudaMicroKernel(16, 64, 16, 16, 64, stages=4, unit="mma"),
        CudaMicroKernel(128, 256, 64, 64, 64, stages=4, unit="mma"),
        CudaMicroKernel(128, 128, 64, 64, 64, stages=3, unit="mma"),
    )
    seeds = [
        CudaSeed(micro_kernel, "hardware")
        for micro_kernel in tensor_tiles
        if limits.holds(problem, micro_kernel)
    ]
    if seeds:
        return seeds
    micro_kernels = (
        CudaMicroKernel(128, 128, 8, 8, 16, 2, 2, stages=2),
        CudaMicroKernel(64, 64, 8, 4, 16, 2, 1, stages=2),
        CudaMicroKernel(16, 64, 4, 4, 16, stages=2),
        CudaMicroKernel(128, 128, 8, 8, 8, 2, 2, stages=2),
    )
    return [
        CudaSeed(micro_kernel, "hardware")
        for micro_kernel in micro_kernels
        if limits.holds(problem, micro_kernel)
    ]


def build_space(
    problem: Problem,
    seeds: list[CudaSeed],
    limits: CudaLimits,
    max_rows: int | None = None,
    max_columns: int | None = None,
) -> list[Candidate]:
    """Return viable tiles around all seeds, each once, credited to the first seed that reaches it.

    Parameters
    ----------
    max_rows, max_columns : int, optional
        Largest extents of the workload: a tile at least twice as large only pads, and is left out.

    Returns
    -------
    list of Candidate
        Seeds first, then those nearest to the seeds; where seeds are of several units, of these in turn.
        Around seeds in clusters or of a persistent grid is nothing: these are `neighbours` of what wins.
    """
    found: dict[CudaMicroKernel, str] = {}
    of_unit: dict[str, dict[CudaMicroKernel, str]] = {}
    for seed in seeds:
        if limits.holds(problem, seed.micro_kernel):
            found.setdefault(seed.micro_kernel, seed.source)
    for seed in (one for one in seeds if one.micro_kernel.is_alone):
        t0 = seed.micro_kernel
        around = (other for other in _around(t0) if not _only_pads(other, max_rows, max_columns))
        held = [other for other in around if limits.holds(problem, other)]
        for _, _, other in sorted((distance(other, t0), other.order, other) for other in held):
            of_unit.setdefault(t0.unit, {}).setdefault(other, seed.source)
    for some in zip_longest(*(own.items() for own in of_unit.values())):
        for micro_kernel, source in (pair for pair in some if pair is not None):
            found.setdefault(micro_kernel, source)
    return [Candidate(micro_kernel, source) for micro_kernel, source in found.items()]


def neighbours(
    problem: Problem, micro_kernel: CudaMicroKernel, limits: CudaLimits, longest: int
) -> list[CudaMicroKernel]:
    """Return micro-kernels that differ in one axis: k_tile, threads' tiles, parts, stages, splits, tails.

    Where warpgroups multiply also in who copies; where that is in bulk in clusters, or in a persistent grid.

    Parameters
    ----------
    longest : int
        Longest reduction there is; no part of it gets less than two tiles.
    """
    own, k_tile = micro_kernel.splits, micro_kernel.k_tile
    change = partial(_changed, micro_kernel)
    splits = (
        s for s in (own // 2, own * 2) if 1 <= s <= MAX_SPLITS and (s == 1 or longest >= 2 * s * k_tile)
    )
    found = [
        *(change(splits=number) for number in splits),
        *(change(k_tile=k) for k in _K_TILES[micro_kernel.unit] if k in {k_tile // 2, k_tile * 2}),
        *(with_threads(micro_kernel, *micro_kernel.tile[:2], *shape) for shape in _shapes(micro_kernel)),
        *(change(row_vthreads=v, column_vthreads=w) for v in (1, 2) for w in (1, 2)),
        *(change(stages=stages) for stages in (micro_kernel.stages - 1, micro_kernel.stages + 1)),
        *(change(tails=tails) for tails in micro_kernel.allowed_tails),
        *(micro_kernel.of_unit(unit) for unit in WARPGROUP_UNITS if micro_kernel.has_warpgroups),
        *(change(**axes) for axes in _BLOCKS if micro_kernel.unit == "tma"),
    ]
    unique = dict.fromkeys(other for other in found if other is not None and other != micro_kernel)
    return [other for other in unique if limits.holds(problem, other)]


def _around(micro_kernel: CudaMicroKernel) -> Iterator[CudaMicroKernel]:
    """Yield tiles whose extents are in [T0/2, 2·T0], with the seed's tile of a thread or one that fits."""
    for rows in _extents_around(micro_kernel.rows):
        for columns in _extents_around(micro_kernel.columns):
            for shape in ((micro_kernel.thread_rows, micro_kernel.thread_columns), *_shapes(micro_kernel)):
                changed = with_threads(micro_kernel, rows, columns, *shape)
                if changed is not None:
                    yield changed


def _extents_around(extent: int) -> list[int]:
    return [e for e in EXTENTS if extent <= 2 * e <= 4 * extent]


def _shapes(micro_kernel: CudaMicroKernel) -> tuple[tuple[int, int], ...]:
    """Return the tiles that a thread, a warp or a warpgroup may accumulate."""
    return _SHAPES[micro_kernel.unit]


def with_threads(
    micro_kernel: CudaMicroKernel, rows: int, columns: int, thread_rows: int, thread_columns: int
) -> CudaMicroKernel | None:
    """Return a micro-kernel with other extents, a thread's tile in two parts where each is still four wide.

    Parameters
    ----------
    rows, columns : int
        Of the block's tile.
    thread_rows, thread_columns : int
        Of a thread's, a warp's or a warpgroup's.

    Returns
    -------
    CudaMicroKernel or None
        None where the extents do not fit together.
    """
    extents = {"rows": rows, "columns": columns, "thread_rows": thread_rows, "thread_columns": thread_columns}
    if micro_kernel.is_tensor:
        return _changed(micro_kernel, **extents)
    parts = {"row_vthreads": 2 if thread_rows >= 8 else 1, "column_vthreads": 2 if thread_columns >= 8 else 1}
    return _changed(micro_kernel, **extents, **parts)


def _changed(micro_kernel: CudaMicroKernel, **axes: int | str) -> CudaMicroKernel | None:
    try:
        return replace(micro_kernel, **axes)  # type: ignore[arg-type]
    except ValueError:
        return None


def _only_pads(micro_kernel: CudaMicroKernel, max_rows: int | None, max_columns: int | None) -> bool:
    pairs = (micro_kernel.rows, max_rows), (micro_kernel.columns, max_columns)
    return any(
        most is not None and extent >= 2 * max(1, most) and extent > EXTENTS[0] for extent, most in pairs
    )


def distance(micro_kernel: CudaMicroKernel, seed: CudaMicroKernel) -> float:
    """Return the largest ratio between the extents, and the threads, of two micro-kernels."""
    extents = zip(micro_kernel.tile[:2], seed.tile[:2], strict=True)
    pairs = (*extents, (micro_kernel.threads, seed.threads))
    return max(max(a / b, b / a) for a, b in pairs)
