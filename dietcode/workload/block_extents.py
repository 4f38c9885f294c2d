"""What the extents of a block's indices must agree on."""

from __future__ import annotations

from collections.abc import Mapping

from dietcode.errors import SpecError
from dietcode.workload.attention import MAX_HEAD, plan_attention
from dietcode.workload.block import BlockNode
from dietcode.workload.block_forms import GRAPH, OUTPUTS
from dietcode.workload.block_graph import BlockGraph
from dietcode.workload.operators import MAX_GATES
from dietcode.workload.quotient import Dim
from dietcode.workload.text import clip, field_path


def check_block_extents(graph: BlockGraph, tensors: Mapping[str, str], dims: Mapping[str, Dim]) -> None:
    """Refuse slices past an extent, other extents under a new label, and what is not fixed but has to be.

    Parameters
    ----------
    tensors : mapping of str to str
        The indices of each tensor.
    dims : mapping of str to Dim
        The extent of each index.

    Raises
    ------
    SpecError
        With the path of the field that does not fit.
    """
    if graph.form == "attention":
        _check_heads(graph, dims)
    for number, output in enumerate(graph.outputs):
        if output in graph.into:
            path = field_path((*OUTPUTS.split("."), number, output, "into"))
            _check_same(path, tensors[graph.into[output][0]][1:], graph.columns, dims)
    for name, node in graph.nodes.items():
        if node.operator == "slice":
            _check_slice(name, node, dims)
        elif node.operator == "rotate":
            _check_rotated(name, node, dims)
        elif node.operator == "relabel":
            _check_relabelled(name, node, tensors[str(node.operands[0])], dims)


def _check_slice(name: str, node: BlockNode, dims: Mapping[str, Dim]) -> None:
    axis, at = node.attribute("axis"), node.attribute("at")
    extent = dims[axis].constant_value() if dims[axis].is_constant else 0
    if not 1 <= extent <= MAX_GATES:
        allowed = f"1 to {MAX_GATES}, an index that slices take apart"
        raise SpecError(f"dims.{axis}", f"given {clip(str(dims[axis]))}; allowed: {allowed}")
    if at >= extent:
        path = field_path((*GRAPH, name, "at"))
        raise SpecError(path, f"given {at}; allowed: 0 to {extent - 1}, positions along {axis}")


def _check_rotated(name: str, node: BlockNode, dims: Mapping[str, Dim]) -> None:
    axis, by = node.attribute("axis"), node.attribute("by")
    if not dims[axis].is_constant:
        problem = f"given {clip(str(dims[axis]))}; allowed: a number, for {name} rotates along it"
        raise SpecError(f"dims.{axis}", problem)
    extent, within = dims[axis].constant_value(), node.attribute("within")
    if within is not None:
        if within > extent:
            allowed = f"2 to {extent}, the extent of {axis}"
            raise SpecError(field_path((*GRAPH, name, "within")), f"given {within}; allowed: {allowed}")
        extent = within
    if by >= extent:
        allowed = f"1 to {extent - 1}" if extent > 1 else f"an axis of more than one element than {axis}"
        raise SpecError(field_path((*GRAPH, name, "by")), f"given {by}; allowed: {allowed}")


def _check_relabelled(name: str, node: BlockNode, own: str, dims: Mapping[str, Dim]) -> None:
    _check_same(field_path((*GRAPH, name, "dims")), node.attribute("dims"), own, dims)


def _check_same(path: str, some: str, others: str, dims: Mapping[str, Dim]) -> None:
    for new, old in zip(some, others, strict=True):
        if str(dims[new]) != str(dims[old]):
            problem = f"{new} is {dims[new]} and {old} is {dims[old]}; allowed: the same extents"
            raise SpecError(path, problem)


def _check_heads(graph: BlockGraph, dims: Mapping[str, Dim]) -> None:
    plan = plan_attention(graph.nodes, graph.indices, graph.outputs)
    for index in (plan.depth, plan.width):
        if not dims[index].is_constant or dims[index].constant_value() > MAX_HEAD:
            allowed = f"a number up to {MAX_HEAD}, for it is the last index of a head"
            raise SpecError(f"dims.{index}", f"given {clip(str(dims[index]))}; allowed: {allowed}")
