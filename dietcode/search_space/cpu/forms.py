"""From the form of a problem to its code for CPUs; a new form is added here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cpu.attention.lowering import lower_attention
from dietcode.search_space.cpu.attention.space import attention_workspace_bytes
from dietcode.search_space.cpu.axes import workspace_bytes
from dietcode.search_space.cpu.depthwise.lowering import lower_depthwise
from dietcode.search_space.cpu.depthwise.space import depthwise_workspace_bytes
from dietcode.search_space.cpu.lowering import lower
from dietcode.search_space.cpu.products.lowering import lower_products
from dietcode.search_space.cpu.products.space import product_workspace_bytes
from dietcode.search_space.cpu.rows.lowering import lower_rows
from dietcode.search_space.cpu.rows.space import row_workspace_bytes
from dietcode.search_space.depthwise import DepthwiseProblem
from dietcode.search_space.problem import Problem
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.problem import RowProblem


@dataclass(frozen=True)
class CpuCode:
    """Code of one form of problem.

    Attributes
    ----------
    lower : callable
        ``(problem, micro_kernel, limits, name) -> PrimFunc``: a private function on raw pointers of
        `inputs` and `outputs`, then an int64 for each index of `dynamic`; returns an int32 status.
    workspace_bytes : callable
        ``(problem, micro_kernel, limits, extents) -> int``: bytes that a call takes from the workspace pool.
    """

    lower: Callable[..., Any]
    workspace_bytes: Callable[..., int]


CPU_CODE: dict[str, CpuCode] = {
    Problem.form: CpuCode(lower, workspace_bytes),
    ProductProblem.form: CpuCode(lower_products, product_workspace_bytes),
    RowProblem.form: CpuCode(lower_rows, row_workspace_bytes),
    DepthwiseProblem.form: CpuCode(lower_depthwise, depthwise_workspace_bytes),
    AttentionProblem.form: CpuCode(lower_attention, attention_workspace_bytes),
}
