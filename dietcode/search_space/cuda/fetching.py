"""Fetches of an operand from global memory: along which axis, and how many elements at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dietcode.search_space.access import ONE, Group, Size, padded_windows, size_of, view_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import Problem

WIDTHS = (4, 2, 1)  # of vector loads and stores, in float32
_VECTOR_BYTES = 16


@dataclass(frozen=True)
class AlignedProblem(Problem):
    """A contraction of which more is known than its fixed extents: one alignment class of a micro-kernel's.

    Attributes
    ----------
    multiples : dict of str to int
        What the extents of some dynamic indices are multiples of.
    """

    multiples: dict[str, int] = field(default_factory=dict)


def known_multiple(problem: Problem, size: Size) -> int:
    """Return a number that a size is a multiple of, whatever the extents of a call are."""
    multiples = problem.multiples if isinstance(problem, AlignedProblem) else {}
    return size.factor * math.prod(multiples.get(index, 1) for index in size.indices)


@dataclass(frozen=True)
class Fetch:
    """The way in which a block reads its tile of an operand.

    Attributes
    ----------
    along_reduction : bool
        Whether neighbouring threads read neighbouring steps of the reduction, rather than neighbouring rows
        (of the row operand) or columns.
    width : int
        Elements that a thread reads at once; its address is a multiple of that.
    """

    along_reduction: bool
    width: int


def _innermost(groups: list[Group]) -> Group | None:
    return groups[-1] if groups and groups[-1].stride == ONE else None


def _width(problem: Problem, tensor: str, indices: tuple[str, ...], most: int, itemsize: int) -> int:
    """Return the widest vector along the flattened indices whose address is always a multiple of its size.

    It lies in the innermost group; every other stride of the tensor, and the beginning of every window, is a
    multiple of it. It exists as a whole or not at all: indices that a padded window slides by are in no group
    of others. It has at most 16 bytes.
    """
    view, windows = view_of(problem, tensor), padded_windows(problem, tensor)
    apart = "".join(window.output + window.kernel for window in windows)
    inner = _innermost(view.groups(indices, apart))
    if inner is None or inner.indices in set(apart):
        return 1
    moving = [k for k in view.strides if k not in inner.indices and size_of(problem, k) != ONE]
    others = [known_multiple(problem, view.strides[index]) for index in moving]
    others += [known_multiple(problem, view.axis_strides[w.axis]) * w.padding for w in windows]
    return next(
        w
        for w in (2 * WIDTHS[0], *WIDTHS)
        if w * itemsize <= _VECTOR_BYTES
        and most % w == known_multiple(problem, inner.extent) % w == 0
        and not any(s % w for s in others)
    )


def _slides_along(problem: Problem, tensor: str) -> bool:
    """Whether a window slides along a tensor's last axis, so that lines lie next to each other."""
    window = problem.window_over(problem.indices[tensor][-1])
    return window is not None and window.output in problem.rows + problem.columns


def plan_fetch(problem: Problem, tensor: str, micro_kernel: CudaMicroKernel) -> Fetch:
    """Plan how a micro-kernel reads one of its two operands."""
    view, is_row = view_of(problem, tensor), tensor == problem.row_operand
    indices, extent = (problem.rows, micro_kernel.rows) if is_row else (problem.columns, micro_kernel.columns)
    itemsize = problem.storage(tensor).itemsize
    line_group, k_group = (_innermost(view.groups(role)) for role in (indices, problem.reduction))
    if (line_group is not None and k_group is None) or _slides_along(problem, tensor):
        return Fetch(False, _width(problem, tensor, indices, extent, itemsize))
    return Fetch(True, _width(problem, tensor, problem.reduction, micro_kernel.k_tile, itemsize))


def output_width(problem: Problem, micro_kernel: CudaMicroKernel) -> int:
    """Return how many elements of the output a thread writes at once, along the columns."""
    most = micro_kernel.thread_columns // micro_kernel.column_vthreads
    largest = max(problem.storage(name).itemsize for name in (problem.output, *problem.inputs[2:]))
    return _width(problem, problem.output, problem.columns, most, largest)


def part_width(problem: Problem, micro_kernel: CudaMicroKernel) -> int:
    """Return how many accumulators a thread writes at once to the workspace, along the columns."""
    most = micro_kernel.thread_columns // micro_kernel.column_vthreads
    columns = known_multiple(problem, size_of(problem, problem.columns))
    return next(w for w in WIDTHS if most % w == columns % w == 0)


def stage_width(problem: Problem, tensor: str, width: int) -> int:
    """Return how many elements of an epilogue tensor are read at once, with `width` of the output written."""
    itemsize = problem.storage(tensor).itemsize
    return width if _width(problem, tensor, problem.columns, width, itemsize) == width else 1
