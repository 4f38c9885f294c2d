"""Constants in a layout of the library's own: a permutation of axes, where vectors can then be read.

    W[o, i, r, s]  ->  W[o, r, s, i]        under NHWC: channels are the inner part of the reduction

A column operand that is constant is permuted to ``[batch, columns, reduction]`` iff a thread can then read
more elements at once than from what callers hold. Nothing is padded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dietcode.search_space.access import has_windows
from dietcode.search_space.cuda.fetching import plan_fetch
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.problem import Problem

_ANY = CudaMicroKernel(8, 8, 8, 8, 8)  # no extent of it bounds the width of a vector


@dataclass(frozen=True)
class Permutation:
    """From the axes that callers see to those of a packed tensor.

    Attributes
    ----------
    outer : tuple of int or None
        Of each axis that callers see, the extent of the outer of its two indices; None where it is one index.
    axes : tuple of tuple of int
        Of each axis of the packed tensor, the axes that it consists of, outer first, once those that callers
        see are split as `outer` says.
    layout : str
        Both in a line: ``oirs -> orsi``.
    """

    outer: tuple[int | None, ...]
    axes: tuple[tuple[int, ...], ...]
    layout: str

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as a manifest has it."""
        return {
            "outer": list(self.outer),
            "axes": [list(axis) for axis in self.axes],
            "layout": self.layout,
        }


def with_packed_constants(problem: Problem) -> Problem:
    """Return the problem that reads its constant as it is packed; the same where that reads no wider."""
    name = problem.column_operand
    if not problem.column_operand_constant:
        return problem
    plain = replace(problem, column_operand_constant=False)
    if has_windows(problem, name):
        return plain
    own = problem.indices[name]
    order = "".join((*(k for k in problem.batch if k in own), *problem.columns, *problem.reduction))
    packed = replace(plain, indices=problem.indices | {name: order})
    is_wider = plan_fetch(packed, name, _ANY).width > plan_fetch(plain, name, _ANY).width
    return packed if is_wider else plain


def permutations(problem: Problem, packed: Problem) -> Mapping[str, Permutation]:
    """Return how each constant is packed, by its name.

    Parameters
    ----------
    problem, packed : Problem
        As callers see it, and as `with_packed_constants` gives it.
    """
    name = problem.column_operand
    if problem.indices[name] == packed.indices[name]:
        return {}
    axis_of = {index: axis for axis, index in enumerate(problem.indices[name])}
    outer = [problem.extents[axis[0]] if len(axis) > 1 else None for axis in problem.axes(name)]
    axes = tuple(tuple(axis_of[index] for index in axis) for axis in packed.axes(name))
    layout = f"{problem.indices[name]} -> {packed.indices[name]}"
    return {name: Permutation(tuple(outer), axes, layout)}
