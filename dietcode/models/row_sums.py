"""The sums of a graph that products read as rows, without a kernel of their own."""

from __future__ import annotations

from collections.abc import Iterable

from dietcode.graph.graph import Graph, Node
from dietcode.workload.row_sums import MAX_SUMMANDS


def row_sums(graph: Graph, nodes: Iterable[Node]) -> dict[str, int]:
    """Return the sums that a product may read as rows, and of how many: of inputs and of rows of tables.

    Parameters
    ----------
    nodes : iterable of Node
        Each after its operands.
    """
    found: dict[str, int] = {}
    rows = dict.fromkeys(graph.inputs, 1)
    for node in nodes:
        if node.operator == "take" and node.attributes["axis"] == 0:
            rows[node.result] = 1
        if node.operator != "add" or len(node.tensors) != len(node.operands):
            continue
        alike = all(graph.types[one] == graph.types[node.result] for one in node.tensors)
        count = sum(rows.get(one, MAX_SUMMANDS) for one in node.tensors)
        if alike and count <= MAX_SUMMANDS:
            found[node.result] = rows[node.result] = count
    return found
