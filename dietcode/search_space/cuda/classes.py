"""Alignment classes: what dynamic extents are multiples of, and how wide loads and stores are then.

A vector load needs that rows begin at multiples of its width. Fixed extents show that when code is generated;
of dynamic ones a call shows it. So a micro-kernel has its block function once for each class whose loads or
stores are wider than those of the next, and the host takes the widest that the extents and the addresses of a
call fit. The class with a multiple of 1 asks for nothing, and every call has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dietcode.search_space.cuda.bulk_maps import maps_of
from dietcode.search_space.cuda.fetching import (
    AlignedProblem,
    output_width,
    part_width,
    plan_fetch,
    stage_width,
)
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.padding import block_problem, writes_parts
from dietcode.search_space.problem import Problem

MULTIPLES = (4, 8)
"""What extents are asked to be multiples of, in elements: 8 are 16 bytes in half precision, 4 in float32."""


@dataclass(frozen=True)
class AlignmentClass:
    """One alignment class of a micro-kernel.

    Attributes
    ----------
    multiple : int
        What the extents of `indices` must be multiples of; 1 asks for nothing.
    indices : tuple of str
        Dynamic indices on which the width of a load or a store depends.
    """

    multiple: int = 1
    indices: tuple[str, ...] = ()

    def serves(self, extents: Mapping[str, Any]) -> Any:
        """Return whether extents fit: a bool, or an array of them."""
        fits: Any = True
        for index in self.indices:
            fits = fits & (extents[index] % self.multiple == 0)
        return fits

    def symbol(self, micro_kernel: CudaMicroKernel) -> str:
        """Return the name of the block function of this class."""
        return micro_kernel.symbol + (f"_by{self.multiple}" if self.multiple > 1 else "")

    def problem(self, problem: Any) -> Any:
        """Return the problem with what is known of its extents in this class."""
        return problem if self.multiple == 1 else _with_multiple(problem, self.multiple, self.indices)


UNALIGNED = AlignmentClass()


@dataclass(frozen=True)
class ClassCounts:
    """Loads and stores of global memory of one block in one class, of whatever width, over all its threads.

    Attributes
    ----------
    of_step : float
        Those of both operands for each step of the reduction; of bulk copies one for each box.
    of_output : float
        Those of the output, or of its part in the workspace.
    """

    own: AlignmentClass
    of_step: float
    of_output: float


def alignment_classes(problem: Problem, micro_kernel: CudaMicroKernel) -> tuple[AlignmentClass, ...]:
    """Return the classes of a micro-kernel, the widest first, `UNALIGNED` last.

    Each asks for as few indices as its widths need. Where fixed extents say all there is only one.

    Parameters
    ----------
    problem : Problem
        As `dietcode.search_space.cuda.forms.device_problem` gives it.
    """
    return tuple(counts.own for counts in class_counts(problem, micro_kernel))


def class_counts(problem: Problem, micro_kernel: CudaMicroKernel) -> tuple[ClassCounts, ...]:
    """Return what a block of each of `alignment_classes` loads and stores, in their order."""
    return _counts(_ByContent(problem), micro_kernel)


def vector_widths(problem: Problem, micro_kernel: CudaMicroKernel) -> dict[str, int]:
    """Return how many elements of each tensor of the block function a thread reads or writes at once.

    Operands are named as in `block_problem`; the output stands for its parts in the workspace, too.
    """
    padded = block_problem(problem, micro_kernel)
    widths = {name: plan_fetch(padded, name, micro_kernel).width for name in padded.inputs[:2]}
    if writes_parts(problem, micro_kernel):
        return widths | {problem.output: part_width(padded, micro_kernel)}
    own = output_width(padded, micro_kernel)
    stages = {name: stage_width(padded, name, own) for name in problem.inputs[2:]}
    return widths | stages | {problem.output: own}


class _ByContent:
    """A problem as a key: what widths depend on."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        roles = (problem.batch, problem.rows, problem.columns, problem.reduction)
        dtypes = (problem.operand_dtype, problem.output_dtype)
        indices, extents = tuple(problem.indices.items()), tuple(problem.extents.items())
        known = tuple(problem.multiples.items()) if isinstance(problem, AlignedProblem) else ()
        self.key = (problem.inputs, problem.output, indices, extents, roles, dtypes, problem.windows, known)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByContent) and self.key == other.key


@lru_cache(maxsize=1 << 14)
def _counts(of: _ByContent, micro_kernel: CudaMicroKernel) -> tuple[ClassCounts, ...]:
    problem = of.problem
    widths = vector_widths(problem, micro_kernel)
    found = [_count(UNALIGNED, problem, micro_kernel, widths)]
    for multiple in MULTIPLES:
        indices = problem.dynamic
        wider = vector_widths(_with_multiple(problem, multiple, indices), micro_kernel)
        if wider == widths:
            continue
        for index in problem.dynamic:
            fewer = tuple(k for k in indices if k != index)
            if vector_widths(_with_multiple(problem, multiple, fewer), micro_kernel) == wider:
                indices = fewer
        found.append(_count(AlignmentClass(multiple, indices), problem, micro_kernel, wider))
        widths = wider
    return tuple(reversed(found))


def _count(
    own: AlignmentClass, problem: Problem, micro_kernel: CudaMicroKernel, widths: Mapping[str, int]
) -> ClassCounts:
    rows, columns = (widths[name] for name in block_problem(problem, micro_kernel).inputs[:2])
    of_step = micro_kernel.rows / rows + micro_kernel.columns / columns
    maps = maps_of(problem, micro_kernel)
    if maps:
        of_step = sum(one.num_boxes for one in maps) / micro_kernel.k_tile
    return ClassCounts(own, of_step, micro_kernel.rows * micro_kernel.columns / widths[problem.output])


def _with_multiple(problem: Problem, multiple: int, indices: tuple[str, ...]) -> AlignedProblem:
    return AlignedProblem(**(vars(problem) | {"multiples": dict.fromkeys(indices, multiple)}))
