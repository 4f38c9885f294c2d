"""A small program as data, without PyTorch: trees whose leaves are words, merged by one product."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from small_models import BUDGET, float32

from dietcode.graph.graph import Graph
from dietcode.graph.program_model import BlockModel, ProgramModel
from dietcode.graph.tensor_type import TensorType

WIDTH, WORDS = 16, 7
_ROW, _NUMBER = ("float32", (WIDTH,)), ("int32", ())
_FORM = {
    "types": [{"dtype": "float32", "shape": [WIDTH]}, {"dtype": "int32", "shape": []}],
    "records": [{"name": "Pair", "fields": ["left", "right", "word"]}],
    "names": ["left", "right", "word"],
    "constants": [None],
    "lookups": [],
    "tensors": [],
    "functions": [
        {
            "name": "encode",
            "file": "pairs.py",
            "parameters": 1,
            "registers": 8,
            "code": [
                ["field", 1, 0, 0],
                ["const", 2, 0],
                ["binary", 3, "is", 1, 2],
                ["else", 3, 7],
                ["field", 4, 0, 2],
                ["block", [5], 0, [4]],
                ["return", 5],
                ["call", 5, 0, [1]],  # 7
                ["field", 6, 0, 1],
                ["call", 6, 0, [6]],
                ["block", [5], 1, [5, 6]],
                ["return", 5],
            ],
            "lines": [3, 3, 3, 3, 4, 4, 4, 5, 5, 5, 5, 5],
        }
    ],
    "entry": 0,
}
# Two instances together: trees of three leaves and of two.
SHOWN = ((0, 1, 0, 5), (0, (1 << 32) | 0, 1, 2), (0, (1 << 32) | 1, 1, 1))


@dataclass
class Pair:
    left: Pair | None = None
    right: Pair | None = None
    word: int = 0


def _closed(graph: Graph, output: str) -> Graph:
    graph.outputs = [output]
    graph.signature = {"positional": list(graph.inputs), "keyword": {}, "output": "*"}
    return graph


def _leaf() -> BlockModel:
    """A row of a table, and the tanh of a product of it."""
    graph = Graph("leaf", {})
    word = graph.add_input("word", TensorType("int64", ()))
    words = graph.add_weight("words", float32(WORDS, WIDTH))
    weight = graph.add_weight("leaf", float32(WIDTH, WIDTH))
    row = graph.add("take", words, word, axis=0, source="pairs.py:4")
    product = graph.add("linear", row, weight, None, source="pairs.py:4")
    found = _closed(graph, graph.add("tanh", product, source="pairs.py:4"))
    return BlockModel(found, (_NUMBER,), (_ROW,), (False,), 0, {5: 1}, {5: 1})


def _merge() -> BlockModel:
    """tanh(W (left + right))."""
    graph = Graph("merge", {})
    left, right = (graph.add_input(one, float32(WIDTH)) for one in ("left", "right"))
    weight = graph.add_weight("merge", float32(WIDTH, WIDTH))
    both = graph.add("linear", graph.add("add", left, right), weight, None, source="pairs.py:5")
    found = _closed(graph, graph.add("tanh", both))
    return BlockModel(found, (_ROW, _ROW), (_ROW,), (True, True), 1, {2: 1, 1: 1}, {3: 1})


def pair_program(name: str = "pairs", max_rows: int = 1 << 20) -> ProgramModel:
    return ProgramModel(name, copy.deepcopy(_FORM), (_leaf(), _merge()), 2, max_rows, SHOWN)


def program_data(name: str = "pairs", **changes: Any) -> dict[str, Any]:
    """What `POST /jobs` takes as ``model``."""
    return {"program": pair_program(name).to_json(), "budget": BUDGET} | changes


def pair_weights() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    types = {name: type_ for one in pair_program().blocks for name, type_ in one.graph.weights.items()}
    return {
        name: rng.standard_normal([one.constant for one in type_.shape], dtype=np.float32) / 4
        for name, type_ in types.items()
    }


def encoded(pair: Pair) -> np.ndarray[Any, Any]:
    """What the program gives, in float64."""
    weights = {name: array.astype(np.float64) for name, array in pair_weights().items()}
    if pair.left is None or pair.right is None:
        return np.asarray(np.tanh(weights["leaf"] @ weights["words"][pair.word]))
    return np.asarray(np.tanh(weights["merge"] @ (encoded(pair.left) + encoded(pair.right))))
