"""Functions put together that models spell out: SiLU, GELU, inverse roots; and log_softmax taken apart."""

from __future__ import annotations

import math

from dietcode.graph.graph import Node
from dietcode.models.rewriting.patterns import number_and_tensor, scaled
from dietcode.models.rewriting.rewriter import Rewriter


def silu(r: Rewriter, node: Node) -> str | None:
    """``x · sigmoid(x)`` -> ``silu(x)``."""
    if node.operator != "mul" or len(node.tensors) != 2:
        return None
    for x, gate in (node.tensors, node.tensors[::-1]):
        found = r.producer(gate, "sigmoid")
        if found is not None and found.operands[0] == x:
            return r.add("silu", x)
    return None


def inverse_root(r: Rewriter, node: Node) -> str | None:
    """``1 / sqrt(x)`` -> ``rsqrt(x)``."""
    root = r.producer(node.operands[1], "sqrt") if node.operator == "div" else None
    return r.add("rsqrt", root.operands[0]) if root is not None and node.operands[0] == 1 else None


def gelu(r: Rewriter, node: Node) -> str | None:
    """``0.5 · x · (1 + erf(x / √2))`` -> ``gelu(x)``, and with tanh its other form."""
    if node.operator != "mul":
        return None
    # The factor 0.5 stands with x, or around the product.
    pair, half = node.tensors, 1.0
    if len(pair) == 1:
        given, half = scaled(r, pair[0])
        inner = r.producer(given, "mul")
        numbers = [one for one in node.operands if isinstance(one, int | float)]
        if inner is None or len(inner.tensors) != 2 or len(numbers) != 1:
            return None
        pair, half = inner.tensors, half * numbers[0]
    if len(pair) != 2:
        return None
    for first, second in (pair, pair[::-1]):
        x, factor = scaled(r, first)
        form = _gate(r, second, str(x))
        if form and math.isclose(half * factor, 0.5, rel_tol=1e-6):
            return r.add("gelu", x, form=form)
    return None


def _gate(r: Rewriter, value: str, x: str) -> str:
    """Return the form of ``1 + erf(x / √2)``, or '' for anything else."""
    plus = r.producer(value, "add")
    one = None if plus is None else number_and_tensor(plus)
    if one is None or one[0] != 1:
        return ""
    bent = r.producer(one[1], "erf", "tanh")
    if bent is None:
        return ""
    inner, factor = scaled(r, bent.operands[0])
    if bent.operator == "erf":
        return "erf" if inner == x and math.isclose(factor, math.sqrt(0.5), rel_tol=1e-6) else ""
    near = math.isclose(factor, math.sqrt(2 / math.pi), rel_tol=1e-6)
    return "tanh" if near and _is_bent_line(r, str(inner), x) else ""


def _is_bent_line(r: Rewriter, value: str, x: str) -> bool:
    """Whether a value is ``x + 0.044715 · x³``."""
    total = r.producer(value, "add")
    if total is None or len(total.tensors) != 2 or x not in total.tensors:
        return False
    other = next((one for one in total.tensors if one != x), x)
    cube, factor = scaled(r, other)
    product = r.producer(cube, "mul", "pow")
    if product is None or not math.isclose(factor, 0.044715, rel_tol=1e-6):
        return False
    if product.operator == "pow":
        return product.operands == (x, 3)
    square = next((found for one in product.tensors if (found := r.producer(one, "square"))), None)
    return square is not None and square.operands == (x,) and x in product.tensors


def log_softmax(r: Rewriter, node: Node) -> str | None:
    """``log_softmax(x)`` along rows -> ``d - log(sum(exp(d)))``, d = x - max(x), which kernels have."""
    if node.operator != "log_softmax":
        return None
    x, axis = node.tensors[0], node.attributes["axis"]
    rank = r.type(x).rank
    if axis % rank != rank - 1 or r.type(x).dtype != "float32":
        return None
    below = r.add("sub", x, r.add("max", x, axes=(rank - 1,), keep=True))
    total = r.add("sum", r.add("exp", below), axes=(rank - 1,), keep=True)
    return r.add("sub", below, r.add("log", total))


ACTIVATIONS = (silu, inverse_root, gelu, log_softmax)
