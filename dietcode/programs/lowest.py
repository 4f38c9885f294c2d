"""The form of a block's calls whose computed operands are rows of constant tables, as those of words are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dietcode.graph.graph import Graph
from dietcode.graph.program_model import NumberSource
from dietcode.graph.tensor_type import TensorType
from dietcode.models.grouping import constants_of
from dietcode.recursion.batching import ROWS
from dietcode.recursion.lowest import RowTable, copy_node, row_table
from dietcode.recursion.passes import Passes
from dietcode.recursion.rewriting import canonical
from dietcode.recursion.tables import multiply_adds

LOWEST = "-lowest"  # ends the name of such a block
_NUMBER = "ids0"  # the only input of what the rows come from


def lowest_block(
    block: Graph, sources: Sequence[NumberSource | None], makers: Mapping[int, Graph], passes: Passes
) -> Graph | None:
    """Return a block that reads tables in the place of operands; None where that saves no products.

    Its operands are those without a source, and a whole number for each leader, in the order of the block's.

    Parameters
    ----------
    block : Graph
        Of rows, with operands ``operand{k}`` at ``rows{k}``, or ``ids{k}``.
    sources : sequence of NumberSource or None
        Of each operand.
    makers : mapping of int to Graph
        By the block of a source, its graph of rows, over ``ids0``.
    passes : Passes
    """
    known: dict[int, RowTable] = {}
    for operand, one in enumerate(sources):
        if one is not None:
            maker = makers[one.block]
            found = row_table(maker, maker.outputs[one.result], constants_of(maker), _NUMBER)
            if found is None:
                return None
            known[operand] = found
    new = Graph(block.name, block.ranges)
    names = _inputs(new, block, sources)
    weights = {name: type_ for one in makers.values() for name, type_ in one.weights.items()}
    for name, type_ in (weights | block.weights).items():
        names[name] = new.add_weight(name, type_)
    tables = {number: _tables(new, maker) for number, maker in makers.items()}
    for node in block.nodes:
        k = _operand(str(node.operands[0])) if node.operator == "take" else None
        source = None if k is None else sources[k]
        if k is None or source is None:
            copy_node(new, node, names)
            continue
        table = tables[source.block][known[k].name]
        shape = (new.types[table].shape[0], *known[k].shape)
        if new.types[table].shape != shape:
            table = new.add("reshape", table, shape=shape)
        row = new.add("take", table, names[str(node.operands[1])], axis=0)
        wanted = block.types[node.result].shape
        names[node.result] = row if new.types[row].shape == wanted else new.add("reshape", row, shape=wanted)
    new.outputs = [names[name] for name in block.outputs]
    new.without_unused()
    order = next(name for name in new.inputs if name.startswith(("rows", "ids")))
    own = canonical(new, order, passes)
    return own if multiply_adds(own) < multiply_adds(block) else None


def _operand(name: str) -> int | None:
    number = name.removeprefix("operand")
    return int(number) if name != number and number.isdigit() else None


def _inputs(new: Graph, block: Graph, sources: Sequence[NumberSource | None]) -> dict[str, str]:
    """Add the inputs of the new block, and return what those of the old one are there."""
    names: dict[str, str] = {}
    count = 0
    for k, source in enumerate(sources):
        if source is not None and source.leader != k:
            names[f"rows{k}"] = names[f"rows{source.leader}"]
            continue
        if source is not None:
            names[f"rows{k}"] = new.add_input(f"ids{count}", TensorType("int32", (ROWS,)))
        for word in ("operand", "rows", "ids") if source is None else ():
            if f"{word}{k}" in block.inputs:
                names[f"{word}{k}"] = new.add_input(f"{word}{count}", block.inputs[f"{word}{k}"])
        count += 1
    return names


def _tables(new: Graph, maker: Graph) -> dict[str, str]:
    """Add what a maker computes of weights alone, and return the names of that."""
    constants = constants_of(maker)
    names = {name: name for name in maker.weights}
    for node in maker.nodes:
        if node.result in constants:
            copy_node(new, node, names)
    return names
