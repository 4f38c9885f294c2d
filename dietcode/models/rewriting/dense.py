"""Products with constant matrices, in the one way that all that follows knows."""

from __future__ import annotations

from dietcode.graph.graph import Node
from dietcode.models.rewriting.rewriter import Rewriter


def is_matrix(r: Rewriter, value: str) -> bool:
    """Whether a value is a weight with two axes, or the transpose of one."""
    before = r.producer(value, "transpose")
    return r.type(value).rank == 2 and (value if before is None else before.operands[0]) in r.graph.weights


def product(r: Rewriter, node: Node) -> str | None:
    """``matmul(x, W)`` -> ``linear(x, Wᵀ)``."""
    if node.operator != "matmul" or not is_matrix(r, node.tensors[1]) or r.type(node.operands[0]).rank < 2:
        return None
    return r.add("linear", node.operands[0], r.transpose(node.tensors[1], (1, 0)))


def biased(r: Rewriter, node: Node) -> str | None:
    """``linear(x, W) + b`` -> ``linear(x, W, b)``."""
    if node.operator != "add" or len(node.tensors) != 2:
        return None
    for value, bias in (node.tensors, node.tensors[::-1]):
        before = r.producer(value, "linear")
        if before is None or len(before.operands) > 2 or not r.is_read_once(value):
            continue
        if bias in r.graph.weights and r.type(bias).shape == r.type(before.operands[1]).shape[:1]:
            return r.add("linear", *before.operands, bias)
    return None


DENSE = (product, biased)
