"""Plainer forms of nodes that no kernel computes as they are: more memory and more steps, but the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Graph, Node, Value
from dietcode.models.block_builder import ALONG_ROW
from dietcode.models.grouping import constants_of
from dietcode.models.rewriting.rewriter import Rewriter, rewritten
from dietcode.recursion.batching import ROWS
from dietcode.recursion.kinds import COMPUTED

_MOST_OF_ROW = 1 << 16  # elements of one node that are written out
Shape = tuple[Extent, ...]


def plainer_form(
    graph: Graph, refused: Sequence[Node], moved: AbstractSet[str]
) -> tuple[Graph, frozenset[str]] | None:
    """Return a graph with plainer forms of some nodes, and what is moved in it; None where there is none.

    First slices, and rows of tables that are read, become moves. Then what broadcasts is made as large as the
    result, and reductions along inner axes go along last ones.

    Parameters
    ----------
    graph : Graph
    refused : sequence of Node
        Those that no kernel computes.
    moved : set of str
        What is moved already.
    """
    names = {node.result for node in refused if node.operator in ("slice", "take")}
    read = {name for node in refused for name in node.tensors}
    producers = graph.producers()
    names |= {name for name in read if name in producers and producers[name].operator == "take"}
    if not names <= moved:
        return graph, frozenset(names | moved)
    results = {node.result for node in refused}
    constants = constants_of(graph)
    changed = []

    def rule(r: Rewriter, node: Node) -> str | None:
        form = _FORMS.get(node.operator) if node.result in results else None
        found = None if form is None else form(r, node, constants)
        if found is not None:
            changed.append(found)
        return found

    graph = rewritten(graph, (rule,))
    return (graph, frozenset(moved)) if changed else None


def _flat(shape: Shape) -> Extent:
    return Extent.of(math.prod(extent.constant for extent in shape))


def _elementwise(r: Rewriter, node: Node, constants: AbstractSet[str]) -> str | None:
    """``f(x [B, 4, 1], y [B, 1, 4])`` -> f of both as [B, 16], reshaped."""
    shape = r.type(node.result if node.result in r.graph.types else _made(r, node)).shape
    if shape[:1] != (ROWS,):
        return None
    row = shape[1:]
    if _flat(row).constant > _MOST_OF_ROW:
        return None
    operands: list[Value] = []
    for one in node.operands:
        if not isinstance(one, str):
            operands.append(one)
        elif one in constants and ROWS not in r.type(one).shape:
            own = (ONE,) * (len(shape) - r.type(one).rank) + r.type(one).shape
            wide = r.add("expand", r.reshape(one, own[1:]), shape=row)
            operands.append(r.reshape(wide, (_flat(row),)))
        else:
            own = (ONE,) * (len(shape) - r.type(one).rank) + r.type(one).shape
            wide = one if own == shape else r.add("expand", r.reshape(one, own), shape=shape)
            operands.append(r.reshape(wide, (ROWS, _flat(row))))
    if tuple(operands) == node.operands:
        return None
    return r.reshape(r.add(node.operator, *operands, **node.attributes), shape)


def _made(r: Rewriter, node: Node) -> str:
    """Write a node to see its type; what does not read it drops it."""
    return r.add(node.operator, *node.operands, **node.attributes)


def _along_row(r: Rewriter, node: Node, constants: AbstractSet[str]) -> str | None:
    """A reduction along inner axes -> one along the last, of the transposed value."""
    x = str(node.operands[0])
    rank = r.type(x).rank
    if node.operator in ("layernorm", "rmsnorm"):
        return None
    given = node.attributes["axes"] or range(rank) if "axes" in node.attributes else [node.attributes["axis"]]
    axes = sorted(axis % rank for axis in given)
    rest = [axis for axis in range(rank) if axis not in axes]
    if axes[0] == 0 or axes == list(range(rank - len(axes), rank)):
        return None
    order = [*rest, *axes]
    turned = r.transpose(x, order)
    last = tuple(range(len(rest), rank))
    if node.operator == "softmax":
        made = r.add("softmax", turned, axis=rank - 1, masked_rows=node.attributes["masked_rows"])
        return r.transpose(made, [order.index(axis) for axis in range(rank)])
    made = r.add(node.operator, turned, axes=last, keep=False)
    if not node.attributes["keep"]:
        return made
    kept = tuple(ONE if axis in axes else extent for axis, extent in enumerate(r.type(x).shape))
    return r.reshape(made, kept)


_FORMS: Mapping[str, Callable[[Rewriter, Node, AbstractSet[str]], str | None]] = {
    **dict.fromkeys(COMPUTED, _elementwise),
    **dict.fromkeys(ALONG_ROW, _along_row),
}
