"""Which micro-kernels a row block has. Imports no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.rows.micro_kernel import FETCHES, KEEPS, OVERLAPS, RowKernel
from dietcode.search_space.rows.passes import schedule
from dietcode.search_space.rows.problem import RowProblem

ROWS = (1, 2, 4, 8)
VECTORS = (1, 2, 4, 8)
_MOST_VECTORS = 16  # of a step, all rows together: code grows with it, and little else
_NUM_ACCUMULATORS = 4  # a step of a row that is added up has a multiple of these
_SQUARES = (1, 2, 4)  # next to each other, of a step that transposes
_FLOAT_BYTES = 4


def num_tasks(micro_kernel: RowKernel, limits: Limits) -> int:
    """Return the tasks that a call is cut into."""
    return 1 if micro_kernel.serial else limits.num_cores


def allows(problem: RowProblem, micro_kernel: RowKernel, limits: Limits) -> bool:
    """Whether code for a micro-kernel can be generated, and its step is small enough."""
    is_default = micro_kernel.overlap == OVERLAPS[0] and micro_kernel.fetch == FETCHES[0]
    if not is_default and (problem.inner or len(schedule(problem, micro_kernel.keep).passes) < 2):
        return False
    if micro_kernel.stream and micro_kernel.fetch == "next":  # as all: what passes the caches is not fetched
        return False
    if problem.turned:  # squares are transposed
        width, rest = divmod(micro_kernel.columns, limits.lanes)
        return (
            micro_kernel.rows == limits.lanes
            and not rest
            and width in _SQUARES
            and not (micro_kernel.serial and (micro_kernel.stream or limits.num_cores == 1))
        )
    across = bool(problem.inner)  # vectors lie across rows, and steps are single columns
    vectors, remainder = divmod(micro_kernel.rows if across else micro_kernel.columns, limits.lanes)
    apart = micro_kernel.columns if across else micro_kernel.rows
    if remainder or vectors < 1 or apart < 1 or vectors * apart > _MOST_VECTORS:
        return False
    if problem.reduces and (apart if across else vectors) % _NUM_ACCUMULATORS:
        return False
    # Small calls stay in the caches; on one core `serial` changes nothing.
    return not (micro_kernel.serial and (micro_kernel.stream or limits.num_cores == 1))


def seeds(problem: RowProblem, limits: Limits) -> list[RowKernel]:
    """Return the micro-kernels to begin with: one row and the tallest step, on all cores and on one.

    One row also with all passes in one loop, where lines are asked for and where they are not: on one
    processor or another these are far ahead, and two axes away from the others.
    """
    tall = max(r for r in ROWS if r * _NUM_ACCUMULATORS <= _MOST_VECTORS)
    sizes = [(1, _NUM_ACCUMULATORS), (tall, _NUM_ACCUMULATORS)]
    kernels = [_kernel(problem, r, v, s, limits) for s in (False, True) for r, v in sizes]
    kernels += [replace(kernels[0], overlap=OVERLAPS[-1], fetch=fetch) for fetch in (FETCHES[0], FETCHES[-1])]
    return [kernel for kernel in dict.fromkeys(kernels) if allows(problem, kernel, limits)]


def around(problem: RowProblem, limits: Limits) -> list[RowKernel]:
    """Return every step, with what else is not the default left out: neighbours bring that along."""
    kernels = [_kernel(problem, r, v, s, limits) for s in (False, True) for r in ROWS for v in VECTORS]
    return [kernel for kernel in dict.fromkeys(kernels) if allows(problem, kernel, limits)]


def _kernel(problem: RowProblem, rows: int, vectors: int, serial: bool, limits: Limits) -> RowKernel:
    """Return a step of some rows and vectors of each, or of some vectors across rows and columns."""
    if problem.turned:
        return RowKernel(limits.lanes, (vectors if rows == 1 else _SQUARES[0]) * limits.lanes, serial=serial)
    if problem.inner:
        return RowKernel(rows * limits.lanes, vectors, serial=serial)
    return RowKernel(rows, vectors * limits.lanes, serial=serial)


def neighbours(problem: RowProblem, micro_kernel: RowKernel, limits: Limits) -> list[RowKernel]:
    """Return micro-kernels that differ in one axis: the cores, outputs, passes, what is fetched or kept."""
    found = [
        replace(micro_kernel, serial=not micro_kernel.serial),
        replace(micro_kernel, stream=not micro_kernel.stream),
        *(replace(micro_kernel, overlap=overlap) for overlap in OVERLAPS if overlap != micro_kernel.overlap),
        *(replace(micro_kernel, fetch=fetch) for fetch in FETCHES if fetch != micro_kernel.fetch),
    ]
    own = schedule(problem, micro_kernel.keep)
    known = {own}
    for keep in KEEPS:
        other = schedule(problem, keep)
        if other not in known:  # another word for the same passes is no other micro-kernel
            known.add(other)
            found.append(replace(micro_kernel, keep=keep))
    return [other for other in found if allows(problem, other, limits)]


def row_workspace_bytes(
    problem: RowProblem, micro_kernel: RowKernel, limits: Limits, extents: Mapping[str, int]
) -> int:
    """Return the bytes that a call takes from the workspace pool: what each task keeps between passes."""
    _, _, columns, _ = problem.sizes(extents)
    pitch = -(-int(columns) // micro_kernel.columns) * micro_kernel.columns
    plan = schedule(problem, micro_kernel.keep)
    kept = len(plan.kept) * plan.num_groups(micro_kernel.overlap)
    return num_tasks(micro_kernel, limits) * kept * micro_kernel.rows * pitch * _FLOAT_BYTES
