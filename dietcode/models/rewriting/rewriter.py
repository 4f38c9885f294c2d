"""A graph written anew, node by node, where rules may put something else in the place of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from dietcode.graph.extent import Extent
from dietcode.graph.graph import Graph, Node, Value
from dietcode.graph.tensor_type import TensorType

WINDOWED = ("conv", "max_pool", "avg_pool")


class Rewriter:
    """The graph that is written, as rules see it.

    Attributes
    ----------
    graph : Graph
        What has been written so far.
    num_readers : dict of str to int
        Of each value of the graph that is read; outputs count as readers.
    """

    def __init__(self, old: Graph) -> None:
        self.graph = Graph(old.name, old.ranges, signature=old.signature, sizes=old.sizes)
        for name, type_ in old.inputs.items():
            self.graph.add_input(name, type_)
        for name, type_ in old.weights.items():
            self.graph.add_weight(name, type_)
        self.num_readers: dict[str, int] = dict.fromkeys(old.types, 0)
        for node in old.nodes:
            for name in node.tensors:
                self.num_readers[name] += 1
        for name in old.outputs:
            self.num_readers[name] += 1
        self._reserved = set(old.types)
        self._made: dict[str, Node] = {}
        self.source = ""

    def producer(self, value: Value, *operators: str) -> Node | None:
        """Return the node that computes a value, where it is one of some operators."""
        node = self._made.get(value) if isinstance(value, str) else None
        return node if node is not None and (not operators or node.operator in operators) else None

    def type(self, value: Value) -> TensorType:
        """Return the type of a tensor."""
        return self.graph.types[str(value)]

    def results_of(self, value: str) -> tuple[str, ...]:
        """Return all results of the node that computes a value."""
        return self._made[value].results

    def is_read_once(self, value: Value) -> bool:
        """Whether one node alone reads a value of the old graph."""
        return self.num_readers.get(str(value), 0) == 1

    def add(self, operator: str, *operands: Value, **attributes: Any) -> str:
        """Write a node and return the name of its first result."""
        number = len(self.graph.types)
        while f"v{number}" in self._reserved or f"v{number}" in self.graph.types:
            number += 1
        self.graph.add(operator, *operands, source=self.source, name=f"v{number}", **attributes)
        return self._known()

    def _known(self) -> str:
        node = self.graph.nodes[-1]
        for result in node.results:
            self._made[result] = node
        return node.result

    def copy(self, node: Node) -> None:
        """Write a node as it is."""
        types = [self.graph.types[one] if isinstance(one, str) else one for one in node.operands]
        from dietcode.graph.operators import GRAPH_OPERATORS

        inferred = GRAPH_OPERATORS[node.operator].infer(types, node.attributes)
        self.graph.nodes.append(node)
        self.graph.types.update(zip(node.results, map(self.graph.simplified, inferred), strict=True))
        self._known()

    def turned(self, value: Value) -> Node | None:
        """Return the transpose that computes a value, unless kernels of windows write in its order."""
        node = self.producer(value, "transpose")
        if node is None or self.producer(node.operands[0], *WINDOWED) is None:
            return node
        rank = len(node.attributes["axes"])
        return None if node.attributes["axes"] == (0, *range(2, rank), 1) else node

    def transpose(self, value: str, axes: Sequence[int]) -> str:
        """Return a value with its axes in another order; two transposes are one, or none."""
        before = self.turned(value)
        if before is not None:
            own = before.attributes["axes"]
            value, axes = str(before.operands[0]), [own[axis] for axis in axes]
        if list(axes) == list(range(len(axes))):
            return value
        return self.add("transpose", value, axes=tuple(axes))

    def reshape(self, value: str, shape: Sequence[Extent]) -> str:
        """Return a value in another shape."""
        if self.type(value).shape == tuple(shape):
            return value
        return self.add("reshape", value, shape=tuple(shape))


Rule: TypeAlias = Callable[[Rewriter, Node], str | None]


def rewritten(old: Graph, rules: Sequence[Rule]) -> Graph:
    """Return a graph that computes the same.

    Parameters
    ----------
    rules : sequence of callable
        ``(rewriter, node) -> value``: what stands for the first result of a node, whose operands are values
        of the new graph; None where the rule does not apply. The first that applies counts.
    """
    rewriter = Rewriter(old)
    names: dict[str, str] = {}
    for node in old.nodes:
        operands = tuple(names.get(one, one) if isinstance(one, str) else one for one in node.operands)
        current = replace(node, operands=operands)
        rewriter.source = node.source
        found = next((value for rule in rules if (value := rule(rewriter, current)) is not None), None)
        if found is None:
            rewriter.copy(current)
        else:
            new = rewriter.results_of(found) if len(node.results) > 1 else (found,)
            names.update(zip(node.results, new, strict=True))
    rewriter.graph.outputs = [names.get(name, name) for name in old.outputs]
    rewriter.graph.without_unused()
    return rewriter.graph
