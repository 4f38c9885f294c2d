"""Functions that models and exporters spell out become one operator, and compute the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_runs import run_graph

from dietcode.graph.extent import Extent
from dietcode.graph.graph import Graph
from dietcode.graph.tensor_type import TensorType
from dietcode.models.rewriting import rewrite

L, D = Extent.of("L"), Extent.of(6)


def _gelu_of_erf(g: Graph, x: str) -> str:
    bent = g.add("add", g.add("erf", g.add("div", x, math.sqrt(2))), 1.0)
    return g.add("mul", g.add("mul", x, bent), 0.5)


def _gelu_of_half(g: Graph, x: str) -> str:
    bent = g.add("add", 1.0, g.add("erf", g.add("mul", x, math.sqrt(0.5))))
    return g.add("mul", g.add("mul", 0.5, x), bent)


def _gelu_of_tanh(power: bool) -> Callable[[Graph, str], str]:
    def build(g: Graph, x: str) -> str:
        cube = g.add("pow", x, 3) if power else g.add("mul", x, g.add("square", x))
        line = g.add("add", x, g.add("mul", cube, 0.044715))
        bent = g.add("add", g.add("tanh", g.add("mul", line, math.sqrt(2 / math.pi))), 1.0)
        return g.add("mul", g.add("mul", x, 0.5), bent)

    return build


def _inverse_root(g: Graph, x: str) -> str:
    return g.add("div", 1.0, g.add("sqrt", g.add("add", g.add("square", x), 1.0)))


def _nearly_gelu(g: Graph, x: str) -> str:
    bent = g.add("add", g.add("erf", g.add("div", x, 1.5)), 1.0)
    return g.add("mul", g.add("mul", x, bent), 0.5)


def _divided_by_zero(g: Graph, x: str) -> str:
    endless = g.add("div", x, 0.0)
    return g.add("mul", g.add("mul", endless, g.add("add", g.add("erf", endless), 1.0)), 0.5)


def _guarded_softmax(g: Graph, x: str) -> str:
    p = g.add("softmax", x, axis=1)
    return g.add("where", g.add("not_equal", p, p), 0.0, p)


def _product_with_a_bias(g: Graph, x: str) -> str:
    return g.add("add", "b", g.add("matmul", x, "w"))


def _parts_of_a_product(g: Graph, x: str) -> str:
    both = g.add("add", g.add("matmul", x, "w"), "b")
    first, second = (g.add("slice", both, axis=1, start=k, stop=k + 2) for k in (0, 2))
    return g.add("concat", first, second, axis=1)


@pytest.mark.parametrize(
    ("build", "operators"),
    [
        (_gelu_of_erf, {"gelu"}),
        (_gelu_of_half, {"gelu"}),
        (_gelu_of_tanh(True), {"gelu"}),
        (_gelu_of_tanh(False), {"gelu"}),
        (_nearly_gelu, {"div", "erf", "add", "mul"}),
        (_divided_by_zero, {"div", "erf", "add", "mul"}),
        (_inverse_root, {"square", "add", "rsqrt"}),
        (_guarded_softmax, {"softmax"}),
        (_product_with_a_bias, {"transpose", "linear"}),
    ],
)
def test_patterns(build: Callable[[Graph, str], str], operators: set[str]) -> None:
    graph = _graph(build)
    rewritten = rewrite(graph)
    assert {node.operator for node in rewritten.nodes} == operators
    _assert_equal(graph, rewritten)


def test_parts_of_a_product_are_products_with_parts_of_its_weight() -> None:
    graph = _graph(_parts_of_a_product)
    rewritten = rewrite(graph)
    products = [node for node in rewritten.nodes if node.operator == "linear"]
    assert [str(rewritten.types[node.result]) for node in products] == ["float32[L, 2]"] * 2
    _assert_equal(graph, rewritten)


@pytest.mark.parametrize("build", [_gelu_of_tanh(True), _guarded_softmax, _product_with_a_bias])
def test_values_that_others_read_stay(build: Callable[[Graph, str], str]) -> None:
    graph = _graph(build)
    graph.outputs += [node.result for node in graph.nodes[:-1]]
    _assert_equal(graph, rewrite(graph))


def _graph(build: Callable[[Graph, str], str]) -> Graph:
    graph = Graph("model", {"L": (1, 8)})
    x = graph.add_input("x", TensorType("float32", (L, D)))
    graph.add_weight("w", TensorType("float32", (D, Extent.of(4))))
    graph.add_weight("b", TensorType("float32", (Extent.of(4),)))
    graph.outputs = [build(graph, x)]
    graph.without_unused()
    return graph


def _assert_equal(graph: Graph, rewritten: Graph) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {"w": rng.standard_normal((6, 4)), "b": rng.standard_normal(4)}
    weights = {name: arrays[name].astype(np.float32) for name in graph.weights}
    inputs = {"x": rng.standard_normal((5, 6)).astype(np.float32)}
    pairs = zip(run_graph(graph, weights, inputs), run_graph(rewritten, weights, inputs), strict=True)
    for before, after in pairs:
        np.testing.assert_allclose(after, before, rtol=0, atol=2e-6)
