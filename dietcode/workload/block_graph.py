"""What follows from a block: the order of its nodes, the indices of each, its form, its rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dietcode.errors import SpecError
from dietcode.workload.block_forms import (
    BLOCK_FORMS,
    GRAPH,
    OUTPUTS,
    GraphParts,
    after_reductions,
    form_of,
    inner_rows,
    is_part,
)
from dietcode.workload.expr import DimExpr
from dietcode.workload.operators import INTEGERS, OPERATORS
from dietcode.workload.pooling import POOLINGS, PoolAxis, pool_axes
from dietcode.workload.quotient import Dim, window_positions
from dietcode.workload.text import clip, field_path, suggest

if TYPE_CHECKING:  # needs pydantic
    from dietcode.workload.block import BlockNode, BlockSpec


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
        The indices of the grid, outer first: those of a row and of the elements along it.
    form : str
        Of the kernels that compute it: a key of `dietcode.workload.block_forms.BLOCK_FORMS`.
    into : dict of str to (str, str)
        Of each output that is written to rows of a table, the table and the tensor of positions.
    """

    nodes: Mapping[str, BlockNode]
    indices: Mapping[str, str]
    outputs: tuple[str, ...]
    rows: str
    columns: str
    form: str
    into: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, block: BlockSpec, tensors: Mapping[str, str]) -> BlockGraph:
        """Return what follows from a block and the indices of its tensors.

        Raises
        ------
        SpecError
            With the path of the field that does not fit.
        """
        order = _order(block, tensors)
        _check_integers(block, tensors)
        indices = dict(tensors)
        for name in order:
            indices[name] = _indices_of(name, block.graph[name], indices)
        needed = _needed(block, order)
        nodes = {name: block.graph[name] for name in order if name in needed}
        _check_all_needed(block, tensors, needed)
        into = {one.name: (one.into, one.at) for one in block.outputs if one.into}
        parts = GraphParts(nodes, indices, tuple(tensors), block.names, into)
        form = form_of(nodes)
        rows, columns = BLOCK_FORMS[form](parts)
        _check_into(parts, form, columns)
        return cls(nodes, indices, block.names, rows, columns, form, into)

    @property
    def inner(self) -> str:
        """The row indices that follow the columns in tensors, whose vectors lie across rows; mostly none."""
        turned = {node.operands[0] for node in self.nodes.values() if node.operator == "transpose"}
        every = [own for name, own in self.indices.items() if name not in turned]
        return inner_rows(every, self.columns) if self.form == "rows" else ""

    def stored_as(self, output: str) -> str:
        """Return whose indices an output has as callers see it: its own, or the table's that it goes to."""
        return self.into[output][0] if output in self.into else output

    @property
    def pool_axes(self) -> dict[str, tuple[PoolAxis, ...]]:
        """The axes that the window of each node that pools slides over."""
        return {
            name: pool_axes(node, self.indices[str(node.operands[0])])
            for name, node in self.nodes.items()
            if node.operator in POOLINGS
        }

    def derived(self, dims: Mapping[str, DimExpr]) -> dict[str, Dim]:
        """Return the extents of indices that specs do not give: positions of windows.

        Raises
        ------
        SpecError
            Numbers in an extent exceed the limits of dimensions, or two windows give other extents.
        """
        found: dict[str, Dim] = {}
        for name, axes in self.pool_axes.items():
            for one in axes:
                kernel = DimExpr.parse(one.window, field_path((*GRAPH, name, "window")))
                field, padding = f"dims.{one.axis}", one.padding + one.padding_after
                dim = window_positions(dims[one.axis], kernel, one.stride, 1, padding, field)
                if str(found.setdefault(one.output, dim)) != str(dim):
                    other = f"{found[one.output]} elsewhere; allowed: the same"
                    problem = f"{one.output} is {dim} here and {other}"
                    raise SpecError(field_path((*GRAPH, name, "dims")), problem)
        return found


