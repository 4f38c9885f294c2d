"""A small recursion as data, without PyTorch, and libraries for it that nobody tuned."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from fake_tuning import plain_library
from small_libraries import with_manifest
from small_models import BUDGET, float32

from dietcode.graph.cells import Cells
from dietcode.graph.graph import Graph
from dietcode.graph.recursive_model import RecursiveModel
from dietcode.graph.samples import Samples
from dietcode.runtime.manifest import FILES
from dietcode.workload.spec import Spec

WIDTH, X = 16, 6
# Two trees as two calls: one of three leaves, and one of two.
SAMPLES = Samples(2, {5: 1, 3: 1}, {3: 1, 2: 1}, {1: 3}, ((), (), (), (0, 1), (3, 2)))


def tree_cells(name: str = "tree") -> Cells:
    """h = tanh(W x + U (left + right)), of a node's input [6] and states [16]."""
    graph = Graph("cell", {})
    x = graph.add_input("x", float32(X))
    left, right = (graph.add_input(one, float32(WIDTH)) for one in ("left", "right"))
    of_x = graph.add_weight("cell.of_x", float32(WIDTH, X))
    of_h = graph.add_weight("cell.of_h", float32(WIDTH, WIDTH))
    both = graph.add("linear", graph.add("add", left, right), of_h, None, source="tree.py:3")
    summed = graph.add("add", graph.add("linear", x, of_x, None, source="tree.py:4"), both)
    graph.outputs = [graph.add("tanh", summed)]
    graph.signature = {"positional": ["x", "left", "right"], "keyword": {}, "output": "*"}
    return Cells(name, 2, False, ((WIDTH,),), (X,), graph, None)


def tree_model(name: str = "tree", samples: Samples | None = SAMPLES) -> RecursiveModel:
    return RecursiveModel(tree_cells(name), 64, 16, samples)


def recursion_data(name: str = "tree", **changes: Any) -> dict[str, Any]:
    """What `POST /jobs` takes as ``model``."""
    return {"recursion": tree_model(name).to_json(), "budget": BUDGET} | changes


def tree_weights() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal([one.constant for one in type_.shape], dtype=np.float32) / 4
        for name, type_ in tree_cells().cell.weights.items()
    }


def states_of(children: np.ndarray[Any, Any], x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The states of all nodes in float64; children come before their parents."""
    weights = {name: array.astype(np.float64) for name, array in tree_weights().items()}
    states = np.zeros((len(children), WIDTH))
    for node, row in enumerate(children):
        below = sum((states[child] for child in row if child >= 0), np.zeros(WIDTH))
        states[node] = np.tanh(weights["cell.of_x"] @ x[node] + weights["cell.of_h"] @ below)
    return states


def two_categories(spec: Spec) -> dict[str, bytes]:
    """Files of a library of two micro-kernels, the second from three rows on; it cannot run."""
    files = plain_library(spec)
    manifest = json.loads(files["manifest.json"])
    rows = next(name for name, own in spec.shape_vars.items() if len(own.weights or ()) != 1)
    tree = {"variable": rows, "threshold": 2, "below": {"category": 0}, "above": {"category": 1}}
    rule = {"variables": list(spec.variables), "num_categories": 2, "tree": tree}
    categories = [{"category": at, "micro_kernel": name} for at, name in enumerate(("4x32", "8x32"))]
    files["dispatch.json"] = json.dumps({"categories": categories, "rule": rule}).encode()
    report = json.loads(files["report.json"])
    report["micro_kernels"].append({**report["micro_kernels"][0], "micro_kernel": "8x32", "category": 1})
    files["report.json"] = json.dumps(report).encode()
    files = {name: files[name] for name in FILES}
    kept = {key: value for key, value in manifest.items() if key not in ("files", "name")}
    return with_manifest(files, spec.name, **kept)
