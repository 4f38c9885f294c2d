"""From the form of a problem to its device functions on a GPU; a new form is added here, and to `source`.

Counts alone: what lowers them to code, which needs TVM, is in `source`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.cuda.blocks.attention_layout import attention_alignments, attention_order
from dietcode.search_space.cuda.blocks.attention_shape import AttentionShape
from dietcode.search_space.cuda.blocks.demands import row_order
from dietcode.search_space.cuda.blocks.functions import attention_functions, product_functions, row_functions
from dietcode.search_space.cuda.blocks.product_layout import product_alignments
from dietcode.search_space.cuda.blocks.shape import BlockShape
from dietcode.search_space.cuda.classes import UNALIGNED, AlignmentClass, alignment_classes
from dietcode.search_space.cuda.contraction import contraction_launches
from dietcode.search_space.cuda.function import Function
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.packing import with_packed_constants
from dietcode.search_space.cuda.shape import CallShape, alignments
from dietcode.search_space.partition import NumpyOps, Ops
from dietcode.search_space.problem import AnyProblem, Problem
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.problem import RowProblem
from dietcode.target.multiprocessor import Multiprocessor


@dataclass(frozen=True)
class CudaForm:
    """One form of problem on GPUs; problems are as `device_problem` gives them.

    Attributes
    ----------
    launches : callable
        ``(problem, micro_kernel, alignment class) -> tuple of Function``, in the order of their launches.
    shape : callable
        ``(problem, micro_kernel, extents, ops) -> CallShape, BlockShape or AttentionShape``.
    alignments : callable
        ``(problem, micro_kernel) -> dict``: bytes that the address of each tensor must be a multiple of.
    classes : callable
        ``(problem, micro_kernel) -> tuple of AlignmentClass``, as `alignment_classes` has it.
    sum_order : callable
        ``micro_kernel -> key`` of the order of the additions: those that agree in it give the same bits.
    """

    launches: Callable[[Any, CudaMicroKernel, AlignmentClass], tuple[Function, ...]]
    shape: Callable[..., Any]
    alignments: Callable[[Any, CudaMicroKernel], dict[str, int]]
    classes: Callable[[Any, CudaMicroKernel], tuple[AlignmentClass, ...]] = lambda *_: (UNALIGNED,)
    sum_order: Callable[[CudaMicroKernel], tuple[str, int, int]] = attrgetter("sum_order")


def _elements(problem: BlockProblem, micro_kernel: CudaMicroKernel) -> dict[str, int]:
    """Return the bytes of an element of each tensor: blocks read and write these one by one."""
    return {name: problem.storage(name).itemsize for name in (*problem.inputs, *problem.outputs)}


CUDA_FORMS: dict[str, CudaForm] = {
    Problem.form: CudaForm(contraction_launches, CallShape, alignments, alignment_classes),
    ProductProblem.form: CudaForm(
        lambda *given: product_functions(*given[:2]), BlockShape, product_alignments
    ),
    RowProblem.form: CudaForm(
        lambda *given: row_functions(*given[:2]), BlockShape, _elements, sum_order=row_order
    ),
    AttentionProblem.form: CudaForm(
        lambda *given: attention_functions(*given[:2]),
        AttentionShape,
        attention_alignments,
        sum_order=attention_order,
    ),
}


def cuda_form(problem: AnyProblem) -> CudaForm:
    """Return the form of a problem."""
    return CUDA_FORMS[problem.form]


def classes_of(problem: AnyProblem, micro_kernel: CudaMicroKernel) -> tuple[AlignmentClass, ...]:
    """Return the alignment classes of a micro-kernel, the widest first; the last asks for nothing."""
    return cuda_form(problem).classes(problem, micro_kernel)


def launches_of(
    problem: AnyProblem, micro_kernel: CudaMicroKernel, own: AlignmentClass = UNALIGNED
) -> tuple[Function, ...]:
    """Return the functions of a micro-kernel in the order in which a call of a class launches them."""
    return cuda_form(problem).launches(problem, micro_kernel, own)


def functions_of(problem: AnyProblem, micro_kernel: CudaMicroKernel) -> tuple[Function, ...]:
    """Return all functions of a micro-kernel: what an unaligned call launches, then other classes' own."""
    classes = reversed(classes_of(problem, micro_kernel))
    return tuple(dict.fromkeys(f for one in classes for f in launches_of(problem, micro_kernel, one)))


def asked_bytes(
    problem: AnyProblem, micro_kernels: Sequence[CudaMicroKernel], sm: Multiprocessor
) -> dict[str, int]:
    """Return the shared memory that the launches of all functions ask for on an architecture, by symbol."""
    found = emitted_functions(problem, micro_kernels, sm)
    return {symbol: function.shared_bytes for symbol, function in found.items()}


def emitted_functions(
    problem: AnyProblem, micro_kernels: Sequence[CudaMicroKernel], sm: Multiprocessor
) -> dict[str, Function]:
    """Return all functions as an architecture has them, those of twins too, by the symbols of launches."""
    found: dict[str, Function] = {}
    for micro_kernel in micro_kernels:
        own = micro_kernel.on(sm)
        functions = zip(functions_of(problem, micro_kernel), functions_of(problem, own), strict=True)
        found |= {function.symbol: emitted for function, emitted in functions}
    return found


def device_problem(problem: AnyProblem) -> AnyProblem:
    """Return the problem as CUDA kernels see it; a contraction's constant may be packed, see `packing`."""
    if isinstance(problem, BlockProblem):
        return replace(problem, constants=()) if problem.constants else problem
    return with_packed_constants(problem)


def call_shape(
    problem: AnyProblem,
    micro_kernel: CudaMicroKernel,
    extents: Mapping[str, Any],
    ops: Ops | None = None,
) -> Any:
    """Return the grids and the workspace of a call: a `CallShape`, a `BlockShape` or an `AttentionShape`.

    Parameters
    ----------
    extents : mapping of str to int, array or expression
        Of every index of the problem.
    ops : Ops, optional
        Arithmetic on them; NumPy's by default.
    """
    return cuda_form(problem).shape(problem, micro_kernel, dict(extents), ops or NumpyOps())
