"""What depends on a node's input alone: computed once for all nodes, before the first level."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dietcode.graph.graph import Graph
from dietcode.models.grouping import constants_of

_WORTH_IT = frozenset({"linear", "matmul", "softmax", "layernorm", "rmsnorm"})
_REARRANGED = frozenset({"reshape", "expand", "transpose"})  # no kernel writes these: what they read is kept


def hoisted_values(graph: Graph, states: Collection[str]) -> list[str]:
    """Return the values that are computed before the first level, in order.

    Parameters
    ----------
    graph : Graph
        Of the rows of a level.
    states : collection of str
        Its inputs that only levels know: states, and where those of children are.
    """
    constants = constants_of(graph)
    on_states = set(states)
    costly: set[str] = set()
    for node in graph.nodes:
        if not on_states.isdisjoint(node.tensors):
            on_states.update(node.results)
        elif node.result not in constants and (
            node.operator in _WORTH_IT or not costly.isdisjoint(node.tensors)
        ):
            costly.update(node.results)
    wanted = {one for one in graph.outputs if one in costly}
    for node in graph.nodes:
        if not on_states.isdisjoint(node.results):
            wanted.update(one for one in node.tensors if one in costly)
    producers = graph.producers()
    found: dict[str, None] = {}
    for node in graph.nodes:
        if node.result not in wanted:
            continue
        name = node.result
        while producers[name].operator in _REARRANGED and producers[name].operands[0] in costly:
            name = str(producers[name].operands[0])
        found[name] = None
    return list(found)


def only(graph: Graph, outputs: Iterable[str]) -> Graph:
    """Return the part of a graph that computes some of its values."""
    found = Graph(graph.name, graph.ranges, dict(graph.inputs), dict(graph.weights), list(graph.nodes))
    found.types, found.outputs = dict(graph.types), list(outputs)
    found.without_unused()
    return found


def given(graph: Graph, values: Iterable[str]) -> Graph:
    """Return a graph that is given some of its values as inputs."""
    wanted = [name for name in values if name in graph.types and name not in graph.inputs]
    nodes = [node for node in graph.nodes if node.result not in wanted]
    inputs = graph.inputs | {name: graph.types[name] for name in wanted}
    found = Graph(graph.name, graph.ranges, inputs, dict(graph.weights), nodes)
    found.types, found.outputs = dict(graph.types), list(graph.outputs)
    found.without_unused()
    return found
