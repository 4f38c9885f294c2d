"""The device functions of a micro-kernel of a contraction."""

from __future__ import annotations

from typing import Any

from dietcode.search_space.cuda.function import Function
from dietcode.search_space.cuda.lowering import (
    block_arguments,
    lower_block,
    lower_copy,
    lower_sum,
    sum_arguments,
)
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.padding import OperandCopy, copies_of, writes_parts
from dietcode.search_space.cuda.shape import SUM_THREADS
from dietcode.search_space.problem import Problem


def contraction_functions(problem: Problem, micro_kernel: CudaMicroKernel) -> tuple[Function, ...]:
    """Return the functions of a micro-kernel in the order in which a call launches them."""
    copies = [
        Function(_copy_symbol(micro_kernel, copy), (copy.operand, copy.name), SUM_THREADS)
        for copy in copies_of(problem, micro_kernel)
    ]
    arguments = block_arguments(problem, micro_kernel)
    block = Function(micro_kernel.symbol, arguments, micro_kernel.threads, micro_kernel.dynamic_bytes)
    adders = [Function(f"{micro_kernel.symbol}_sum", sum_arguments(problem), SUM_THREADS)]
    return (*copies, block, *(adders if writes_parts(problem, micro_kernel) else []))


def lower_contraction(problem: Problem, micro_kernel: CudaMicroKernel, symbol: str) -> Any:
    """Return one of `contraction_functions` as a ``tvm.tirx.PrimFunc`` with symbolic extents."""
    copies = {_copy_symbol(micro_kernel, copy): copy for copy in copies_of(problem, micro_kernel)}
    if symbol in copies:
        return lower_copy(problem, micro_kernel, copies[symbol], symbol)
    lower = lower_block if symbol == micro_kernel.symbol else lower_sum
    return lower(problem, micro_kernel, symbol)


def _copy_symbol(micro_kernel: CudaMicroKernel, copy: OperandCopy) -> str:
    return f"{micro_kernel.symbol}_{copy.name}"
