"""What follows from a block: the order of its nodes, the indices of each, and its rows and columns.

Everything that a block computes lies on one grid of rows and columns. A value has some of the row indices,
and all of the column indices or none: ``[m, n]``, ``[n]``, ``[m]`` or a number. Reductions are along a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dietcode.errors import SpecError
from dietcode.workload.operators import OPERATORS
from dietcode.workload.text import clip, field_path, suggest

if TYPE_CHECKING:  # needs pydantic
    from dietcode.workload.block import BlockNode, BlockSpec

_GRAPH = ("op", "block", "graph")
_OUTPUTS = "op.block.outputs"


@dataclass(frozen=True)
class BlockGraph:
    """A block whose parts fit together.

    Attributes
    ----------
    nodes : dict of str to BlockNode
        Each after its operands; nodes that no output needs are left out.
    indices : dict of str to str
        Of every tensor and node, outer first.
    outputs : tuple of str
    rows, columns : str
        The indices of the grid, outer first. Reductions are over all of `columns`.
    """

    nodes: Mapping[str, BlockNode]
    indices: Mapping[str, str]
    outputs: tuple[str, ...]
    rows: str
    columns: str

    @classmethod
    def of(cls, block: BlockSpec, tensors: Mapping[str, str]) -> BlockGraph:
        """Return what follows from a block and the indices of its tensors.

        Raises
        ------
        SpecError
            With the path of the field that does not fit.
        """
        order = _order(block, tensors)
        indices = dict(tensors)
        for name in order:
            indices[name] = _indices_of(name, block.graph[name], indices)
        needed = _needed(block, order)
        nodes = {name: block.graph[name] for name in order if name in needed}
        _check_all_needed(block, tensors, needed)
        rows, columns = _grid(nodes, indices, tensors)
        for output in block.outputs:
            own = indices[output]
            if own not in (rows, rows + columns) or not own:
                problem = f"{output} has the indices {own or 'none'}; allowed: {_grids(rows, columns)}"
                raise SpecError(_OUTPUTS, problem)
        return cls(nodes, indices, tuple(block.outputs), rows, columns)


def _grids(rows: str, columns: str) -> str:
    return " or ".join(indices for indices in (rows + columns, rows) if indices)


def _order(block: BlockSpec, tensors: Mapping[str, str]) -> list[str]:
    """Return the names of the nodes, each after its operands."""
    names = (*tensors, *block.graph)
    for name, node in block.graph.items():
        for number, operand in enumerate(node.operands):
            if isinstance(operand, str) and operand not in names:
                allowed = f"a tensor or a node: {', '.join(names)}{suggest(operand, names)}"
                path = field_path((*_GRAPH, name, node.operator, number))
                raise SpecError(path, f"given {clip(operand)}; allowed: {allowed}")
    if not block.outputs:
        raise SpecError(_OUTPUTS, "given none; allowed: at least one node")
    for number, output in enumerate(block.outputs):
        if output not in block.graph:
            allowed = f"a node: {', '.join(block.graph)}{suggest(output, block.graph)}"
            raise SpecError(f"{_OUTPUTS}.{number}", f"given {clip(output)}; allowed: {allowed}")
        if output in block.outputs[:number]:
            raise SpecError(f"{_OUTPUTS}.{number}", f"{output} is given twice; allowed: once")
    order: list[str] = []
    left = sorted(block.graph)  # the order of the mapping does not matter
    while left:
        ready = [n for n in left if all(o in order or o not in block.graph for o in block.graph[n].operands)]
        if not ready:
            raise SpecError(field_path((*_GRAPH, left[0])), "depends on itself; allowed: no circle of nodes")
        order.append(ready[0])
        left.remove(ready[0])
    return order


def _needed(block: BlockSpec, order: list[str]) -> set[str]:
    needed: set[Any] = set(block.outputs)
    for name in reversed(order):
        if name in needed:
            needed.update(block.graph[name].operands)
    return needed


def _check_all_needed(block: BlockSpec, tensors: Mapping[str, str], needed: set[str]) -> None:
    for name in block.graph:
        if name not in needed:
            raise SpecError(field_path((*_GRAPH, name)), "no output needs it; use it, or leave it out")
    for name in tensors:
        if name not in needed:
            raise SpecError(field_path(["tensors", name]), "no node reads it; use it, or leave it out")


def _indices_of(name: str, node: BlockNode, indices: Mapping[str, str]) -> str:
    """Return the indices of a node's result."""
    path = (*_GRAPH, name)
    own = [indices[operand] for operand in node.operands if isinstance(operand, str)]
    if not own:
        raise SpecError(
            field_path((*path, node.operator)), "given numbers alone; allowed: a tensor or a node"
        )
    result = max(own, key=len)
    for other in own:
        if not _is_part(other, result):
            allowed = "one operand with all indices, the others with some of them in its order"
            problem = f"given operands of {', '.join(one or 'no index' for one in own)}; allowed: {allowed}"
            raise SpecError(field_path((*path, node.operator)), problem)
    operator = OPERATORS[node.operator]
    axis, causal = node.attribute("axis"), node.attribute("causal")
    if operator.along_row:
        first = indices[node.operands[0]] if isinstance(node.operands[0], str) else ""
        if first != result:
            problem = f"its first operand has the indices {first or 'none'}; allowed: all of {result}"
            raise SpecError(field_path((*path, node.operator)), problem)
        if not result.endswith(axis):
            problem = f"given {clip(axis)}; allowed: the last index of {result}, or several last ones"
            raise SpecError(field_path((*path, "axis")), problem)
    if causal is not None and (causal not in result or causal in axis or len(axis) != 1):
        problem = f"given {clip(causal)}; allowed: another index of {result} than {axis}, which has to be one"
        raise SpecError(field_path((*path, "causal")), problem)
    return result[: -len(axis)] if operator.reduces else result


def _is_part(indices: str, whole: str) -> bool:
    rest = iter(whole)
    return all(index in rest for index in indices)


def _grid(
    nodes: Mapping[str, BlockNode], indices: Mapping[str, str], tensors: Iterable[str]
) -> tuple[str, str]:
    """Return the row and the column indices."""
    whole = max((indices[name] for name in (*tensors, *nodes)), key=len)
    axes = {name: node.attribute("axis") for name, node in nodes.items() if node.attribute("axis")}
    columns = next(iter(axes.values()), None)
    for name, axis in axes.items():
        if axis != columns:
            path = field_path((*_GRAPH, name, "axis"))
            raise SpecError(path, f"given {clip(axis)}; allowed: {columns}, as other nodes have it")
    if columns is None:
        columns = _common_end(whole, [indices[name] for name in (*tensors, *nodes)])
    rows = whole[: -len(columns)]
    for name in (*tensors, *nodes):
        own = indices[name]
        fits = own.endswith(columns) or not set(own) & set(columns)
        if not fits or not _is_part(own.removesuffix(columns), rows):
            path = field_path(["tensors", name, "dims"] if name in tensors else (*_GRAPH, name))
            allowed = f"indices of {rows or 'no row'} in this order, then {columns} or none of it"
            raise SpecError(path, f"given {clip(own)}; allowed: {allowed}")
    return rows, columns


def _common_end(whole: str, others: Iterable[str]) -> str:
    """Return the longest end of `whole`, one index at least, of which the others have all or nothing."""
    for length in range(len(whole), 1, -1):
        end = whole[-length:]
        if all(own.endswith(end) or not set(own) & set(end) for own in others):
            return end
    return whole[-1:]
