"""A graph out of plain data, the inverse of `Graph.to_json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.extent import parse_extent
from dietcode.graph.graph import FORMAT, Graph
from dietcode.graph.tensor_type import GraphError, TensorType


def read_graph(data: Mapping[str, Any]) -> Graph:
    """Return a graph.

    Raises
    ------
    ModelError
        The data describe none.
    """
    if data.get("format") != FORMAT:
        raise ModelError(f"format {str(data.get('format'))[:40]!r}; this version reads {FORMAT}")
    try:
        ranges = {str(n): (int(r["min"]), int(r["max"])) for n, r in data["dimensions"].items()}
        graph = Graph(str(data["name"]), ranges)
        for key, add in (("inputs", graph.add_input), ("weights", graph.add_weight)):
            for name, facts in data[key].items():
                add(name, TensorType(facts["dtype"], tuple(map(parse_extent, facts["shape"]))))
        for node in data["nodes"]:
            operands = [
                one["value"] if isinstance(one, Mapping) else _number(one) for one in node["operands"]
            ]
            attributes = node.get("attributes", {})
            name, source = node["results"][0], node.get("source", "")
            graph.add(node["operator"], *operands, source=source, name=name, **attributes)
        graph.outputs = [str(name) for name in data["outputs"]]
        graph.signature = data["signature"]
    except (GraphError, KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"describes no graph: {type(error).__name__}: {str(error)[:160]}") from error
    return graph


def _number(one: Any) -> Any:
    return float(one) if isinstance(one, str) else one
