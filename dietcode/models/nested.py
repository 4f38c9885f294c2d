"""Sub-graphs as graphs of their own, so that they are rewritten and grouped as whole models are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from dietcode.graph.graph import Graph
from dietcode.runtime.models.executable import VIEW_OPERATORS

_WRITES_VIEWS = {*VIEW_OPERATORS, "recurrence", "recurrent"}


def opened(graph: Graph, constants: Collection[str]) -> Graph:
    """Return a sub-graph whose inputs that are constants of the model are weights."""
    found = Graph(graph.name, graph.ranges, nodes=list(graph.nodes), outputs=list(graph.outputs))
    found.types, found.sizes = dict(graph.types), graph.sizes
    found.inputs = {name: type_ for name, type_ in graph.inputs.items() if name not in constants}
    found.weights = {name: type_ for name, type_ in graph.inputs.items() if name in constants}
    found.without_unused()
    return found


def renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """Return a graph with other names of its values; inputs that get the same name become one.

    The signature stays, and with it what it calls inputs.
    """
    found = Graph(graph.name, graph.ranges, sizes=graph.sizes, signature=graph.signature)
    found.inputs = {names[name]: type_ for name, type_ in graph.inputs.items()}
    found.weights = {names[name]: type_ for name, type_ in graph.weights.items()}
    found.types = {names[name]: type_ for name, type_ in graph.types.items()}
    found.outputs = [names[name] for name in graph.outputs]
    found.nodes = [
        replace(
            node,
            operands=tuple(names[one] if isinstance(one, str) else one for one in node.operands),
            results=tuple(names[one] for one in node.results),
        )
        for node in graph.nodes
    ]
    return found


def written_outputs(graph: Graph, constants: Collection[str]) -> set[str]:
    """Return the outputs that a step of the graph writes, and that are an output once."""
    producers = graph.producers()
    found = {name for name in graph.outputs if graph.outputs.count(name) == 1 and name not in constants}
    return {n for n in found if n in producers and producers[n].operator not in _WRITES_VIEWS}
