"""How an operand is read from global memory: along which axis, and how many elements at a time."""

from __future__ import annotations

from dataclasses import dataclass

from dietcode.search_space.access import ONE, Group, View, view_of
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import Problem

WIDTHS = (4, 2, 1)  # of vector loads and stores, in float32
_VECTOR_BYTES = 16


@dataclass(frozen=True)
class Fetch:
    """How a block reads its tile of an operand.

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


def _width(view: View, letters: tuple[str, ...], most: int, itemsize: int) -> int:
    """The widest vector along the flattened letters whose address is always a multiple of its size.

    It lies in the innermost group, every other stride of the tensor is a multiple of it, and it has at most
    16 bytes.
    """
    inner = _innermost(view.groups(letters))
    if inner is None or not inner.extent.is_fixed:
        return 1
    others = [size.factor for letter, size in view.strides.items() if letter not in inner.letters]
    return next(
        w
        for w in (2 * WIDTHS[0], *WIDTHS)
        if w * itemsize <= _VECTOR_BYTES
        and most % w == inner.extent.factor % w == 0
        and not any(s % w for s in others)
    )


def plan_fetch(problem: Problem, tensor: str, tile: CudaMicroKernel) -> Fetch:
    """How a micro-kernel reads one of its two operands."""
    view, is_row = view_of(problem, tensor), tensor == problem.row_operand
    letters, extent = (problem.rows, tile.rows) if is_row else (problem.columns, tile.columns)
    itemsize = problem.storage(tensor).itemsize
    if _innermost(view.groups(letters)) is not None and _innermost(view.groups(problem.reduction)) is None:
        return Fetch(False, _width(view, letters, extent, itemsize))
    return Fetch(True, _width(view, problem.reduction, tile.steps, itemsize))


def output_width(problem: Problem, tile: CudaMicroKernel) -> int:
    """Elements of the output that a thread writes at once, along the columns."""
    most = tile.thread_columns // tile.column_vthreads
    largest = max(problem.storage(name).itemsize for name in (problem.output, *problem.inputs[2:]))
    return _width(view_of(problem, problem.output), problem.columns, most, largest)


def stage_width(problem: Problem, tensor: str, width: int) -> int:
    """Elements of a tensor of the epilogue that are read at once, where the output is written by `width`."""
    itemsize = problem.storage(tensor).itemsize
    return width if _width(view_of(problem, tensor), problem.columns, width, itemsize) == width else 1


def alignments(problem: Problem, tile: CudaMicroKernel) -> dict[str, int]:
    """Bytes that the address of each tensor must be a multiple of."""
    widths = {name: plan_fetch(problem, name, tile).width for name in problem.inputs[:2]}
    own = output_width(problem, tile)
    stages = {name: stage_width(problem, name, own) for name in problem.inputs[2:]}
    widths |= {
        name: 1 if tile.splits > 1 else width for name, width in (stages | {problem.output: own}).items()
    }
    return {name: width * problem.storage(name).itemsize for name, width in widths.items()}
