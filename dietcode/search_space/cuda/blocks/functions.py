"""The device functions of a micro-kernel of a block, and the pointers that each takes."""

from __future__ import annotations

from dietcode.search_space.cuda.blocks.demands import rest_kernel
from dietcode.search_space.cuda.function import Function
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.problem import RowProblem


def product_functions(problem: ProductProblem, micro_kernel: CudaMicroKernel) -> tuple[Function, ...]:
    """Return the functions of a block with products in the order in which a call launches them."""
    halves, symbol = problem.halves, micro_kernel.symbol
    arguments = (*problem.inputs, *halves.outputs, *halves.set_aside)
    found = [Function(symbol, arguments, micro_kernel.threads)]
    if problem.rest is not None:
        later = (*problem.rest.inputs, *problem.rest.outputs)
        found.append(Function(f"{symbol}_rest", later, rest_kernel(problem).threads))
    return tuple(found)


def row_functions(problem: RowProblem, micro_kernel: CudaMicroKernel) -> tuple[Function, ...]:
    """Return the function of a block of rows."""
    return (Function(micro_kernel.symbol, (*problem.inputs, *problem.outputs), micro_kernel.threads),)
