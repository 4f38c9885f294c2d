"""The device functions of a micro-kernel of a block, and the pointers that each takes."""

from __future__ import annotations

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cuda.blocks.attention_layout import (
    STATE_THREADS,
    TOTALS,
    WEIGHTED,
    attention_bytes,
)
from dietcode.search_space.cuda.blocks.demands import rest_kernel
from dietcode.search_space.cuda.blocks.product_layout import tensor_bytes
from dietcode.search_space.cuda.function import Function
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.problem import RowProblem


def aside(output: str) -> str:
    """Return the region of the workspace with an output that is read again, before it was rounded."""
    return f"({output})"


def product_functions(problem: ProductProblem, micro_kernel: CudaMicroKernel) -> tuple[Function, ...]:
    """Return the functions of a block with products in the order in which a call launches them."""
    halves, symbol = problem.halves, micro_kernel.symbol
    arguments = (*problem.inputs, *halves.outputs, *halves.set_aside, *map(aside, problem.kept))
    shared_bytes = tensor_bytes(problem, micro_kernel) if micro_kernel.is_tensor else 0
    found = [Function(symbol, arguments, micro_kernel.threads, shared_bytes)]
    if problem.rest is not None:
        read = (aside(name) if name in problem.kept else name for name in problem.rest.inputs)
        later = (*read, *problem.rest.outputs)
        found.append(Function(f"{symbol}_rest", later, rest_kernel(problem).threads))
    return tuple(found)


def row_functions(problem: RowProblem, micro_kernel: CudaMicroKernel) -> tuple[Function, ...]:
    """Return the function of a block of rows."""
    return (Function(micro_kernel.symbol, (*problem.inputs, *problem.outputs), micro_kernel.threads),)


def attention_functions(problem: AttentionProblem, micro_kernel: CudaMicroKernel) -> tuple[Function, ...]:
    """Return the function of attention; where keys are split, that which combines their parts, too."""
    symbol, shared_bytes = micro_kernel.symbol, attention_bytes(problem, micro_kernel)
    if micro_kernel.splits == 1:
        arguments = (*problem.inputs, *problem.outputs)
        return (Function(symbol, arguments, micro_kernel.threads, shared_bytes),)
    main = Function(symbol, (*problem.inputs, WEIGHTED, TOTALS), micro_kernel.threads, shared_bytes)
    return (main, Function(f"{symbol}_combine", (WEIGHTED, TOTALS, *problem.outputs), STATE_THREADS))
