"""The form of nodes all of whose children are leaves, where leaves are rows of constant tables."""

from __future__ import annotations

from dataclasses import dataclass

from dietcode.graph.extent import Extent
from dietcode.graph.graph import Graph, Node
from dietcode.graph.tensor_type import TensorType
from dietcode.models.grouping import constants_of
from dietcode.recursion.batching import ROWS
from dietcode.recursion.tables import lookup_of

LEAF = "leaf"  # and the number of a child: which row of a leaf's tables it is


@dataclass(frozen=True)
class RowTable:
    """What a value is for all numbers that there can be: each of its rows is a row of a constant table.

    Attributes
    ----------
    name : str
        Of the table.
    num_rows : int
        Of the table; where it is 1, all rows are that one.
    shape : tuple of Extent
        Of a row of the value.
    """

    name: str
    num_rows: int
    shape: tuple[Extent, ...]


def lowest_form(cell: Graph, leaf: Graph, ids: str) -> tuple[Graph, int] | None:
    """Return the cell whose children are leaves, and how many leaves there can be; None where that is open.

    States of children become rows of constant tables, and a row of zeros for a child that is not there, at
    the positions ``leaf0`` and so on.

    Parameters
    ----------
    cell, leaf : Graph
        Of rows.
    ids : str
        The input of positions that differ among leaves.
    """
    constants = constants_of(leaf)
    tables = [row_table(leaf, name, constants, ids) for name in leaf.outputs]
    known = [one for one in tables if one is not None]
    if len(known) < len(tables):
        return None
    num_leaves = min((one.num_rows for one in known if one.num_rows > 1), default=1)
    new = Graph(cell.name, cell.ranges)
    for name, type_ in cell.inputs.items():
        if not name.startswith(("state", "child")):
            new.add_input(name, type_)
    children = [name for name in cell.inputs if name.startswith("child")]
    for name in children:
        new.add_input(_leaf(name), TensorType("int32", (ROWS,)))
    for name, type_ in (leaf.weights | cell.weights).items():
        new.add_weight(name, type_)
    own: dict[str, str] = {name: name for name in (*new.inputs, *new.weights)}
    for node in leaf.nodes:
        if node.result in constants:
            copy_node(new, node, own)
    padded = [_padded(new, one, own[one.name], num_leaves) for one in known]
    names = {name: name for name in (*new.inputs, *new.weights)}
    for node in cell.nodes:
        if node.operator == "take" and str(node.operands[0]).startswith("state"):
            table = padded[int(str(node.operands[0]).removeprefix("state"))]
            shape = (Extent.of(num_leaves + 1), *cell.types[node.result].shape[1:])
            if new.types[table].shape != shape:
                table = new.add("reshape", table, shape=shape)
            names[node.result] = new.add("take", table, _leaf(str(node.operands[1])), axis=0)
        else:
            copy_node(new, node, names)
    new.outputs = [names[name] for name in cell.outputs]
    new.without_unused()
    return new, num_leaves


def _leaf(child: str) -> str:
    return child.replace("child", LEAF)


def copy_node(new: Graph, node: Node, names: dict[str, str]) -> None:
    """Add a node to another graph, whose names of its operands are known, and note those of its results."""
    operands = [names[one] if isinstance(one, str) else one for one in node.operands]
    new.add(node.operator, *operands, source=node.source, **node.attributes)
    names.update(zip(node.results, new.nodes[-1].results, strict=True))


def row_table(graph: Graph, name: str, constants: set[str], ids: str) -> RowTable | None:
    """Return the table that a value is rows of; None where it is none.

    Parameters
    ----------
    graph : Graph
        Of rows.
    name : str
    constants : set of str
    ids : str
        The input of positions that differ among rows.
    """
    producers = graph.producers()
    node = producers.get(name)
    while node is not None and (node.operator == "reshape" or _is_copy(node)):
        node = producers.get(str(node.operands[0]))
    found = lookup_of(graph, node, constants)
    if found is None or (found.num_rows > 1 and found.positions != ids):
        return None
    return RowTable(found.table, found.num_rows, graph.types[name].shape[1:])


def _is_copy(node: Node) -> bool:
    """Whether a node is there for its result to be written, as `distinct_outputs` adds them."""
    return node.operator == "add" and node.operands[1:] == (0.0,)


def _padded(new: Graph, table: RowTable, name: str, num_leaves: int) -> str:
    """Return a table of all leaves, behind which there is a row of zeros."""
    whole = (Extent.of(num_leaves), *table.shape)
    name = new.add("reshape", name, shape=(Extent.of(table.num_rows), *table.shape))
    if table.num_rows == 1 < num_leaves:
        name = new.add("expand", name, shape=whole)
    elif table.num_rows > num_leaves:
        name = new.add("slice", name, axis=0, start=Extent(), stop=whole[0], step=1)
    zeros = new.add("full", shape=(Extent.of(1), *table.shape), value=0.0, dtype="float32")
    return new.add("concat", name, zeros, axis=0)
