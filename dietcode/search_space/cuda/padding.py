"""Global padding (paper, Figure 7b): the problem of whole tiles that a block function computes.

Copies of the operands, zero-padded to whole tiles, lie in the workspace, and the output where its rows or
columns are padded. To the block function they are tensors of a problem of its own, in which a padded role is
two letters, tiles and what a tile has of the role, so that no tile reaches past an edge:

    Y[m, n] = Σ_k X[m, k] · W[n, k]   ->   Y'[a·128, n] = Σ_k X'[a·128, k] · W[n, k]     n, k whole tiles

An operand is copied iff one of its roles may be ragged. A copy has no windows: it is what they see. Another
function takes what exists of the output out of the workspace, and applies the epilogue.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dietcode.search_space.access import size_of
from dietcode.search_space.cuda.fetching import plan_fetch
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.partition import Ops, ceildiv
from dietcode.search_space.problem import Problem

_ROLES = ("rows", "columns", "reduction")


@dataclass(frozen=True)
class Copy:
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


def block_problem(problem: Problem, tile: CudaMicroKernel) -> Problem:
    """The problem that a micro-kernel's block function computes: another one with global padding alone."""
    if tile.tails != "global":
        return problem
    padded = _padded_roles(problem, tile)
    roles = {role: padded.get(role, getattr(problem, role)) for role in _ROLES}
    names, subscripts = {}, dict(problem.subscripts)
    for operand, role in zip(problem.inputs[:2], _ROLES, strict=False):
        names[operand] = operand
        if role in padded or "reduction" in padded:
            del subscripts[operand]
            names[operand] = _name(problem, operand)
            lines, steps = roles[role], roles["reduction"]
            along = plan_fetch(problem, operand, tile).along_reduction
            order = (*own_batch(problem, operand), *(lines + steps if along else steps + lines))
            subscripts[names[operand]] = "".join(order)
    if "rows" in padded or "columns" in padded:
        subscripts[problem.output] = "".join((*problem.batch, *roles["rows"], *roles["columns"]))
    windows = tuple(w for w in problem.windows if any(w.axis in subscripts.get(n, "") for n in names))
    used = {k for letters in subscripts.values() for k in letters}
    used |= {k for window in windows for k in (window.output, window.kernel)}
    extents = dict(problem.extents) | _padded_extents(problem, tile, padded)
    return replace(
        problem,
        row_operand=names[problem.row_operand],
        column_operand=names[problem.column_operand],
        subscripts=subscripts,
        **roles,
        extents={letter: extent for letter, extent in extents.items() if letter in used},
        windows=windows,
        splits={},
    )


def block_extents(
    problem: Problem, tile: CudaMicroKernel, extents: Mapping[str, Any], ops: Ops
) -> dict[str, Any]:
    """Extents of the letters of `block_problem`; scalars, arrays or expressions alike."""
    whole = block_problem(problem, tile)
    found = {letter: extents[letter] for letter in whole.extents if letter in extents}
    for role, extent in zip(_ROLES, (tile.rows, tile.columns, tile.steps), strict=True):
        letters = getattr(whole, role)
        if letters != getattr(problem, role):
            size = problem.product(getattr(problem, role), dict(extents))
            found |= {letters[0]: ceildiv(size, extent, ops), letters[1]: extent}
    return found


def copies_of(problem: Problem, tile: CudaMicroKernel) -> tuple[Copy, ...]:
    """The operands that a call copies ahead of the block function."""
    whole = block_problem(problem, tile)
    pairs = zip(problem.inputs[:2], whole.inputs[:2], strict=True)
    return tuple(
        Copy(operand, name, plan_fetch(problem, operand, tile).along_reduction)
        for operand, name in pairs
        if operand != name
    )


def writes_parts(problem: Problem, tile: CudaMicroKernel) -> bool:
    """Whether the block function writes to the workspace, and another takes from there what exists."""
    whole = block_problem(problem, tile)
    return tile.splits > 1 or (whole.rows, whole.columns) != (problem.rows, problem.columns)


def own_batch(problem: Problem, operand: str) -> tuple[str, ...]:
    """The batch letters that an operand has."""
    return tuple(k for k in problem.batch if k in problem.letters_of(operand))


def _padded_roles(problem: Problem, tile: CudaMicroKernel) -> dict[str, tuple[str, str]]:
    """Two new letters for each role that tiles may reach past the end of."""
    fresh = iter(sorted(set(string.ascii_letters) - set(problem.extents)))
    extents = dict(zip(_ROLES, (tile.rows, tile.columns, tile.steps), strict=True))
    return {
        role: (next(fresh), next(fresh))
        for role, extent in extents.items()
        if size_of(problem, getattr(problem, role)).factor % extent
    }


def _padded_extents(
    problem: Problem, tile: CudaMicroKernel, padded: Mapping[str, tuple[str, str]]
) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for role, extent in zip(_ROLES, (tile.rows, tile.columns, tile.steps), strict=True):
        if role in padded:
            size = size_of(problem, getattr(problem, role))
            outer, inner = padded[role]
            found |= {outer: -(-size.factor // extent) if size.is_fixed else None, inner: extent}
    return found


def _name(problem: Problem, operand: str) -> str:
    """Of a copy; no tensor's."""
    name = f"padded_{operand}"
    while name in problem.subscripts:
        name += "_"
    return name
