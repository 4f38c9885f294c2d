"""Reductions over axes that others follow, as the mean of an image with channels last: a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dietcode.graph.extent import Extent, product_of
from dietcode.graph.graph import Graph, Node
from dietcode.models.kernel_call import Argument, KernelCall

REDUCTIONS = frozenset({"sum", "mean", "max"})
# Functions of one value that a reduction may begin with, beside those of a value and a number.
_UNARY = frozenset({"neg", "abs", "square", "exp", "tanh", "sigmoid", "relu", "silu", "sqrt"})


def folded_functions(graph: Graph, node: Node, consumers: Mapping[str, Sequence[Node]]) -> list[Node]:
    """Return the functions of one value that a reduction alone reads, and it, in order."""
    producers, nodes = graph.producers(), [node]
    while True:
        name = str(nodes[0].operands[0])
        before = producers.get(name)
        if before is None or before.operator not in _UNARY or len(consumers[name]) != 1:
            return nodes
        if name in graph.outputs:
            return nodes
        nodes.insert(0, before)


def reduction_call(graph: Graph, nodes: Sequence[Node]) -> KernelCall | None:
    """Return the call of functions and a reduction over adjacent axes that are not the last ones; or None."""
    node = nodes[-1]
    x = str(nodes[0].operands[0])
    shape = graph.types[x].shape
    axes = sorted(axis % len(shape) for axis in node.attributes["axes"] or range(len(shape)))
    if not axes or axes != list(range(axes[0], axes[-1] + 1)) or axes[-1] == len(shape) - 1:
        return None
    parts = {"m": shape[: axes[0]], "k": shape[axes[0] : axes[-1] + 1], "n": shape[axes[-1] + 1 :]}
    dims = {letter: product_of(own) for letter, own in parts.items() if own}
    body: dict[str, Any] = {}
    current = "X"
    for number, one in enumerate(nodes[:-1]):
        body[f"v{number}"] = {one.operator: current}
        current = f"v{number}"
    body["Y"] = {node.operator: current, "axis": "k"}
    rows = "".join(letter for letter in dims if letter != "k")
    block = {"version": 1, "graph": body, "outputs": ["Y"]}
    tensors: dict[str, dict[str, Any]] = {"X": {"dims": "".join(dims), "dtype": "float32"}}
    arguments = {"X": Argument(x, tuple(dims.values()))}
    results = [Argument(node.result, tuple(dims[letter] for letter in rows))]
    flops: Extent = product_of(shape) * len(nodes)
    return KernelCall({"block": block}, tensors, dims, arguments, results, flops)