def _check_into(parts: GraphParts, form: str, columns: str) -> None:
    """Refuse tables and positions that do not fit an output that is written to rows."""
    seen: set[str] = set()
    for output, (table, at) in parts.into.items():
        path = field_path((*OUTPUTS.split("."), parts.outputs.index(output), output))
        own = parts.indices[output]
        if form == "attention" or not own.endswith(columns):
            problem = (
                f"{output} has the indices {own or 'none'}; allowed: rows and {columns}, of no attention"
            )
            raise SpecError(path, problem)
        later = after_reductions(parts.nodes)
        if form == "products" and any(output in parts.nodes[name].operands for name in later):
            problem = f"{output} is read after a reduction; allowed: outputs that nothing of it reads"
            raise SpecError(path, problem)
        rows, held = own.removesuffix(columns), parts.indices[table]
        if len(held) != 1 + len(columns) or held[0] in own or table in seen:
            allowed = f"an index of its own, then {columns} or others of these extents, and each table once"
            raise SpecError(f"{path}.into", f"{table} has the indices {held}; allowed: {allowed}")
        if parts.indices[at] != rows:
            given = f"{at} has the indices {parts.indices[at]}"
            raise SpecError(f"{path}.at", f"{given}; allowed: {rows}, a position for each row of {output}")
        seen.add(table)


def _order(block: BlockSpec, tensors: Mapping[str, str]) -> list[str]:
    """Return the names of the nodes, each after its operands."""
    names = (*tensors, *block.graph)
    for name, node in block.graph.items():
        for number, operand in enumerate(node.operands):
            if isinstance(operand, str) and operand not in names:
                allowed = f"a tensor or a node: {', '.join(names)}{suggest(operand, names)}"
                path = field_path((*GRAPH, name, node.operator, number))
                raise SpecError(path, f"given {clip(operand)}; allowed: {allowed}")
    if not block.outputs:
        raise SpecError(OUTPUTS, "given none; allowed: at least one node")
    for number, output in enumerate(block.names):
        if output not in block.graph:
            allowed = f"a node: {', '.join(block.graph)}{suggest(output, block.graph)}"
            raise SpecError(f"{OUTPUTS}.{number}", f"given {clip(output)}; allowed: {allowed}")
        if output in block.names[:number]:
            raise SpecError(f"{OUTPUTS}.{number}", f"{output} is given twice; allowed: once")
        one = block.outputs[number]
        for word, name in (("into", one.into), ("at", one.at)):
            if name and name not in tensors:
                path = field_path((*OUTPUTS.split("."), number, output, word))
                raise SpecError(path, f"given {clip(name)}; allowed: a tensor: {', '.join(tensors)}")
    order: list[str] = []
    left = sorted(block.graph)  # the order of the mapping does not matter
    while left:
        ready = [n for n in left if all(o in order or o not in block.graph for o in block.graph[n].operands)]
        if not ready:
            raise SpecError(field_path((*GRAPH, left[0])), "depends on itself; allowed: no circle of nodes")
        order.append(ready[0])
        left.remove(ready[0])
    return order


def _check_integers(block: BlockSpec, tensors: Mapping[str, str]) -> None:
    """Refuse positions and lengths that are no tensors, and other operators that read them."""
    integers = {one.at for one in block.outputs if one.at}
    for name, node in block.graph.items():
        if node.operator in INTEGERS:
            if isinstance(node.operands[1], str) and node.operands[1] not in tensors:
                path = field_path((*GRAPH, name, node.operator, 1))
                raise SpecError(path, f"given {clip(node.operands[1])}; allowed: a tensor")
            integers.add(str(node.operands[1]))
    for name, node in block.graph.items():
        for number, operand in enumerate(node.operands):
            if operand in integers and not (node.operator in INTEGERS and number == 1):
                path = field_path((*GRAPH, name, node.operator, number))
                allowed = f"second operand of {' or '.join(INTEGERS)}"
                raise SpecError(path, f"{operand} holds positions or lengths; allowed: {allowed}")


def _needed(block: BlockSpec, order: list[str]) -> set[str]:
    needed: set[Any] = {name for one in block.outputs for name in (one.name, one.into, one.at)}
    for name in reversed(order):
        if name in needed:
            needed.update(block.graph[name].operands)
    return needed


def _check_all_needed(block: BlockSpec, tensors: Mapping[str, str], needed: set[str]) -> None:
    for name in block.graph:
        if name not in needed:
            raise SpecError(field_path((*GRAPH, name)), "no output needs it; use it, or leave it out")
    for name in tensors:
        if name not in needed:
            raise SpecError(field_path(["tensors", name]), "no node reads it; use it, or leave it out")


