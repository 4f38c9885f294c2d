"""Graphs out of plain data: what was written is read back, everything else is refused by its path."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from dietcode.errors import ModelError
from dietcode.graph import reading
from dietcode.graph.extent import parse_extent
from dietcode.graph.extent_texts import MAX_TEXTS
from dietcode.graph.graph import Graph
from dietcode.graph.reading import read_graph
from dietcode.graph.tensor_type import TensorType


def _graph() -> Graph:
    graph = Graph("small", {"B": (1, 4), "L": (1, 64)})
    x = graph.add_input("x", TensorType("float32", (parse_extent("B"), parse_extent("2*L"), parse_extent(8))))
    w = graph.add_weight("layer.weight", TensorType("float32", (parse_extent(6), parse_extent(8))))
    y = graph.add("linear", x, w, source="model.py:3")
    y = graph.add("clip", y, low=float("-inf"), high=6)
    y = graph.add("mul", y, 0.5)
    y = graph.add("mul", y, float("inf"))
    y = graph.add("slice", y, axis=1, start=0, stop=parse_extent("min(L, 12)"))
    values, positions = graph.add("top", y, axis=-1, num=2), ""
    positions = graph.nodes[-1].results[1]
    graph.add("max_pool", x, window=(2,), strides=(2,), dilation=(1,), pads=((0, 0),))
    graph.add("where", graph.add("less", values, 0), 0.0, values)
    graph.outputs = [graph.nodes[-1].result, positions]
    graph.signature = {
        "positional": [{"tuple": ["x", None]}],
        "keyword": {},
        "output": {"dict": [["values", "*"], ["positions", {"list": ["*"]}]]},
    }
    return graph


def test_what_was_written_is_read_back() -> None:
    graph = _graph()
    text = json.dumps(graph.to_json(), allow_nan=False)
    read = read_graph(json.loads(text))
    assert json.dumps(read.to_json()) == text
    assert read.types == graph.types and read.nodes == graph.nodes and read.ranges == graph.ranges


Change = Callable[[dict[str, Any]], Any]


def _put(*path: Any) -> Change:
    """Return a change that puts the last argument where the others lead."""
    *keys, last, value = path

    def change(data: dict[str, Any]) -> None:
        place: Any = data
        for key in keys:
            place = place[key]
        place[last] = value

    return change


def _deep(depth: int) -> Any:
    tree: Any = "x"
    for _ in range(depth):
        tree = {"list": [tree]}
    return tree


REFUSED: list[tuple[Change, str]] = [
    (_put("format", "dietcode-graph/2"), r"^format: given 'dietcode-graph/2'; allowed: dietcode-graph/1"),
    (_put("more", 1), r"^more: unknown; allowed: format"),
    (_put("name", "x\n"), r"^name: .* printable"),
    (_put("name", "x" * 201), r"^name: .* 200 printable"),
    (_put("dimensions", []), r"^dimensions: given 0; allowed: a mapping"),
    (_put("dimensions", {f"D{k}": {"min": 1, "max": 2} for k in range(33)}), "^dimensions: given 33"),
    (_put("dimensions", "L", {"min": 5, "max": 2}), r"^dimensions.L: given 5 to 2"),
    (_put("dimensions", "L", {"min": 1, "max": 2**40}), r"^dimensions.L: "),
    (_put("dimensions", "L", {"min": 1, "max": True}), r"^dimensions.L: given 1 to True"),
    (_put("dimensions", "min", {"min": 1, "max": 2}), r"^dimensions.min: allowed: a letter"),
    (_put("dimensions", "os.system", {"min": 1, "max": 2}), "^dimensions.os.system: allowed"),
    (_put("inputs", {f"x{k}": {} for k in range(65)}), "^inputs: given 65; allowed: .* 64"),
    (_put("inputs", "x", "dtype", "float16"), r"^inputs.x.dtype: given 'float16'"),
    (_put("inputs", "x", "dtype", ["float32"]), r"^inputs.x.dtype: "),
    (_put("inputs", "x", "shape", "BL"), r"^inputs.x.shape: "),
    (_put("inputs", "x", "shape", [1] * 17), r"^inputs.x.shape: given 17; allowed: a list of at most 16"),
    (_put("inputs", "x", "shape", 1, "L**9"), r"^inputs.x.shape.1: "),
    (_put("inputs", "x", "shape", 1, "K"), r"^inputs.x: .*'K' is no dimension"),
    (_put("inputs", "x", "shape", 1, -1), r"^inputs.x: .*extent -1 is -1 to -1; allowed: 0 to"),
    (
        _put("inputs", "x", "shape", [2**30, 2**30]),
        r"^inputs.x: .* 4294967296.0 GiB at its largest; allowed: 1024 ",
    ),
    (_put("inputs", "x", "stride", 1), r"^inputs.x.stride: unknown; allowed: dtype, shape"),
    (_put("weights", "x", {"dtype": "float32", "shape": []}), r"^weights.x: 'x' is there already"),
    (_put("weights", "", {"dtype": "float32", "shape": []}), r"^weights: given ''; allowed: 1 to 200"),
    (_put("nodes", {}), r"^nodes: given 0; allowed: a list"),
    (_put("nodes", 0, "linear"), r"^nodes.0: given 'linear'; allowed: a mapping"),
    (_put("nodes", 0, "operator", "lineer"), r"^nodes.0: operator 'lineer'; did you mean 'linear'"),
    (_put("nodes", 0, "operator", ["linear"]), r"^nodes.0.operator: "),
    (_put("nodes", 0, "code", "import os"), r"^nodes.0.code: unknown"),
    (_put("nodes", 0, "operands", [{"value": "x"}]), r"^nodes.0: linear: 1 operands; allowed: 2 to 3"),
    (_put("nodes", 0, "operands", 1, {"value": "later"}), r"^nodes.0.operands.1: 'later': no value"),
    (_put("nodes", 0, "operands", 1, {"value": ["x"]}), r"^nodes.0.operands.1: "),
    (_put("nodes", 0, "operands", 1, {"name": "x"}), r"^nodes.0.operands.1.name: unknown; allowed: value"),
    (_put("nodes", 0, "operands", 1, "x"), r"^nodes.0.operands.1: given 'x'; allowed: a number"),
    (_put("nodes", 0, "operands", 1, 2.0), r"^nodes.0: linear: given a number; allowed: a tensor"),
    (_put("nodes", 0, "operands", 7), r"^nodes.0.operands: given 7; allowed: a list"),
    (_put("nodes", 2, "operands", 1, 10**30), r"^nodes.2.operands.1: .*2\*\*63"),
    (_put("nodes", 0, "attributes", {"axis": 1}), r"^nodes.0: linear: 'axis'; allowed: none"),
    (_put("nodes", 0, "attributes", [1]), r"^nodes.0.attributes: "),
    (_put("nodes", 4, "attributes", "axis", 3), r"^nodes.4: slice: axis 3; allowed: -3 to 2"),
    (_put("nodes", 4, "attributes", "step", 0), r"^nodes.4: slice: step 0"),
    (_put("nodes", 4, "attributes", "stop", "K"), r"^nodes.4: .*'K' is no dimension"),
    (_put("nodes", 4, "attributes", "stop", "__import__('os')"), r"^nodes.4: given"),
    (_put("nodes", 6, "attributes", "strides", [0]), r"^nodes.6: max_pool: strides \[0\]; allowed: from 1"),
    (_put("nodes", 6, "attributes", "pads", [[0, 2**61]]), r"^nodes.6: "),
    (_put("nodes", 0, "results", []), r"^nodes.0.results: given \[\]; allowed: names"),
    (_put("nodes", 0, "results", ["x"]), r"^nodes.0.results.0: 'x' is there already"),
    (_put("nodes", 0, "results", ["a", "b"]), r"^nodes.0.results: .*allowed: a$"),
    (_put("nodes", 0, "results", [3]), r"^nodes.0.results.0: given 3"),
    (_put("nodes", 0, "source", "a\x1b[2Jb"), r"^nodes.0.source: "),
    (_put("outputs", []), r"^outputs: given 0; allowed: 1 to 256"),
    (_put("outputs", 0, "nothing"), r"^outputs.0: 'nothing': no value"),
    (_put("signature", None), r"^signature: "),
    (
        _put("signature", "positional", ["x", "x"]),
        r"^signature: its inputs are \['x', 'x'\]; allowed: \['x'\]",
    ),
    (_put("signature", "positional", []), r"^signature: its inputs are \[\]"),
    (_put("signature", "positional", [_deep(200)]), r"^signature: .*16 deep"),
    (_put("signature", "positional", [{"set": ["x"]}]), r"^signature: .*allowed: a list in tuple"),
    (_put("signature", "keyword", {"a\n": "x"}), r"^signature: keyword"),
    (_put("signature", "names", ["a", "b"]), r"^signature: names .*one for each positional"),
    (_put("signature", "names", ["a b"]), r"^signature: name 'a b' of an argument; allowed: identifiers"),
    (_put("signature", "output", "*"), r"^signature.output: 1 outputs; allowed: 2"),
    (_put("signature", "output", {"dict": [["a"], ["b"]]}), r"^signature.output: .*pairs"),
    (_put("signature", "output", {"tuple": ["x", "*"]}), r"^signature.output: .*\* for each"),
]


@pytest.mark.parametrize(("change", "problem"), REFUSED)
def test_refusals(change: Change, problem: str) -> None:
    data = json.loads(json.dumps(_graph().to_json()))
    change(data)
    with pytest.raises(ModelError, match=problem) as error:
        read_graph(data)
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


@pytest.mark.parametrize("data", [None, [], "graph", 3, {}, {"format": {}}])
def test_no_graph_at_all(data: object) -> None:
    with pytest.raises(ModelError):
        read_graph(data)


def test_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    data = _graph().to_json()
    for word, most in (("MAX_NODES", 7), ("MAX_WEIGHTS", 0), ("MAX_INPUTS", 0), ("MAX_DIMENSIONS", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(reading, word, most)
            with pytest.raises(ModelError, match=f"at most {most}"):
                read_graph(data)


def test_different_extents_have_a_limit() -> None:
    """Each takes milliseconds to read, of which many fit a request; equal ones are read once."""
    data = _graph().to_json()
    texts = [f"L + {number}" + f" + ({number} + L)//{number}" * 12 for number in range(100, 600)]

    def asked(texts: list[str]) -> Graph:
        nodes = [
            {
                **{"operator": "slice", "operands": [{"value": "x"}], "results": [f"s{at}"]},
                "attributes": {"axis": 1, "start": 0, "stop": f"min(2*L, {text})", "step": 1},
            }
            for at, text in enumerate(texts)
        ]
        return read_graph({**data, "nodes": [*data["nodes"], *nodes]})

    assert sum(map(len, texts)) > MAX_TEXTS
    with pytest.raises(
        ModelError, match=rf"^nodes\.\d+: different extents of over {MAX_TEXTS} characters; allowed"
    ):
        asked(texts)
    assert asked(texts[:1] * 500).num_nodes > 500


def test_a_chain_of_windows_ends() -> None:
    """Each step doubles the text of the extent: refused long before it fills the memory."""
    graph = Graph("chain", {"L": (1, 2**30)})
    graph.add_input("x", TensorType("float32", (parse_extent(1), parse_extent("L"))))
    data = graph.to_json()
    options = {"dilation": [1], "pads": [[1, 1]]}
    last = "x"
    for number in range(300):
        for window in (2, 3):
            attributes = {**options, "window": [window], "strides": [window]}
            node = {"operator": "max_pool", "operands": [{"value": last}], "attributes": attributes}
            data["nodes"].append({**node, "results": [f"p{number}_{window}"]})
        pair = [{"value": f"p{number}_2"}, {"value": f"p{number}_3"}]
        last = f"c{number}"
        data["nodes"].append(
            {"operator": "concat", "operands": pair, "attributes": {"axis": 1}, "results": [last]}
        )
    data["outputs"] = [last]
    data["signature"] = {"positional": ["x"], "keyword": {}, "output": "*"}
    with pytest.raises(ModelError, match=r"^nodes\.\d+: "):
        read_graph(data)
