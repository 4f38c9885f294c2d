"""What follows from shapes alone is computed once: masks and angles, which exports repeat in each layer.

Other equal nodes stay: each is computed within the kernel of its reader, which is faster than a value that
several kernels read.
"""

from __future__ import annotations

from typing import Any

from dietcode.graph.graph import CHECKS, Node
from dietcode.models.rewriting.rewriter import Rewriter, Rule


def sharing() -> Rule:
    """Return the rule for one graph; it remembers the nodes that it has seen there."""
    of_shapes: set[str] = set()
    known: dict[tuple[Any, ...], str] = {}

    def share(r: Rewriter, node: Node) -> str | None:
        """A node of shapes alone that computes what one before it does -> the result of that one."""
        if node.graphs or "size" in node.attributes or node.operator in CHECKS or len(node.results) > 1:
            return None
        if not (of_shapes | r.graph.weights.keys()).issuperset(node.tensors):
            return None
        of_shapes.add(node.result)
        key = _key(node)
        if key in known:
            return known[key]
        known[key] = node.result
        return None

    return share


def _key(node: Node) -> tuple[Any, ...]:
    """Return what equal nodes have in common; 0 and 0.0 are different operands."""
    operands = tuple((type(one).__name__, str(one)) for one in node.operands)
    return node.operator, operands, tuple(sorted((name, repr(one)) for name, one in node.attributes.items()))
