"""Graphs within nodes, and sizes that nodes set, out of data that anybody may have written."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from dietcode.errors import ModelError
from dietcode.graph.reading import MAX_DEPTH, MAX_GRAPHS, read_graph

Change = Callable[[dict[str, Any]], object]
X = {"dtype": "float32", "shape": ["L"]}
TRUTH = {"dtype": "bool", "shape": []}


def _node(operator: str, operands: list[Any], result: str, **attributes: Any) -> dict[str, Any]:
    given = [{"value": one} if isinstance(one, str) else one for one in operands]
    found = {"results": [result], "operator": operator, "operands": given}
    return found | ({"attributes": attributes} if attributes else {})


def _sub(operator: str = "neg") -> dict[str, Any]:
    return {"inputs": {"a": X}, "nodes": [_node(operator, ["a"], "b")], "outputs": ["b"]}


def _data() -> dict[str, Any]:
    """A branch, a loop, and positions of which there are u0."""
    holds = {
        "inputs": {"a": X},
        "nodes": [_node("sum", ["a"], "s", axes=[0]), _node("less", ["s", 9.0], "b")],
        "outputs": ["b"],
    }
    return {
        "format": "dietcode-graph/1",
        "name": "model",
        "dimensions": {"L": {"min": 1, "max": 9}, "u0": {"min": 0, "max": 9}},
        "sizes": {"u0": "L"},
        "inputs": {"x": X, "p": TRUTH},
        "weights": {},
        "nodes": [
            _node("cond", ["p", "x"], "y", **{"then": _sub(), "else": _sub("relu")}),
            _node("while_loop", ["y"], "z", condition=holds, body=_sub(), carried=1),
            _node("nonzero", ["z"], "at", size="u0"),
            _node("full", [], "ones", shape=["u0"], value=1, dtype="float32"),
        ],
        "outputs": ["z", "at", "ones"],
        "signature": {"positional": ["x", "p"], "keyword": {}, "output": {"tuple": ["*"] * 3}},
    }


def test_what_is_read_is_written_again() -> None:
    graph = read_graph(_data())
    assert read_graph(graph.to_json()).to_json() == graph.to_json()
    assert graph.num_nodes == 9 and graph.setters() == {"u0": "at"}
    ones = graph.producers()["ones"]
    assert graph.needs(ones, graph.setters()) == ("at",)
    graph.outputs = ["ones"]
    graph.without_unused()
    assert [node.operator for node in graph.nodes] == ["cond", "while_loop", "nonzero", "full"]


def _attributes(number: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda data: dict.__getitem__(data["nodes"][number], "attributes")


_BRANCH, _LOOP = _attributes(0), _attributes(1)


def _too_deep(data: dict[str, Any]) -> None:
    inner = _sub()
    for _ in range(MAX_DEPTH + 1):
        truth = _node("less", [0.0, "s"], "t")
        node = _node("cond", ["t", "a"], "b", **{"then": inner, "else": _sub()})
        inner = {
            "inputs": {"a": X},
            "nodes": [_node("sum", ["a"], "s", axes=[0]), truth, node],
            "outputs": ["b"],
        }
    _BRANCH(data)["then"] = inner


def _too_many(data: dict[str, Any]) -> None:
    data["nodes"] = [
        _node("cond", ["p", "x"], f"y{k}", **{"then": _sub(), "else": _sub()}) for k in range(MAX_GRAPHS)
    ]


def _input_of_a_size(data: dict[str, Any]) -> None:
    data["inputs"]["q"] = {"dtype": "float32", "shape": ["u0"]}
    data["signature"]["positional"].append("q")


REFUSED: dict[str, tuple[Change, str]] = {
    "value of the graph around": (
        lambda data: _BRANCH(data)["then"]["nodes"][0].update(operands=[{"value": "x"}]),
        "nodes.0.attributes.then.nodes.0.operands.0: 'x': no value that was there before",
    ),
    "another number of inputs": (
        lambda data: _BRANCH(data)["then"]["inputs"].update(c=X),
        "cond: then takes float32[L], float32[L]; allowed: what the node gives, float32[L]",
    ),
    "another type of results": (
        lambda data: _BRANCH(data)["else"].update(
            nodes=[_node("cast", ["a"], "b", dtype="float64")],
        ),
        "cond: then gives float32[L], else float64[L]; allowed: the same types",
    ),
    "predicate that is no truth": (
        lambda data: data["nodes"][0]["operands"].__setitem__(0, {"value": "x"}),
        "cond: the predicate is float32[L]; allowed: bool[]",
    ),
    "condition that is no truth": (
        lambda data: _LOOP(data)["condition"].update(outputs=["s"]),
        "while_loop: the condition is float32[]; allowed: bool[]",
    ),
    "state of another shape": (
        lambda data: _LOOP(data)["body"].update(nodes=[_node("sum", ["a"], "b", axes=[0])]),
        "while_loop: the body makes float32[] of float32[L]",
    ),
    "no state": (lambda data: _LOOP(data).update(carried=0), "while_loop: the body makes"),
    "no graph": (lambda data: _LOOP(data).update(body=3), "given 3; allowed: a graph"),
    "graph with a weight": (
        lambda data: _BRANCH(data)["then"].update(weights={}),
        "nodes.0.attributes.then.weights: unknown",
    ),
    "graph instead of a number": (lambda data: _LOOP(data).update(carried=_sub()), "a whole number"),
    "too deep": (_too_deep, "one graph too many"),
    "too many": (_too_many, "one graph too many"),
    "size that nothing sets": (
        lambda data: data["nodes"].__setitem__(2, _node("nonzero", ["z"], "at", size="L")),
        "nodes.3: 'u0': no node before sets this size",
    ),
    "size that is used before": (lambda data: data["nodes"].reverse(), "no node before sets this size"),
    "size that an input has": (_input_of_a_size, "inputs.q: extent u0 is set by a node"),
    "size of no dimension": (lambda data: data["sizes"].update(u1="L"), "sizes.u1: 'u1' is no dimension"),
    "bound of no dimension": (lambda data: data["sizes"].update(u0="K"), "sizes.u0: 'K' is no dimension"),
    "size of a list": (lambda data: data.update(sizes=[]), "sizes: given 0; allowed: a mapping"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_graphs_that_are_refused(what: str) -> None:
    change, message = REFUSED[what]
    data = deepcopy(_data())
    change(data)
    with pytest.raises(ModelError) as caught:
        read_graph(data)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
