"""The device functions of a micro-kernel of a contraction, and the pointers that each takes."""

from __future__ import annotations

from dietcode.search_space.cuda.bulk_maps import form_of, maps_of
from dietcode.search_space.cuda.classes import UNALIGNED, AlignmentClass
from dietcode.search_space.cuda.function import Function
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.padding import OperandCopy, block_problem, copies_of, writes_parts
from dietcode.search_space.cuda.shape import SUM_THREADS, WORKSPACE
from dietcode.search_space.problem import Problem


def block_arguments(problem: Problem, micro_kernel: CudaMicroKernel) -> tuple[str, ...]:
    """Return the pointers that the block function takes before an int64 for each dynamic index."""
    inputs = block_problem(problem, micro_kernel).inputs
    return (*inputs[:2], WORKSPACE) if writes_parts(problem, micro_kernel) else (*inputs, problem.output)


def sum_arguments(problem: Problem) -> tuple[str, ...]:
    """Return the pointers that the function that adds the parts takes, before the extents."""
    return (*problem.inputs[2:], WORKSPACE, problem.output)


def copy_symbol(micro_kernel: CudaMicroKernel, copy: OperandCopy) -> str:
    """Return the name of the function that makes a padded copy."""
    return f"{micro_kernel.symbol}_{copy.name}"


def contraction_launches(
    problem: Problem, micro_kernel: CudaMicroKernel, own: AlignmentClass = UNALIGNED
) -> tuple[Function, ...]:
    """Return the functions of a micro-kernel in the order in which a call of a class launches them."""
    copies = [
        Function(copy_symbol(micro_kernel, copy), (copy.operand, copy.name), SUM_THREADS)
        for copy in copies_of(problem, micro_kernel)
    ]
    arguments = block_arguments(problem, micro_kernel)
    known = own.problem(problem)
    form = form_of(known, micro_kernel)
    block = Function(
        own.symbol(micro_kernel),
        arguments,
        form.threads,
        form.dynamic_bytes,
        maps_of(known, form),
        cluster=form.cluster,
        persistent=form.persistent,
    )
    adders = [Function(f"{micro_kernel.symbol}_sum", sum_arguments(problem), SUM_THREADS, overlaps=True)]
    return (*copies, block, *(adders if writes_parts(problem, micro_kernel) else []))
