"""Axes of a micro-kernel beside its tile and its tails: where they are allowed, and a step along each."""

from __future__ import annotations

from dataclasses import replace

from dietcode.search_space.access import can_read_directly, can_window, lines_of, must_gather
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.partition import NumpyOps, ceildiv, choose_partition, row_tiles_in_l2
from dietcode.search_space.problem import Problem

STEPS = 512  # of the reduction at a time
_FLOAT_BYTES = 4


def copies_rows(problem: Problem, micro_kernel: MicroKernel) -> bool:
    """Whether tasks copy what they read of the row operand: its rows, or the lines under a window."""
    return micro_kernel.tails != "global" and (micro_kernel.gather or must_gather(problem))


def splits_rows_first(problem: Problem, micro_kernel: MicroKernel) -> bool:
    """Whether tasks rather split rows than columns, because each copies all the rows that it reads."""
    return must_gather(problem) and not micro_kernel.window


def problem_for(problem: Problem, micro_kernel: MicroKernel) -> Problem:
    """The problem with the roles that a micro-kernel gives its letters.

    With `MicroKernel.window` rows are those of one line, and which line is a batch index, the place of the
    window across lines its last letter.

    Raises
    ------
    ValueError
        The micro-kernel is for windows that the problem does not have.
    """
    if not micro_kernel.window:
        return problem
    lines = lines_of(problem)
    if lines is None:
        raise ValueError(f"{micro_kernel.name} for {problem.row_operand}, which has no lines under a window")
    last = () if lines.across is None else (lines.across.output,)
    others = tuple(k for k in problem.batch + problem.rows[:-1] if k not in last)
    return replace(problem, batch=others + last, rows=problem.rows[-1:])


def allows(problem: Problem, micro_kernel: MicroKernel, limits: Limits) -> bool:
    """Whether code for a micro-kernel can be generated, and its tile fits the register file."""
    if limits.lanes_of(micro_kernel) < limits.lanes and problem.column_operand_constant:
        return False  # its panels are packed once for all, as wide as a register
    if micro_kernel.direct and not can_read_directly(problem):
        return False
    if micro_kernel.window and not can_window(problem):
        return False
    return limits.holds(micro_kernel)


def neighbours(
    problem: Problem, micro_kernel: MicroKernel, limits: Limits, longest: int
) -> list[MicroKernel]:
    """Micro-kernels that differ in one axis: steps, gather, direct or window.

    Parameters
    ----------
    longest : int
        Longest reduction there is.
    """
    found = []
    if longest >= 2 * STEPS:
        found.append(replace(micro_kernel, steps=0 if micro_kernel.steps else STEPS))
    if not must_gather(problem) and micro_kernel.tails != "global":
        found.append(replace(micro_kernel, gather=not micro_kernel.gather))
    found.append(replace(micro_kernel, direct=not micro_kernel.direct))
    if can_window(problem) and problem.column_operand_constant:
        line = problem.extents[problem.rows[-1]] or micro_kernel.rows
        rows = -(-line // -(-line // micro_kernel.rows))  # tiles that cut a line evenly
        found.append(replace(micro_kernel, rows=rows, window=not micro_kernel.window))
    return [other for other in found if allows(problem, other, limits)]


def ways(micro_kernel: MicroKernel, limits: Limits) -> frozenset[str]:
    """What a micro-kernel does beside its tile: the names of its axes that are not at rest."""
    axes = {
        micro_kernel.tails: True,
        "steps": micro_kernel.steps > 0,
        "gather": micro_kernel.gather,
        "direct": micro_kernel.direct,
        "window": micro_kernel.window,
        "narrow": limits.lanes_of(micro_kernel) < limits.lanes,
    }
    return frozenset(name for name, is_on in axes.items() if is_on)


def workspace_bytes(
    problem: Problem, micro_kernel: MicroKernel, limits: Limits, extents: dict[str, int]
) -> int:
    """Bytes that a call takes from the workspace pool: copies of global padding, and what each task keeps."""
    ops, tile, problem = NumpyOps(), micro_kernel, problem_for(problem, micro_kernel)
    batch, rows, columns, reduction = (int(size) for size in problem.sizes(extents))
    row_tiles, column_tiles = ceildiv(rows, tile.rows, ops), ceildiv(columns, tile.columns, ops)
    rows_first = splits_rows_first(problem, tile)
    grid = choose_partition(
        batch, row_tiles, column_tiles, limits.num_cores, bool(problem.batch), ops, rows_first
    )
    height = ceildiv(row_tiles, int(grid.row_parts), ops)
    blocks = ceildiv(height, int(row_tiles_in_l2(reduction, tile.rows, limits.l2_bytes, ops)), ops)
    tallest = int(ceildiv(height, max(1, blocks), ops))
    kept = tallest * tile.rows * tile.columns if tile.steps else 0
    if tile.window:
        kept += _lines_elements(problem, extents)
    elif copies_rows(problem, tile):
        ranged = tile.steps and not must_gather(problem)
        kept += tallest * tile.rows * (-(-reduction // tile.steps) * tile.steps if ranged else reduction)
    if not problem.column_operand_constant and not tile.direct:
        kept += (tile.steps or reduction) * tile.columns
    shared = 0
    if tile.tails == "global":
        shared = batch * row_tiles * tile.rows * (reduction + column_tiles * tile.columns)
    return int(shared + limits.num_cores * kept) * _FLOAT_BYTES


def _lines_elements(problem: Problem, extents: dict[str, int]) -> int:
    """Elements of a task's ring of lines, see `dietcode.search_space.cpu.windowing`."""
    lines = lines_of(problem)
    assert lines is not None
    pitch = extents[lines.along.axis] + 2 * lines.along.padding
    across = lines.across
    height = 1 if across is None else (extents[across.kernel] - 1) * across.dilation + 1
    return height * pitch * int(problem.product(lines.channels, extents))
