"""The forms of blocks: kinds of graphs with kernels of their own, and the grid that each lies on.

A grid has rows and columns. A value has some of the row indices, and all of the column indices or none:
``[m, n]``, ``[n]``, ``[m]`` or a number; without a product it may have a part of the column indices.

- rows: pointwise functions and reductions along a row;
- products: products of two tensors over the same rows, added up, and pointwise functions of the sums;
- attention: a product, a softmax of it, and a product of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dietcode.errors import SpecError
from dietcode.workload.attention import is_attention, plan_attention
from dietcode.workload.operators import OPERATORS
from dietcode.workload.pooling import POOLINGS, PoolAxis, pool_axes
from dietcode.workload.text import clip, field_path

if TYPE_CHECKING:  # needs pydantic
    from dietcode.workload.block import BlockNode

GRAPH = ("op", "block", "graph")
OUTPUTS = "op.block.outputs"


@dataclass(frozen=True)
class GraphParts:
    """A graph whose operands and indices are known.

    Attributes
    ----------
    nodes : mapping of str to BlockNode
        Each after its operands.
    indices : mapping of str to str
        Of every tensor and node.
    tensors, outputs : tuple of str
    into : mapping of str to (str, str)
        Of each output that is written to rows of a table, the table and the tensor of positions.
    """

    nodes: Mapping[str, BlockNode]
    indices: Mapping[str, str]
    tensors: tuple[str, ...]
    outputs: tuple[str, ...]
    into: Mapping[str, tuple[str, str]]

    def path(self, name: str) -> str:
        """Return the path of the field that gives a tensor's or node's indices."""
        return field_path(["tensors", name, "dims"] if name in self.tensors else (*GRAPH, name))

    def pool_axes(self, name: str) -> tuple[PoolAxis, ...]:
        """Return the axes that the window of a node slides over."""
        return pool_axes(self.nodes[name], self.indices[str(self.nodes[name].operands[0])])


def form_of(nodes: Mapping[str, BlockNode]) -> str:
    """Return the form of a graph, a key of `BLOCK_FORMS`."""
    if is_attention(nodes):
        return "attention"
    return "products" if any(OPERATORS[node.operator].is_product for node in nodes.values()) else "rows"


def is_part(indices: str, whole: str) -> bool:
    """Return whether `indices` are some of `whole`, in its order."""
    rest = iter(whole)
    return all(index in rest for index in indices)


def _row_grid(graph: GraphParts) -> tuple[str, str]:
    """Return the row and the column indices of a graph without products."""
    nodes, indices = graph.nodes, graph.indices
    transposed = [indices[name] for name in _operands_of(graph, ("transpose",))]
    elsewhere = _tables(graph) | _operands_of(graph, (*POOLINGS, "transpose", "slice"))
    _check_rotated_values(graph)
    names = [name for name in (*graph.tensors, *nodes) if name not in elsewhere]
    whole = max((indices[name] for name in names), key=len)
    axes = {
        name: node.attribute("axis") for name, node in nodes.items() if OPERATORS[node.operator].along_row
    }
    columns = next(iter(axes.values()), None)
    for name, axis in axes.items():
        if axis != columns:
            path = field_path((*GRAPH, name, "axis"))
            raise SpecError(path, f"given {clip(axis)}; allowed: {columns}, as other nodes have it")
    for name, node in nodes.items():
        if node.operator == "relabel":
            problem = f"given {node.operator}; allowed: only in a block with a product"
            raise SpecError(field_path((*GRAPH, name)), problem)
    if columns is None:
        slid = {one.output for n in nodes if nodes[n].operator in POOLINGS for one in graph.pool_axes(n)}
        most = next((at for at, index in enumerate(reversed(whole)) if index in slid), len(whole))
        sliced = [indices[str(n.operands[0])] for n in nodes.values() if n.operator == "slice"]
        anywhere = transposed + [own for own in sliced if whole[-1:] in own]
        columns = _common_end(whole, [indices[name] for name in names], most, anywhere)
    rows = whole.replace(columns, "")
    for name in names:
        own = indices[name]
        run = "".join(index for index in columns if index in own)
        if not (run in own and run in columns) or not is_part(own, whole):
            allowed = f"indices of {whole} in this order, those of {columns} next to each other in both"
            raise SpecError(graph.path(name), f"given {clip(own)}; allowed: {allowed}")
    for output in graph.outputs:
        own = indices[output]
        if own not in (rows, whole) or not own:
            allowed = " or ".join(grid for grid in (whole, rows) if grid)
            raise SpecError(OUTPUTS, f"{output} has the indices {own or 'none'}; allowed: {allowed}")
    _check_sliced(graph, columns + inner_rows([indices[name] for name in names], columns))
    if whole.endswith(columns):
        _check_gathered(graph, columns)
    else:
        _check_across(graph, whole, columns)
    _check_transposed(graph, rows, columns, bool(axes))
    return rows, columns


def _check_gathered(graph: GraphParts, columns: str) -> None:
    """Refuse positions that differ along the columns, where vectors lie along these."""
    for name, node in graph.nodes.items():
        if node.operator == "gather" and set(graph.indices[str(node.operands[1])]) & set(columns):
            given = f"given {node.operands[1]} of {graph.indices[str(node.operands[1])]}"
            problem = f"{given}; allowed: positions without {columns}, the columns"
            raise SpecError(field_path((*GRAPH, name, "gather", 1)), problem)


def _check_sliced(graph: GraphParts, inner: str) -> None:
    """Refuse slices of tensors whose vectors would not lie next to each other."""
    for name, node in graph.nodes.items():
        if node.operator == "slice":
            axis, own = node.attribute("axis"), graph.indices[str(node.operands[0])]
            before = own.partition(axis)[0]
            if set(before) & set(inner):
                problem = f"given {axis} of {own}; allowed: an index before {inner}, the columns"
                raise SpecError(field_path((*GRAPH, name, "axis")), problem)


def _check_rotated_values(graph: GraphParts) -> None:
    """Refuse rotations of values that depend on where a column is, which their operands do not tell."""
    for name, rotation in graph.nodes.items():
        if rotation.operator != "rotate":
            continue
        axis, path = rotation.attribute("axis"), field_path((*GRAPH, name, "rotate", 0))
        waiting = [rotation.operands[0]]
        while waiting:
            operand = waiting.pop()
            node = graph.nodes.get(str(operand))
            if node is None or axis not in graph.indices[str(operand)]:
                continue
            turns = node.operator == "transpose" and not graph.indices[str(node.operands[0])].endswith(axis)
            if node.operator in ("rotate", "hide", *POOLINGS) or node.attribute("causal") or turns:
                word = "a causal mask" if node.attribute("causal") else node.operator
                allowed = f"no window, rotation or hidden column in it, and transpositions that end in {axis}"
                problem = f"given {clip(rotation.operands[0])}, which has {word} in it; allowed: {allowed}"
                raise SpecError(path, problem)
            waiting += node.operands


def _check_transposed(graph: GraphParts, rows: str, columns: str, reduces: bool) -> None:
    """Refuse transpositions from vectors of two kinds, and from columns that are apart."""
    turned: dict[str, str] = {}
    for name, node in graph.nodes.items():
        if node.operator != "transpose":
            continue
        own = graph.indices[str(node.operands[0])]
        if own.endswith(columns):
            continue
        path, given = field_path((*GRAPH, name)), f"given {own} as {graph.indices[name]}"
        if reduces or columns not in own:
            allowed = f"indices that end in {columns}, the columns of the block"
            raise SpecError(path, f"{given}; allowed: {allowed}")
        turned[name] = own
        if not turned_rows(turned.values(), rows, columns):
            raise SpecError(path, f"{given}; allowed: one that ends as {next(iter(turned.values()))} does")


def turned_rows(transposed: Iterable[str], rows: str, columns: str) -> str:
    """Return the row indices that tensors end in whose columns are not the last ones; none without such.

    Parameters
    ----------
    transposed : iterable of str
        Indices of the tensors that are read in another order.
    """
    every = [own for own in transposed if not own.endswith(columns)]
    for length in range(len(rows), 0, -1):
        end = every[0][-length:] if every else ""
        if end and end in rows and all(own.endswith(end) for own in every):
            return end
    return ""


def _check_across(graph: GraphParts, whole: str, columns: str) -> None:
    """Refuse what needs columns that are the last indices."""
    for name, node in graph.nodes.items():
        if node.operator in (*POOLINGS, "transpose", "rotate") or node.attribute("causal"):
            given = "causal" if node.attribute("causal") else node.operator
            ruled_out = "no window, causal mask, rotation or transposition"
            allowed = f"{ruled_out} where {columns} are not the last of {whole}"
            raise SpecError(field_path((*GRAPH, name)), f"given {given}; allowed: {allowed}")


def inner_rows(indices: Iterable[str], columns: str) -> str:
    """Return the last row indices of a graph whose columns lie before them, those that tensors have together.

    Parameters
    ----------
    indices : iterable of str
        Of each tensor and node.
    columns : str
        What reductions go along.
    """
    every = list(indices)
    after = max((own.partition(columns)[2] for own in every if columns in own), key=len, default="")
    return _common_end(after, [own for own in every if set(own) & set(after)], len(after)) if after else ""


def _operands_of(graph: GraphParts, operators: Iterable[str]) -> set[str]:
    """Return the tensors that operators read from memory; refuses operands that are no tensors."""
    found = set()
    for name, node in graph.nodes.items():
        if node.operator in operators:
            if node.operands[0] not in graph.tensors:
                path = field_path((*GRAPH, name, node.operator, 0))
                raise SpecError(path, f"given {clip(node.operands[0])}; allowed: a tensor")
            found.add(str(node.operands[0]))
    return found


def _tables(graph: GraphParts) -> set[str]:
    """Return the tensors that rows are gathered from or written to; refuses operands that are no tensors."""
    found = {table for table, _ in graph.into.values()}
    for name, node in graph.nodes.items():
        if node.operator == "gather":
            for number, operand in enumerate(node.operands):
                if operand not in graph.tensors:
                    path = field_path((*GRAPH, name, node.operator, number))
                    raise SpecError(path, f"given {clip(operand)}; allowed: a tensor")
            found.add(str(node.operands[0]))
    return found


def _common_end(whole: str, others: Iterable[str], most: int, anywhere: Iterable[str] = ()) -> str:
    """Return the longest end of `whole`, 1 to `most` indices, of which the others have all or nothing.

    Those of `anywhere` have it at any place.
    """
    for length in range(most, 1, -1):
        end = whole[-length:]
        is_end = all(own.endswith(end) or not set(own) & set(end) for own in others)
        if is_end and all(end in own for own in anywhere):
            return end
    return whole[-1:]


def _product_grid(graph: GraphParts) -> tuple[str, str]:
    """Return the row and the column indices of a graph with products.

    Rows are indices of the first operand of each product or the second, columns those of the other one; an
    index that slices take apart is neither.
    """
    nodes, indices = graph.nodes, graph.indices
    gates = {node.attribute("axis") for node in nodes.values() if node.operator == "slice"}
    for name, node in nodes.items():
        if node.operator == "relabel" and node.operands[0] not in graph.tensors:
            path = field_path((*GRAPH, name, node.operator, 0))
            allowed = "a tensor, which is read under other indices"
            raise SpecError(path, f"given {clip(node.operands[0])}; allowed: {allowed}")
        if node.operator in (*POOLINGS, "rotate", "hide", "transpose"):
            problem = f"given {node.operator}; allowed: only in a block without a product"
            raise SpecError(field_path((*GRAPH, name)), problem)
    own_columns: dict[str, set[str]] = {}
    for name, node in nodes.items():
        if OPERATORS[node.operator].is_product:
            own_columns[name] = _columns_of(graph, name, node, gates) - gates
    first = next(iter(own_columns))
    inside, columns = set(indices[first]) - gates, own_columns[first]
    for name, found in own_columns.items():
        if found != columns or set(indices[name]) - gates != inside:
            given = f"given {indices[name]}, columns {''.join(sorted(found))}"
            allowed = f"the rows and columns of {first}, {indices[first]}; others in a block of their own"
            raise SpecError(field_path((*GRAPH, name, "dims")), f"{given}; allowed: {allowed}")
    # A number for each row may be the first output, or the only one.
    longest = max((indices[output] for output in graph.outputs), key=len)
    order = longest if columns & set(longest) else longest + indices[first]
    rows = "".join(k for k in longest if k not in columns | gates)
    end = "".join(k for k in order if k in columns)
    reduced = after_reductions(nodes)
    _check_reductions(graph, reduced, rows, end)
    for output in graph.outputs:
        own = indices[output]
        fits = set(own) == inside and own.endswith(end) and bool(end)
        if not fits and not (output in reduced and own in (rows, rows + end) and own):
            allowed = f"all of {rows} in any order, then {end or 'the columns'}"
            raise SpecError(OUTPUTS, f"{output} has the indices {own or 'none'}; allowed: {allowed}")
    tables = _tables(graph)
    operands = {
        o
        for node in nodes.values()
        if OPERATORS[node.operator].is_product or node.operator == "relabel"
        for o in node.operands
        if isinstance(o, str)
    }
    for name in (*graph.tensors, *nodes):
        own = "".join(index for index in indices[name] if index not in gates)
        fits = indices[name].endswith(end) or not set(own) & columns
        elsewhere = operands | tables
        if name not in elsewhere and name not in own_columns and not (fits and set(own) <= inside):
            allowed = f"some of {rows}, then {end} or none of it"
            raise SpecError(graph.path(name), f"given {clip(indices[name])}; allowed: {allowed}")
    return rows, end


def after_reductions(nodes: Mapping[str, BlockNode]) -> set[str]:
    """Return the nodes that depend on a reduction along rows, reductions themselves among them."""
    found: set[str] = set()
    for name, node in nodes.items():
        if OPERATORS[node.operator].along_row or found & set(node.operands):
            found.add(name)
    return found


def _check_reductions(graph: GraphParts, reduced: set[str], rows: str, columns: str) -> None:
    """Refuse reductions over anything but the columns, and what cannot follow them."""
    for name in reduced:
        node, path = graph.nodes[name], (*GRAPH, name)
        if OPERATORS[node.operator].is_product or node.operator in ("slice", "relabel"):
            problem = f"given {node.operator} after a reduction; allowed: functions along the row"
            raise SpecError(field_path(path), problem)
        if OPERATORS[node.operator].along_row and node.attribute("axis") != columns:
            problem = f"given {clip(node.attribute('axis'))}; allowed: {columns}, the columns of the products"
            raise SpecError(field_path((*path, "axis")), problem)
        for operand in node.operands:
            own = graph.indices[operand] if isinstance(operand, str) else ""
            if not is_part(own, rows + columns):
                problem = f"{operand} has the indices {own}; allowed: some of {rows + columns}, in this order"
                raise SpecError(field_path((*path, node.operator)), problem)


def _columns_of(graph: GraphParts, name: str, node: BlockNode, gates: set[str]) -> set[str]:
    """Return the indices of a product that only the operand with the last of them has; checks it."""
    path = (*GRAPH, name, node.operator)
    dims = graph.indices[name]
    for number, operand in enumerate(node.operands):
        gathers = operand in graph.nodes and graph.nodes[str(operand)].operator == "gather"
        if operand not in graph.tensors and not gathers:
            allowed = "a tensor or a gather; a product of what the block computes is a block of its own"
            raise SpecError(field_path((*path, number)), f"given {clip(operand)}; allowed: {allowed}")
    first, second = (set(graph.indices[str(operand)]) for operand in node.operands)
    shared = [index for index in dims if index in first and index in second]
    if shared:
        allowed = "indices of one operand each; an einsum of its own takes a batch index"
        raise SpecError(
            field_path((*path[:-1], "dims")), f"{shared[0]} is of both operands; allowed: {allowed}"
        )
    if not dims or not set(dims) & first or not set(dims) & second or not first & second:
        allowed = "an index of each operand at least, and one that both have, which is summed over"
        raise SpecError(field_path((*path[:-1], "dims")), f"given {clip(dims)}; allowed: {allowed}")
    alone = (first ^ second) - set(dims)
    if alone:
        problem = f"{sorted(alone)[0]} is of one operand and left out; allowed: indices of both"
        raise SpecError(field_path((*path[:-1], "dims")), problem)
    number = 0 if dims[-1] in first else 1
    last = str(node.operands[number])
    if last in graph.nodes:
        allowed = f"a tensor, since it has the last index of {dims}"
        raise SpecError(field_path((*path, number)), f"given {clip(last)}; allowed: {allowed}")
    owner, other = (first, second) if dims[-1] in first else (second, first)
    if set(dims) & other & gates:
        problem = f"given {clip(dims)}; allowed: a sliced index beside {dims[-1]}, in its tensor"
        raise SpecError(field_path((*path[:-1], "dims")), problem)
    return set(dims) & owner


def _attention_grid(graph: GraphParts) -> tuple[str, str]:
    """Return the indices of the result but the last one, and the last one."""
    plan_attention(graph.nodes, graph.indices, graph.outputs)
    (output,) = graph.outputs
    return graph.indices[output][:-1], graph.indices[output][-1]


BLOCK_FORMS: dict[str, Callable[[GraphParts], tuple[str, str]]] = {
    "rows": _row_grid,
    "products": _product_grid,
    "attention": _attention_grid,
}
"""From the form to what returns the row and the column indices, or raises SpecError with the field's path."""
