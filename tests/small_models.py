"""Small graphs of whole models, and weights for them, without PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from dietcode.graph.extent import Extent
from dietcode.graph.graph import Graph
from dietcode.graph.tensor_type import TensorType

BUDGET = {"trials": 2, "seconds": 2.0}


def float32(*shape: int | Extent) -> TensorType:
    return TensorType("float32", tuple(Extent.of(one) for one in shape))


def mlp(name: str = "mlp", width: int = 16, hidden: int = 32, high: int = 6) -> Graph:
    """Rows [L, width] to rows: a product with relu, another one, and the same first product again."""
    graph = Graph(name, {"L": (1, high)})
    rows = graph.add_input("x", float32(Extent.of("L"), width))
    for number, (outer, inner) in enumerate([(hidden, width), (width, hidden), (hidden, width)]):
        weight = graph.add_weight(f"layer{number}.weight", float32(outer, inner))
        bias = graph.add_weight(f"layer{number}.bias", float32(outer))
        rows = graph.add("linear", rows, weight, bias, source=f"net.py:{number + 1}")
        rows = graph.add("relu", rows)
    graph.outputs = [rows]
    graph.signature = {"positional": ["x"], "keyword": {}, "output": "*"}
    return graph


def model_data(name: str = "mlp", **changes: Any) -> dict[str, Any]:
    """What `POST /jobs` takes as ``model``."""
    return {"graph": mlp(name).to_json(), "budget": BUDGET} | changes


def weights_of(graph: Graph, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Return random weights."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal([one.constant for one in type_.shape], dtype=np.float32)
        for name, type_ in graph.weights.items()
    }


def expected(graph: Graph, weights: Any, x: Any) -> Any:
    """The result of `mlp` in float64."""
    rows = x.astype(np.float64)
    for number in range(3):
        weight, bias = (weights[f"layer{number}.{one}"].astype(np.float64) for one in ("weight", "bias"))
        rows = np.maximum(rows @ weight.T + bias, 0)
    return rows
