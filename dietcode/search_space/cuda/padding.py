"""Global padding (paper, Figure 7b): the problem of whole tiles that a block function computes.

Copies of the operands, zero-padded to whole tiles, lie in the workspace, and so does the output where its
rows or columns are padded. To the block function they are tensors of a problem of its own, in which a padded
role is two indices, of tiles and within a tile, so that no tile reaches past an edge:

    Y[m, n] = Σ_k X[m, k] · W[n, k]   ->   Y'[a·128, n] = Σ_k X'[a·128, k] · W[n, k]     n, k whole tiles

An operand is copied iff one of its roles may be ragged. A copy has no windows: it has what they read. Another
function reads what exists of the output from the workspace, and applies the epilogue.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dietcode.search_space.access import size_of
from dietcode.search_space.cuda.fetching import plan_fetch
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import Problem

ROLES = ("rows", "columns", "reduction")


@dataclass(frozen=True)
class OperandCopy:
    """A padded copy of an operand, row-major: ``[batch, lines, steps]``, or ``[batch, steps, lines]``.

    Attributes
    ----------
    operand, name : str
        The operand's name, and that of its copy.
    along_reduction : bool
        Whether steps of the reduction are its last axis.
    """

    operand: str
    name: str
    along_reduction: bool


def block_problem(problem: Problem, micro_kernel: CudaMicroKernel) -> Problem:
    """Return the problem that a block function computes: another than `problem` with global padding alone."""
    if micro_kernel.tails != "global":
        return problem
    padded = _padded_roles(problem, micro_kernel)
    roles = {role: padded.get(role, getattr(problem, role)) for role in ROLES}
    names, indices = {}, dict(problem.indices)
    for operand, role in zip(problem.inputs[:2], ROLES, strict=False):
        names[operand] = operand
        if role in padded or "reduction" in padded:
            del indices[operand]
            names[operand] = _name(problem, operand)
            lines, reduction = roles[role], roles["reduction"]
            along = plan_fetch(problem, operand, micro_kernel).along_reduction
            order = (*own_batch(problem, operand), *(lines + reduction if along else reduction + lines))
            indices[names[operand]] = "".join(order)
    if "rows" in padded or "columns" in padded:
        indices[problem.output] = "".join((*problem.batch, *roles["rows"], *roles["columns"]))
    windows = tuple(w for w in problem.windows if any(w.axis in indices.get(n, "") for n in names))
    used = {k for own in indices.values() for k in own}
    used |= {k for window in windows for k in (window.output, window.kernel)}
    extents = dict(problem.extents) | _padded_extents(problem, micro_kernel, padded)
    return replace(
        problem,
        row_operand=names[problem.row_operand],
        column_operand=names[problem.column_operand],
        indices=indices,
        **roles,
        extents={index: extent for index, extent in extents.items() if index in used},
        windows=windows,
        splits={},
    )


def copies_of(problem: Problem, micro_kernel: CudaMicroKernel) -> tuple[OperandCopy, ...]:
    """Return the operands that a call copies before the block function."""
    padded = block_problem(problem, micro_kernel)
    pairs = zip(problem.inputs[:2], padded.inputs[:2], strict=True)
    return tuple(
        OperandCopy(operand, name, plan_fetch(problem, operand, micro_kernel).along_reduction)
        for operand, name in pairs
        if operand != name
    )


def writes_parts(problem: Problem, micro_kernel: CudaMicroKernel) -> bool:
    """Whether the block function writes to the workspace, and another function from there to the output."""
    padded = block_problem(problem, micro_kernel)
    return micro_kernel.splits > 1 or (padded.rows, padded.columns) != (problem.rows, problem.columns)


def own_batch(problem: Problem, operand: str) -> tuple[str, ...]:
    """Return the batch indices that an operand has."""
    return tuple(k for k in problem.batch if k in problem.role_indices(operand))


def _padded_roles(problem: Problem, micro_kernel: CudaMicroKernel) -> dict[str, tuple[str, str]]:
    """Return two new indices for each role that tiles may reach past the end of."""
    fresh = iter(sorted(set(string.ascii_letters) - set(problem.extents)))
    extents = dict(zip(ROLES, (micro_kernel.rows, micro_kernel.columns, micro_kernel.k_tile), strict=True))
    return {
        role: (next(fresh), next(fresh))
        for role, extent in extents.items()
        if size_of(problem, getattr(problem, role)).factor % extent
    }


def _padded_extents(
    problem: Problem, micro_kernel: CudaMicroKernel, padded: Mapping[str, tuple[str, str]]
) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for role, extent in zip(
        ROLES, (micro_kernel.rows, micro_kernel.columns, micro_kernel.k_tile), strict=True
    ):
        if role in padded:
            size = size_of(problem, getattr(problem, role))
            outer, inner = padded[role]
            found |= {outer: -(-size.factor // extent) if size.is_fixed else None, inner: extent}
    return found


def _name(problem: Problem, operand: str) -> str:
    """Return a name for a copy that no tensor has."""
    name = f"padded_{operand}"
    while name in problem.indices:
        name += "_"
    return name
