"""The space of micro-kernels of blocks for GPUs: few enough to be listed, those nearest to the seeds first.

Products: as for contractions, but that a thread has a tile of each sum of a block, so that the tiles are
smaller. Rows: as many threads as keep a row's columns next to each other, and as many rows as fill a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.cuda.blocks.demands import ROW_STEP
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.space import CudaSeed, distance
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.problem import RowProblem

_THREADS = (64, 512)  # of a block
_MAX_ACCUMULATORS = 96  # of a thread
_NUM_SEEDS = 3
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


def block_seeds(problem: BlockProblem, limits: CudaLimits) -> list[CudaSeed]:
    """Return the micro-kernels that the space begins with."""
    known = _PRODUCT_SEEDS if isinstance(problem, ProductProblem) else _ROW_SEEDS
    held = [one for one in known if _is_useful(problem, one) and limits.holds(problem, one)]
    return [CudaSeed(one, "hardware") for one in held[:_NUM_SEEDS]]


def block_micro_kernels(problem: BlockProblem, limits: CudaLimits) -> list[CudaMicroKernel]:
    """Return all micro-kernels of a block on the target, those nearest to a seed first."""
    seeds = [seed.micro_kernel for seed in block_seeds(problem, limits)]
    held = [one for one in _all(problem) if _is_useful(problem, one) and limits.holds(problem, one)]
    return sorted(held, key=lambda one: (min(distance(one, seed) for seed in seeds), one.order))


def block_neighbours(
    problem: BlockProblem, micro_kernel: CudaMicroKernel, limits: CudaLimits
) -> list[CudaMicroKernel]:
    """Return those that differ in one axis, by one step of it."""

    def is_next(other: CudaMicroKernel) -> bool:
        axes = ("rows", "columns", "thread_rows", "thread_columns", "k_tile")
        pairs = [(getattr(other, axis), getattr(micro_kernel, axis)) for axis in axes]
        changed = [max(a, b) / min(a, b) for a, b in pairs if a != b]
        return len(changed) == 1 and changed[0] == 2

    return [one for one in block_micro_kernels(problem, limits) if is_next(one)]


def _all(problem: BlockProblem) -> Iterator[CudaMicroKernel]:
    if isinstance(problem, RowProblem):
        for rows, threads, turns in product((1, 2, 4, 8, 16), (4, 8, 16, 32, 64, 128, 256, 512), (1, 2, 4)):
            yield CudaMicroKernel(rows, threads * turns, 1, turns, ROW_STEP)
        return
    tiles = product((8, 16, 32, 64, 128), (16, 32, 64, 128), (1, 2, 4, 8), (1, 2, 4, 8), (8, 16, 32))
    for rows, columns, height, width, k_tile in tiles:
        yield CudaMicroKernel(rows, columns, height, width, k_tile)


def _is_useful(problem: BlockProblem, micro_kernel: CudaMicroKernel) -> bool:
    """Return whether threads are neither too few nor too many, and their tiles neither flat nor too large."""
    least, most = _THREADS
    if not least <= micro_kernel.threads <= most:
        return False
    if not isinstance(problem, ProductProblem):
        return True
    ratio = micro_kernel.thread_rows / micro_kernel.thread_columns
    accumulators = micro_kernel.num_accumulators * len(problem.plan.accumulators)
    return 0.25 <= ratio <= 4 and accumulators <= _MAX_ACCUMULATORS
