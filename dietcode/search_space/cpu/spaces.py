"""From the form of a problem to its micro-kernels for CPUs; a new form is added here. Imports no compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.cpu import axes
from dietcode.search_space.cpu.attention import space as attention
from dietcode.search_space.cpu.attention.micro_kernel import AttentionKernel
from dietcode.search_space.cpu.depthwise import space as depthwise
from dietcode.search_space.cpu.depthwise.micro_kernel import DepthwiseKernel
from dietcode.search_space.cpu.limits import MicroKernel
from dietcode.search_space.cpu.products import space as products
from dietcode.search_space.cpu.products.micro_kernel import ProductKernel
from dietcode.search_space.cpu.rows import space as rows
from dietcode.search_space.cpu.rows.micro_kernel import RowKernel
from dietcode.search_space.depthwise import DepthwiseProblem
from dietcode.search_space.forms import form_named
from dietcode.search_space.problem import Problem
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.problem import RowProblem


@dataclass(frozen=True)
class CpuSpace:
    """Micro-kernels of one form of problem.

    Attributes
    ----------
    micro_kernel : callable
        ``plain data -> micro-kernel``; raises KeyError, TypeError or ValueError.
    allows : callable
        ``(problem, micro_kernel, limits) -> bool``: whether the micro-kernel computes the problem.
    workspace_bytes : callable
        ``(problem, micro_kernel, limits, extents) -> int``: bytes that a call takes from the workspace pool.
    """

    micro_kernel: Callable[[Mapping[str, Any]], AnyMicroKernel]
    allows: Callable[..., bool]
    workspace_bytes: Callable[..., int]


@dataclass(frozen=True)
class SmallSpace(CpuSpace):
    """Micro-kernels of a form that are few enough to be listed from the beginning.

    Attributes
    ----------
    seeds : callable
        ``(problem, limits) -> list of micro-kernels`` to begin with.
    others : callable
        As `seeds`: all the others that are not a neighbour of one.
    neighbours : callable
        ``(problem, micro_kernel, limits) -> list of micro-kernels`` one step away along the other axes.
    """

    seeds: Callable[..., list[Any]]
    others: Callable[..., list[Any]]
    neighbours: Callable[..., list[Any]]


SMALL_SPACES: dict[str, SmallSpace] = {
    ProductProblem.form: SmallSpace(
        ProductKernel.from_json,
        products.allows,
        products.product_workspace_bytes,
        products.seeds,
        products.tiles,
        products.neighbours,
    ),
    RowProblem.form: SmallSpace(
        RowKernel.from_json, rows.allows, rows.row_workspace_bytes, rows.seeds, rows.around, rows.neighbours
    ),
    DepthwiseProblem.form: SmallSpace(
        DepthwiseKernel.from_json,
        depthwise.allows,
        depthwise.depthwise_workspace_bytes,
        depthwise.seeds,
        depthwise.around,
        depthwise.neighbours,
    ),
    AttentionProblem.form: SmallSpace(
        AttentionKernel.from_json,
        attention.allows,
        attention.attention_workspace_bytes,
        attention.seeds,
        attention.around,
        attention.neighbours,
    ),
}
CPU_SPACES: dict[str, CpuSpace] = {
    Problem.form: CpuSpace(MicroKernel.from_json, axes.allows, axes.workspace_bytes),
    **SMALL_SPACES,
}


def cpu_micro_kernel(data: Mapping[str, Any]) -> AnyMicroKernel:
    """Read what the ``to_json`` of any micro-kernel for CPUs returns.

    Raises
    ------
    KeyError, TypeError, ValueError
        The data describe no micro-kernel.
    """
    return CPU_SPACES[form_named(data)].micro_kernel(data)