def _indices_of(name: str, node: BlockNode, indices: Mapping[str, str]) -> str:
    """Return the indices of a node's result."""
    path = (*GRAPH, name)
    own = [indices[operand] for operand in node.operands if isinstance(operand, str)]
    if not own:
        raise SpecError(
            field_path((*path, node.operator)), "given numbers alone; allowed: a tensor or a node"
        )
    operator = OPERATORS[node.operator]
    if node.operator in _INDICES_OF:
        return _INDICES_OF[node.operator](path, node, own)
    result = max(own, key=len)
    for other in own:
        if not is_part(other, result):
            allowed = "one operand with all indices, the others with some of them in its order"
            problem = f"given operands of {', '.join(one or 'no index' for one in own)}; allowed: {allowed}"
            raise SpecError(field_path((*path, node.operator)), problem)
    axis, causal = node.attribute("axis"), node.attribute("causal")
    if operator.along_row:
        first = indices[node.operands[0]] if isinstance(node.operands[0], str) else ""
        if first != result:
            problem = f"its first operand has the indices {first or 'none'}; allowed: all of {result}"
            raise SpecError(field_path((*path, node.operator)), problem)
        if axis not in result or (node.operator == "rotate" and not result.endswith(axis)):
            which = "the last index" if node.operator == "rotate" else "an index"
            problem = f"given {clip(axis)}; allowed: {which} of {result}, or several that follow each other"
            raise SpecError(field_path((*path, "axis")), problem)
    if causal is not None and (causal not in result or causal in axis or len(axis) != 1):
        problem = f"given {clip(causal)}; allowed: another index of {result} than {axis}, which has to be one"
        raise SpecError(field_path((*path, "causal")), problem)
    if node.operator == "hide" and len(own) != len(node.operands):
        raise SpecError(field_path((*path, node.operator, 1)), "given a number; allowed: a tensor of lengths")
    if node.operator == "hide" and axis in own[1]:
        problem = f"lengths of the indices {own[1]}; allowed: some of {result.removesuffix(axis) or 'none'}"
        raise SpecError(field_path((*path, node.operator, 1)), problem)
    return result.replace(axis, "") if operator.reduces else result


def _indices_of_rows(path: tuple[str, ...], node: BlockNode, own: list[str]) -> str:
    if len(own) != len(node.operands):
        raise SpecError(field_path((*path, node.operator)), "given a number; allowed: tensors")
    table, positions = own
    if len(table) < 2 or set(table[1:]) & set(positions):
        allowed = "a table of rows, and positions with other indices than a row has"
        problem = f"given {table or 'no index'} and {positions or 'none'}; allowed: {allowed}"
        raise SpecError(field_path((*path, node.operator)), problem)
    return positions + table[1:]


def _sliced(path: tuple[str, ...], node: BlockNode, own: list[str]) -> str:
    axis = node.attribute("axis")
    if axis not in own[0]:
        raise SpecError(field_path((*path, "axis")), f"given {clip(axis)}; allowed: an index of {own[0]}")
    return own[0].replace(axis, "")


def _pooled(path: tuple[str, ...], node: BlockNode, own: list[str]) -> str:
    try:
        pool_axes(node, own[0])
    except ValueError as error:
        raise SpecError(field_path(path), str(error)) from error
    return str(node.attribute("dims"))


def _relabelled(path: tuple[str, ...], node: BlockNode, own: list[str]) -> str:
    dims = str(node.attribute("dims"))
    if len(dims) != len(own[0]) or len(set(dims)) != len(dims):
        problem = f"given {clip(dims)}; allowed: {len(own[0])} indices, each once, for those of {own[0]}"
        raise SpecError(field_path((*path, "dims")), problem)
    return dims


def _transposed(path: tuple[str, ...], node: BlockNode, own: list[str]) -> str:
    dims = str(node.attribute("dims"))
    if sorted(dims) != sorted(own[0]):
        problem = f"given {clip(dims)}; allowed: the indices {own[0]} in another order"
        raise SpecError(field_path((*path, "dims")), problem)
    return dims


def _indices_of_product(path: tuple[str, ...], node: BlockNode, own: list[str]) -> str:
    dims = str(node.attribute("dims"))
    if len(own) != len(node.operands):
        raise SpecError(field_path((*path, node.operator)), "given a number; allowed: tensors or nodes")
    unknown = [index for index in dims if index not in own[0] + own[1]]
    if unknown or len(set(dims)) != len(dims):
        problem = f"given {clip(dims)}; allowed: indices of {own[0]} and {own[1]}, each once"
        raise SpecError(field_path((*path, "dims")), problem)
    return dims


_INDICES_OF: dict[str, Callable[[tuple[str, ...], BlockNode, list[str]], str]] = {
    "einsum": _indices_of_product,
    "gather": _indices_of_rows,
    "relabel": _relabelled,
    "slice": _sliced,
    "transpose": _transposed,
    **dict.fromkeys(POOLINGS, _pooled),
}
