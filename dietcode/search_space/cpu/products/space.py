"""Which micro-kernels a block with products has. Imports no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.products.loops import has_equal_parts, loops_of, most_accumulators, num_parts
from dietcode.search_space.cpu.products.micro_kernel import ProductKernel
from dietcode.search_space.cpu.rows.micro_kernel import RowKernel
from dietcode.search_space.cpu.rows.space import row_workspace_bytes
from dietcode.search_space.products.problem import ProductProblem

_ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14)
_VECTORS = (1, 2, 3, 4)
_MOST_PARTS = 2
_MOST_WAITING = 4
_FLOAT_BYTES = 4


def num_tasks(micro_kernel: ProductKernel, limits: Limits) -> int:
    """Return the tasks that a call is cut into."""
    return 1 if micro_kernel.serial else limits.num_cores


def row_elements(problem: ProductProblem, extents: Mapping[str, Any]) -> Any:
    """Return the elements of a row that a core touches: of products, of what functions read, of outputs.

    Parameters
    ----------
    extents : mapping of str to int64 expression or array
        Of every index.
    """
    plan = problem.plan
    found = {
        (term.rows, term.reduction): problem.product(tuple(term.reduction), extents) for term, _ in plan.terms
    }
    num_wide = len(plan.outputs) + sum(map(problem.is_of_rows, plan.reads.values()))
    return sum(found.values()) + num_wide * problem.product(problem.columns, extents)


def row_kernel(micro_kernel: ProductKernel, limits: Limits) -> RowKernel:
    """Return how what follows a reduction is computed: row by row; any other way has the same bits."""
    return RowKernel(1, 4 * limits.lanes, serial=micro_kernel.serial)


def allows(problem: ProductProblem, micro_kernel: ProductKernel, limits: Limits) -> bool:
    """Return whether the accumulators of a loop, a row of vectors and a broadcast fit the registers.

    Gates may be divided among two loops of as many each, and sums that wait for others are at most four
    times what the registers hold. The least tile is allowed in any case: with many accumulators some of them
    lie in L1.
    """
    vectors, remainder = divmod(micro_kernel.columns, limits.lanes)
    if remainder or vectors < 1 or (micro_kernel.serial and limits.num_cores == 1):
        return False
    if (micro_kernel.rows, vectors) == (1, 1):
        return True
    waiting = micro_kernel.rows * vectors * len(problem.plan.accumulators)
    if waiting > _MOST_WAITING * limits.num_registers:
        return False
    most = most_accumulators(micro_kernel.rows, vectors, limits.num_registers)
    loops = loops_of(problem, micro_kernel.rows, vectors, limits.num_registers)
    fits = max(loop.num_accumulators for loop in loops) <= most
    return fits and num_parts(loops) <= _MOST_PARTS and has_equal_parts(loops)


def seeds(problem: ProductProblem, limits: Limits) -> list[ProductKernel]:
    """Return the tallest tile of each width whose sums are all in registers, and a row of the widest.

    The tallest tile of one vector whose gates are in two loops is another: with 16 registers it is the
    fastest one of four gates.
    """
    found: dict[int, ProductKernel] = {}
    divided: list[ProductKernel] = []
    for kernel in tiles(problem, limits):  # rows ascend
        vectors = kernel.columns // limits.lanes
        most = most_accumulators(kernel.rows, vectors, limits.num_registers)
        loops = loops_of(problem, kernel.rows, vectors, limits.num_registers)
        if len(problem.plan.accumulators) <= most or (kernel.rows, vectors) == (1, 1):
            found[kernel.columns] = kernel
        elif vectors == 1 and num_parts(loops) == _MOST_PARTS:
            divided = [kernel]
    widest = max(found.values(), key=lambda kernel: kernel.columns)
    return list(dict.fromkeys([*found.values(), *divided, replace(widest, rows=1)]))


def tiles(problem: ProductProblem, limits: Limits) -> list[ProductKernel]:
    """Return every tile, on all cores."""
    kernels = [ProductKernel(rows, vectors * limits.lanes) for vectors in _VECTORS for rows in _ROWS]
    return [kernel for kernel in kernels if allows(problem, kernel, limits)]


def neighbours(problem: ProductProblem, micro_kernel: ProductKernel, limits: Limits) -> list[ProductKernel]:
    """Return the same tile on one core, or on all."""
    other = replace(micro_kernel, serial=not micro_kernel.serial)
    return [other] if allows(problem, other, limits) else []


def product_workspace_bytes(
    problem: ProductProblem, micro_kernel: ProductKernel, limits: Limits, extents: Mapping[str, int]
) -> int:
    """Return the bytes that a call takes from the workspace pool: what it packs and sets aside."""
    total = 0
    for tensor in problem.column_tensors:
        if tensor not in problem.constants:
            layout = problem.layout(tensor)
            panels = -(-int(problem.product(layout.columns, extents)) // limits.lanes)
            total += panels * limits.lanes * int(problem.product(layout.reduction, extents))
    total += sum(int(problem.product(problem.indices[name], extents)) for name in problem.halves.set_aside)
    later = 0
    if problem.rest is not None:
        later = row_workspace_bytes(problem.rest, row_kernel(micro_kernel, limits), limits, extents)
    return total * _FLOAT_BYTES + later
