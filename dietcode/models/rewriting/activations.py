"""Functions put together that models spell out, as SiLU and GELU; and others taken apart for kernels."""

from __future__ import annotations

import math

from dietcode.graph.extent import ONE
from dietcode.graph.graph import Node
from dietcode.models.rewriting.patterns import number_and_tensor, scaled
from dietcode.models.rewriting.rewriter import Rewriter
from dietcode.models.units import HOST_ELEMENTS

_EXACT = 1 << 24  # positions that float32 tells apart
_ELSEWHERE = 1e9  # above every position


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
    """``log_softmax(x)`` -> ``d - log(sum(exp(d)))``, d = x - max(x), which kernels have."""
    if node.operator != "log_softmax" or r.type(node.tensors[0]).dtype != "float32":
        return None
    x = node.tensors[0]
    axis = node.attributes["axis"] % r.type(x).rank
    below = r.add("sub", x, r.add("max", x, axes=(axis,), keep=True))
    total = r.add("sum", r.add("exp", below), axes=(axis,), keep=True)
    return r.add("sub", below, r.add("log", total))


def position_of_extreme(r: Rewriter, node: Node) -> str | None:
    """``argmax(x)`` of many numbers -> the least position of an element that is the largest, or no number.

    Positions are counted in float32, exact up to 2²⁴; what is no number comes before all others, as in
    PyTorch and NumPy. Elsewhere NumPy's function is as fast.
    """
    if node.operator not in ("argmax", "argmin"):
        return None
    x, type_ = node.tensors[0], r.type(node.tensors[0])
    given = node.attributes["axis"]
    if type_.dtype != "float32" or given is None:
        return None
    axis, ranges = given % type_.rank, r.graph.ranges
    length, most = type_.shape[axis], type_.num_elements.bounds(ranges)[1]
    if most <= HOST_ELEMENTS or length.bounds(ranges)[1] > _EXACT:
        return None
    is_largest = node.operator == "argmax"
    extreme = r.add("max" if is_largest else "min", x, axes=(axis,), keep=True)
    pair = (extreme, x) if is_largest else (x, extreme)
    found = r.add("less_equal", *pair, dtype="float32")
    is_number = r.add("less_equal", x, x, dtype="float32")
    own = r.add("cast", r.add("arange", start=0, stop=length, step=1, dtype="int64"), dtype="float32")
    own = r.reshape(own, [length if k == axis else ONE for k in range(axis, type_.rank)])
    others = r.add("mul", r.add("sub", is_number, found), _ELSEWHERE)
    first = r.add("min", r.add("add", others, own), axes=(axis,), keep=node.attributes["keep"])
    return r.add("cast", first, dtype="int64")


ACTIVATIONS = (silu, inverse_root, gelu, log_softmax, position_of_extreme)
