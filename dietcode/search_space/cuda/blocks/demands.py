"""What a micro-kernel of a block needs of a multiprocessor, before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cuda.banks import SPACER
from dietcode.search_space.cuda.blocks.attention_layout import (
    attention_bytes,
    attention_registers,
    no_attention,
)
from dietcode.search_space.cuda.blocks.product_layout import (
    Targets,
    distinct_gates,
    no_tensor_product,
    tensor_bytes,
    tensor_registers,
)
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.problem import RowProblem
from dietcode.target.multiprocessor import WARP

ROW_STEP = 8
"""`k_tile` of every micro-kernel of a row block, which has no product."""
_STATIC_SHARED_BYTES = 48 << 10
_OTHER_REGISTERS = 40  # addresses, bounds, counters, values of functions
_REST_ROWS = CudaMicroKernel(1, 512, 1, 4, ROW_STEP)
_NARROW_REST = CudaMicroKernel(4, 128, 1, 4, ROW_STEP)


@dataclass(frozen=True)
class BlockDemands:
    """Needs of the micro-kernels of one form of block, from the problem and the micro-kernel.

    Attributes
    ----------
    registers : callable
        Estimate of a thread's.
    shared_bytes : callable
        Shared memory of a block of threads.
    why_never : callable
        Why there is no code of the micro-kernel for the problem; None where there is.
    """

    registers: Callable[[Any, CudaMicroKernel], int]
    shared_bytes: Callable[[Any, CudaMicroKernel], int]
    why_never: Callable[[Any, CudaMicroKernel], str | None]


def threads_of_row(micro_kernel: CudaMicroKernel) -> int:
    """Return how many threads compute a row of a row block."""
    return micro_kernel.columns // micro_kernel.thread_columns


def row_order(micro_kernel: CudaMicroKernel) -> tuple[str, int, int]:
    """Return the key of the order of additions along a row: it is added up by as many threads as it has."""
    return RowProblem.form, threads_of_row(micro_kernel), 0


def rest_kernel(problem: ProductProblem) -> CudaMicroKernel:
    """Return the micro-kernel of the row block that follows a block's products."""
    fixed = [problem.extents[index] for index in problem.columns]
    most = problem.product(problem.columns, dict(problem.extents)) if None not in fixed else None
    return _NARROW_REST if most is not None and most <= _NARROW_REST.columns else _REST_ROWS


def tile_elements(terms: Targets, micro_kernel: CudaMicroKernel) -> int:
    """Return the floats of shared memory of one term's tiles: its rows, and the columns of each gate."""
    columns = len(distinct_gates(terms)) * (micro_kernel.columns + SPACER)
    return micro_kernel.k_tile * (micro_kernel.rows + SPACER + columns)


def _product_registers(problem: ProductProblem, micro_kernel: CudaMicroKernel) -> int:
    if micro_kernel.is_tensor:
        return tensor_registers(problem, micro_kernel)
    own = micro_kernel.num_accumulators * len(problem.plan.accumulators)
    fetched = -(-micro_kernel.rows * micro_kernel.k_tile // micro_kernel.threads)
    return own + micro_kernel.thread_rows + micro_kernel.thread_columns + 2 * fetched + _OTHER_REGISTERS


def _product_bytes(problem: ProductProblem, micro_kernel: CudaMicroKernel) -> int:
    if micro_kernel.is_tensor:
        return tensor_bytes(problem, micro_kernel)
    return 4 * max(tile_elements(own, micro_kernel) for _, own in problem.plan.terms)


def _no_product(problem: ProductProblem, micro_kernel: CudaMicroKernel) -> str | None:
    if micro_kernel.unit == "mma" and (micro_kernel.splits, micro_kernel.tails) == (1, "local"):
        return no_tensor_product(problem, micro_kernel)
    if micro_kernel.threads % micro_kernel.k_tile:
        return f"{micro_kernel.name}: {micro_kernel.threads} threads; allowed: a multiple of its steps"
    return _no_block(problem, micro_kernel, _product_bytes(problem, micro_kernel))


def _row_registers(problem: RowProblem, micro_kernel: CudaMicroKernel) -> int:
    return micro_kernel.thread_columns + 2 * len(problem.reads) + _OTHER_REGISTERS


def _row_bytes(problem: RowProblem, micro_kernel: CudaMicroKernel) -> int:
    warps = threads_of_row(micro_kernel) // WARP
    return 4 * micro_kernel.rows * warps if warps > 1 and problem.reduces else 0


def _no_rows(problem: RowProblem, micro_kernel: CudaMicroKernel) -> str | None:
    threads = threads_of_row(micro_kernel)
    if micro_kernel.thread_rows != 1 or micro_kernel.k_tile != ROW_STEP or threads & (threads - 1):
        return f"{micro_kernel.name}: allowed in a block of rows: a power of two threads of each row"
    return _no_block(problem, micro_kernel, _row_bytes(problem, micro_kernel))


def _no_block(problem: Any, micro_kernel: CudaMicroKernel, shared_bytes: int) -> str | None:
    axes = (micro_kernel.row_vthreads, micro_kernel.column_vthreads, micro_kernel.stages, micro_kernel.splits)
    if micro_kernel.unit != "simt" or micro_kernel.tails != "local" or axes != (1, 1, 1, 1):
        allowed = "SIMT units and one stage, or mma and products in half precision; one part, local padding"
        return f"{micro_kernel.name}: allowed in a block: {allowed}"
    if shared_bytes > _STATIC_SHARED_BYTES:
        given = f"{micro_kernel.name}: {shared_bytes} bytes of shared memory"
        return f"{given}; allowed in a block: {_STATIC_SHARED_BYTES}"
    return None


BLOCK_DEMANDS: dict[str, BlockDemands] = {
    ProductProblem.form: BlockDemands(_product_registers, _product_bytes, _no_product),
    RowProblem.form: BlockDemands(_row_registers, _row_bytes, _no_rows),
    AttentionProblem.form: BlockDemands(attention_registers, attention_bytes, no_attention),
}
