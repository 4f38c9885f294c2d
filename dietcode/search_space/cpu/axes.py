"""Axes of a micro-kernel beside its tile and its tails: where they are allowed, and neighbours along each."""

from __future__ import annotations

from dataclasses import replace

from dietcode.search_space.access import can_read_directly, can_window, lines_of, must_gather
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.partition import NumpyOps, ceildiv, choose_partition, row_tiles_in_l2
from dietcode.search_space.problem import Problem

K_TILE = 512  # steps of the reduction at a time
_FLOAT_BYTES = 4


def copies_rows(problem: Problem, micro_kernel: MicroKernel) -> bool:
    """Whether tasks copy what they read of the row operand: its rows, or the lines under a window."""
    return micro_kernel.tails != "global" and (micro_kernel.gather or must_gather(problem))


def splits_rows_first(problem: Problem, micro_kernel: MicroKernel) -> bool:
    """Whether tasks split rows before columns, because each copies all the rows that it reads."""
    return must_gather(problem) and not micro_kernel.window


def problem_for(problem: Problem, micro_kernel: MicroKernel) -> Problem:
    """Return the problem with the roles that a micro-kernel gives its indices.

    With `MicroKernel.window` rows are those of one line, and the line is a batch index, whose last index is
    the position of the window across lines.

    Raises
    ------
    ValueError
        The micro-kernel needs a window that the problem does not have.
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
        return False  # its panels are packed once, as wide as a register
    if micro_kernel.direct and not can_read_directly(problem):
        return False
    if micro_kernel.window and not can_window(problem):
        return False
    return limits.holds(micro_kernel)


def neighbours(
    problem: Problem, micro_kernel: MicroKernel, limits: Limits, longest: int
) -> list[MicroKernel]:
    """Return micro-kernels that differ in one axis: k_tile, gather, direct or window.

    Parameters
    ----------
    longest : int
        Longest reduction of any instance.
    """
    found = []
    if longest >= 2 * K_TILE:
        found.append(replace(micro_kernel, k_tile=0 if micro_kernel.k_tile else K_TILE))
    if not must_gather(problem) and micro_kernel.tails != "global":
        found.append(replace(micro_kernel, gather=not micro_kernel.gather))
    found.append(replace(micro_kernel, direct=not micro_kernel.direct))
    if can_window(problem) and problem.column_operand_constant:
        line = problem.extents[problem.rows[-1]] or micro_kernel.rows
        rows = -(-line // -(-line // micro_kernel.rows))  # tiles that cut a line evenly
        found.append(replace(micro_kernel, rows=rows, window=not micro_kernel.window))
    return [other for other in found if allows(problem, other, limits)]


def ways(micro_kernel: MicroKernel, limits: Limits) -> frozenset[str]:
    """Return the names of the axes beside the tile that differ from their defaults, tails included."""
    axes = {
        micro_kernel.tails: True,
        "k_tile": micro_kernel.k_tile > 0,
        "gather": micro_kernel.gather,
        "direct": micro_kernel.direct,
        "window": micro_kernel.window,
        "narrow": limits.lanes_of(micro_kernel) < limits.lanes,
    }
    return frozenset(name for name, is_on in axes.items() if is_on)


def workspace_bytes(
    problem: Problem, micro_kernel: MicroKernel, limits: Limits, extents: dict[str, int]
) -> int:
    """Return the bytes that a call takes from the workspace pool: padded copies, and buffers of each task.

    Parameters
    ----------
    extents : dict of str to int
        Of every index.
    """
    ops, problem = NumpyOps(), problem_for(problem, micro_kernel)
    batch, rows, columns, reduction = (int(size) for size in problem.sizes(extents))
    row_tiles = ceildiv(rows, micro_kernel.rows, ops)
    column_tiles = ceildiv(columns, micro_kernel.columns, ops)
    rows_first = splits_rows_first(problem, micro_kernel)
    grid = choose_partition(
        batch, row_tiles, column_tiles, limits.num_cores, bool(problem.batch), ops, rows_first
    )
    height = ceildiv(row_tiles, int(grid.row_parts), ops)
    blocks = ceildiv(height, int(row_tiles_in_l2(reduction, micro_kernel.rows, limits.l2_bytes, ops)), ops)
    tallest = int(ceildiv(height, max(1, blocks), ops))
    own = tallest * micro_kernel.rows * micro_kernel.columns if micro_kernel.k_tile else 0
    if micro_kernel.window:
        own += _lines_elements(problem, extents)
    elif copies_rows(problem, micro_kernel):
        k_tile = 1 if must_gather(problem) else micro_kernel.k_tile or 1
        own += tallest * micro_kernel.rows * -(-reduction // k_tile) * k_tile
    if not problem.column_operand_constant and not micro_kernel.direct:
        own += (micro_kernel.k_tile or reduction) * micro_kernel.columns
    shared = 0
    if micro_kernel.tails == "global":
        shared = batch * row_tiles * micro_kernel.rows * (reduction + column_tiles * micro_kernel.columns)
    return int(shared + limits.num_cores * own) * _FLOAT_BYTES


def _lines_elements(problem: Problem, extents: dict[str, int]) -> int:
    """Return the elements of a task's ring of lines, see `dietcode.search_space.cpu.windowing`."""
    lines = lines_of(problem)
    assert lines is not None
    pitch = extents[lines.along.axis] + lines.along.padding + lines.along.end
    across = lines.across
    height = 1 if across is None else (extents[across.kernel] - 1) * across.dilation + 1
    return height * pitch * int(problem.product(lines.channels, extents))
