"""The space of micro-kernels of blocks for GPUs: few enough to be listed, those nearest to the seeds first.

Products: as for contractions, but that a thread has a tile of each sum of a block, so that the tiles are
smaller. Rows: as many threads as keep a row's columns next to each other, and as many rows as fill a block.
Attention: tiles of queries and keys; where there are few queries, also parts of the keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.cuda.blocks.attention_layout import tensor_steps
from dietcode.search_space.cuda.blocks.demands import ROW_STEP
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.space import CudaSeed, distance
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.problem import RowProblem
from dietcode.target.multiprocessor import WARP

_THREADS = (64, 512)  # of a block
_TENSOR_THREADS = (32, 512)
_MAX_ACCUMULATORS = 96  # of a thread
_NUM_SEEDS = 3  # of each unit
_FLOAT = "float32"
_PRODUCT_SEEDS = (
    CudaMicroKernel(128, 128, 8, 8, 8),
    CudaMicroKernel(64, 64, 4, 4, 16),
    CudaMicroKernel(32, 64, 4, 4, 16),
    CudaMicroKernel(16, 64, 2, 4, 16),
    CudaMicroKernel(16, 32, 2, 2, 16),
    CudaMicroKernel(8, 32, 2, 1, 16),
    CudaMicroKernel(8, 32, 1, 1, 8),
)
_ROW_SEEDS = (
    CudaMicroKernel(4, 128, 1, 4, ROW_STEP),
    CudaMicroKernel(1, 512, 1, 4, ROW_STEP),
    CudaMicroKernel(8, 32, 1, 2, ROW_STEP),
)
_TENSOR_SEEDS = (
    CudaMicroKernel(128, 64, 32, 32, 32, stages=3, unit="mma"),
    CudaMicroKernel(64, 64, 32, 32, 32, stages=3, unit="mma"),
    CudaMicroKernel(32, 64, 16, 32, 32, stages=3, unit="mma"),
    CudaMicroKernel(16, 64, 16, 16, 64, stages=3, unit="mma"),
    CudaMicroKernel(16, 32, 16, 8, 32, stages=2, unit="mma"),
    CudaMicroKernel(16, 16, 16, 8, 16, stages=2, unit="mma"),
)
_TENSOR_ATTENTION_SEEDS = (
    CudaMicroKernel(64, 64, 16, 64, 16, stages=2, unit="mma"),
    CudaMicroKernel(128, 32, 16, 32, 16, stages=2, unit="mma"),
    CudaMicroKernel(32, 64, 16, 64, 16, splits=4, stages=2, unit="mma"),
    CudaMicroKernel(32, 32, 16, 32, 16, unit="mma"),
    CudaMicroKernel(32, 16, 16, 16, 16, unit="mma"),
)
_ATTENTION_SEEDS = (
    CudaMicroKernel(64, 64, 4, 4, 32),
    CudaMicroKernel(32, 64, 4, 4, 32),
    CudaMicroKernel(4, 64, 1, 2, 32, splits=4),
    CudaMicroKernel(8, 32, 1, 1, 16),
    CudaMicroKernel(4, 32, 1, 1, 8),
)
_FEW_QUERIES = 16  # of a tile, so that there may be fewer blocks than multiprocessors
_SPLITS = (1, 2, 4, 8, 16)
_K_TILES = (8, 16, 32, 64, 128)


def block_seeds(problem: BlockProblem, limits: CudaLimits) -> list[CudaSeed]:
    """Return the micro-kernels that the space begins with."""
    known = _seeds_of(problem, limits)
    held = [one for one in known if _is_useful(problem, one) and limits.holds(problem, one)]
    units = [[one for one in held if one.is_tensor == is_tensor] for is_tensor in (True, False)]
    return [CudaSeed(one, "hardware") for own in units for one in own[:_NUM_SEEDS]]


def block_micro_kernels(problem: BlockProblem, limits: CudaLimits) -> list[CudaMicroKernel]:
    """Return all micro-kernels of a block on the target, those nearest to a seed of their unit first."""
    seeds = [seed.micro_kernel for seed in block_seeds(problem, limits)]
    held = [one for one in _all(problem) if _is_useful(problem, one) and limits.holds(problem, one)]

    def far(one: CudaMicroKernel) -> float:
        """Return the distance to the nearest seed of the same unit."""
        return min((distance(one, seed) for seed in seeds if seed.unit == one.unit), default=math.inf)

    return sorted(held, key=lambda one: (far(one), not one.is_tensor, one.order))


def block_neighbours(
    problem: BlockProblem, micro_kernel: CudaMicroKernel, limits: CudaLimits
) -> list[CudaMicroKernel]:
    """Return those that differ in one axis, by one step of it."""

    def is_next(other: CudaMicroKernel) -> bool:
        if other.unit != micro_kernel.unit:
            return False
        axes = ("rows", "columns", "thread_rows", "thread_columns", "k_tile", "splits", "stages")
        pairs = [(getattr(other, axis), getattr(micro_kernel, axis)) for axis in axes]
        changed = [max(a, b) / min(a, b) for a, b in pairs if a != b]
        # On tensor cores warps have all keys of a tile of attention, whose sides change together.
        is_one = len(changed) == 1 or (len(changed) == 2 and isinstance(problem, AttentionProblem))
        return is_one and max(changed) <= 2

    return [one for one in block_micro_kernels(problem, limits) if is_next(one)]


def _all(problem: BlockProblem) -> Iterator[CudaMicroKernel]:
    if isinstance(problem, RowProblem):
        for rows, threads, turns in product((1, 2, 4, 8, 16), (4, 8, 16, 32, 64, 128, 256, 512), (1, 2, 4)):
            yield CudaMicroKernel(rows, threads * turns, 1, turns, ROW_STEP)
        return
    if isinstance(problem, AttentionProblem):
        yield from _all_of_attention(problem)
        return
    tiles = product((8, 16, 32, 64, 128), (16, 32, 64, 128), (1, 2, 4, 8), (1, 2, 4, 8), (8, 16, 32))
    for rows, columns, height, width, k_tile in tiles:
        yield CudaMicroKernel(rows, columns, height, width, k_tile)
    if problem.operand_dtype == _FLOAT:
        return
    sides = product(
        (16, 32, 64, 128), (16, 32, 64, 128), (16, 32, 64), (8, 16, 32, 64), (16, 32, 64), (1, 2, 3, 4)
    )
    for rows, columns, height, width, k_tile, stages in sides:
        if rows % height == columns % width == 0:
            yield CudaMicroKernel(rows, columns, height, width, k_tile, stages=stages, unit="mma")


def _seeds_of(problem: BlockProblem, limits: CudaLimits) -> tuple[CudaMicroKernel, ...]:
    """Return the seeds of a form; where tensor cores know the dtype of its products, theirs before others."""
    known = _SEEDS[problem.form]
    if not isinstance(problem, RowProblem) and problem.operand_dtype in limits.tensor_dtypes:
        mma = _TENSOR_SEEDS if isinstance(problem, ProductProblem) else _TENSOR_ATTENTION_SEEDS
        known = (*mma, *known)
    if not isinstance(problem, AttentionProblem):
        return known
    k_tiles = {"simt": _whole(problem), "mma": tensor_steps(problem)}
    fitted = (k_tiles["mma"] if one.is_tensor else min(one.k_tile, k_tiles["simt"]) for one in known)
    return tuple(replace(one, k_tile=k_tile) for one, k_tile in zip(known, fitted, strict=True))


def _whole(problem: AttentionProblem) -> int:
    """Return the least `k_tile` with a whole query, if there is one."""
    return next((k_tile for k_tile in _K_TILES if k_tile >= problem.head[0]), _K_TILES[-1])


def _all_of_attention(problem: AttentionProblem) -> Iterator[CudaMicroKernel]:
    """Yield tiles of queries and keys, and 8 to 128 elements of the head at a time."""
    k_tiles = [k_tile for k_tile in _K_TILES if k_tile <= _whole(problem)]
    tiles = product((4, 8, 16, 32, 64, 128), (32, 64, 128), (1, 2, 4, 8), (1, 2, 4, 8), k_tiles, _SPLITS)
    for rows, columns, height, width, k_tile, splits in tiles:
        if rows % height == 0 and (splits == 1 or rows <= _FEW_QUERIES):
            yield CudaMicroKernel(rows, columns, height, width, k_tile, splits=splits)
    if problem.operand_dtype == _FLOAT:
        return
    k_tile = tensor_steps(problem)
    for rows, columns, height, stages, splits in product(
        (16, 32, 64, 128), (16, 32, 64, 128), (16, 32), (1, 2), _SPLITS
    ):
        if rows % height == 0 and (splits == 1 or rows <= 2 * _FEW_QUERIES):
            sides = (rows, columns, height, columns, k_tile)
            yield CudaMicroKernel(*sides, stages=stages, splits=splits, unit="mma")


def _is_useful(problem: BlockProblem, micro_kernel: CudaMicroKernel) -> bool:
    """Return whether threads are neither too few nor too many, and their tiles neither flat nor too large."""
    least, most = _THREADS if not micro_kernel.is_tensor else _TENSOR_THREADS
    if not least <= micro_kernel.threads <= most:
        return False
    if isinstance(problem, RowProblem):
        return True
    if micro_kernel.is_tensor and isinstance(problem, AttentionProblem):
        return True
    ratio = micro_kernel.thread_rows / micro_kernel.thread_columns
    accumulators = micro_kernel.num_accumulators // (WARP if micro_kernel.is_tensor else 1)
    if isinstance(problem, ProductProblem):
        accumulators *= len(problem.plan.accumulators)
    return 0.25 <= ratio <= 4 and accumulators <= _MAX_ACCUMULATORS


_SEEDS: dict[str, tuple[CudaMicroKernel, ...]] = {
    ProductProblem.form: _PRODUCT_SEEDS,
    RowProblem.form: _ROW_SEEDS,
    AttentionProblem.form: _ATTENTION_SEEDS,
}
