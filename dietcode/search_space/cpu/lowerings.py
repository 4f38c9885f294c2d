"""From the form of a problem to its code for CPUs; a new form is added here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.cpu.attention.lowering import lower_attention
from dietcode.search_space.cpu.depthwise.lowering import lower_depthwise
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.lowering import lower
from dietcode.search_space.cpu.products.lowering import lower_products
from dietcode.search_space.cpu.rows.lowering import lower_rows
from dietcode.search_space.depthwise import DepthwiseProblem
from dietcode.search_space.problem import AnyProblem, Problem
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.problem import RowProblem
from dietcode.search_space.vectors import fused

LOWERINGS: dict[str, Callable[..., Any]] = {
    Problem.form: lower,
    ProductProblem.form: lower_products,
    RowProblem.form: lower_rows,
    DepthwiseProblem.form: lower_depthwise,
    AttentionProblem.form: lower_attention,
}
"""``(problem, micro_kernel, limits, name) -> PrimFunc``: a private function on raw pointers of `inputs` and
`outputs`, then an int64 for each index of `dynamic`; returns an int32 status."""


def lower_micro_kernel(problem: AnyProblem, micro_kernel: AnyMicroKernel, limits: Limits, name: str) -> Any:
    """Return the code of a micro-kernel, one of `LOWERINGS`, for a processor with or without FMA."""
    with fused(limits.fuses):
        return LOWERINGS[problem.form](problem, micro_kernel, limits, name)
