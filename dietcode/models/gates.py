"""Products whose columns are taken apart: equal slices along the last axis, the gates of a cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Graph, Node
from dietcode.workload.operators import MAX_GATES


def gates_of(graph: Graph, nodes: Sequence[Node], outputs: Iterable[str]) -> dict[str, int]:
    """Return the values that nodes read by equal slices alone, and the number of these.

    Parameters
    ----------
    nodes : sequence of Node
        Of one block.
    outputs : iterable of str
        Values of theirs that are read elsewhere.
    """
    widths: dict[str, set[Extent]] = {}
    for node in nodes:
        for name in node.tensors:
            widths.setdefault(name, set()).add(_width(graph, node, name))
    for name in outputs:
        widths.pop(name, None)
    found = {}
    for name, own in widths.items():
        if len(own) != 1 or Extent() in own:
            continue
        width, whole = own.pop().constant, graph.types[name].shape[-1].constant
        count = whole // width
        if count * width == whole and 2 <= count <= MAX_GATES:
            found[name] = count
    return found


def _width(graph: Graph, node: Node, name: str) -> Extent:
    """Return how wide a slice is whose start is a multiple of that; 0 where a node reads in another way."""
    rank = graph.types[name].rank
    if node.operator != "slice" or node.attributes["axis"] % rank != rank - 1 or node.attributes["step"] != 1:
        return Extent()
    start, width = node.attributes["start"], graph.types[node.result].shape[-1]
    known = start.is_constant and width.is_constant and graph.types[name].shape[-1].is_constant
    return width if known and width != ONE * 0 and start.constant % width.constant == 0 else Extent()
