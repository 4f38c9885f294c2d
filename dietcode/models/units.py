"""Units of a graph: nodes that one call computes, and whether joining two of them would close a circle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dietcode.graph.graph import CHECKS, Graph, Node
from dietcode.models.kernel_call import KernelCall, RepeatedCall

HOST_ELEMENTS = 1 << 15
"""Up to so many, NumPy's functions and copies are not worth a library."""


@dataclass
class Unit:
    """Nodes that are computed together.

    Attributes
    ----------
    nodes : list of Node
        In an order in which they can be computed.
    call : KernelCall, optional
        By what; None for a node that the host computes.
    repeated : RepeatedCall, optional
        What repeats the call.
    """

    nodes: list[Node]
    call: KernelCall | None = None
    repeated: RepeatedCall | None = None


@dataclass
class Units:
    """A partition of a graph's nodes that has no circles.

    Attributes
    ----------
    graph : Graph
    """

    graph: Graph
    of_value: dict[str, Unit] = field(default_factory=dict)
    position: dict[str, int] = field(default_factory=dict)
    setters: dict[str, str] = field(default_factory=dict)

    @classmethod
    def singles(cls, graph: Graph) -> Units:
        """Return the partition with a unit for each node."""
        units = cls(graph, setters=graph.setters())
        for number, node in enumerate(graph.nodes):
            unit = Unit([node])
            for result in node.results:
                units.of_value[result] = unit
                units.position[result] = number
        return units

    def unit_of(self, name: str) -> Unit | None:
        """Return the unit that computes a value; None for an input or a weight."""
        return self.of_value.get(name)

    def operands(self, unit: Unit) -> list[str]:
        """Return the values that a unit reads from others."""
        return list(
            dict.fromkeys(
                name
                for node in unit.nodes
                for name in self.graph.needs(node, self.setters)
                if self.of_value.get(name) is not unit
            )
        )

    def depends(self, names: Iterable[str], on: Iterable[Unit]) -> bool:
        """Whether values depend on any of some units."""
        targets = {id(unit) for unit in on}
        first = min(self.position[node.result] for unit in on for node in unit.nodes)
        seen: set[int] = set()
        waiting = list(names)
        while waiting:
            unit = self.of_value.get(waiting.pop())
            if unit is None or id(unit) in seen:
                continue
            if id(unit) in targets:
                return True
            seen.add(id(unit))
            if max(self.position[node.result] for node in unit.nodes) < first:
                continue
            waiting.extend(self.operands(unit))
        return False

    def may_join(self, units: Sequence[Unit]) -> bool:
        """Whether units can become one: nothing outside of them lies between them."""
        inside = {id(unit) for unit in units}
        outside = [
            name
            for unit in units
            for name in self.operands(unit)
            if id(self.of_value.get(name)) not in inside
        ]
        return not self.depends(outside, units)

    def join(self, units: Sequence[Unit], call: KernelCall) -> Unit:
        """Make units one."""
        nodes = sorted((node for unit in units for node in unit.nodes), key=lambda n: self.position[n.result])
        joined = Unit(nodes, call)
        for node in nodes:
            for result in node.results:
                self.of_value[result] = joined
        return joined

    def all(self) -> list[Unit]:
        """Return all units, each once."""
        return list({id(unit): unit for unit in self.of_value.values()}.values())

    def ordered(self) -> list[Unit]:
        """Return all units in an order in which they can be computed."""
        done: set[int] = set()
        order: list[Unit] = []
        for start in self.all():
            waiting: list[tuple[Unit, bool]] = [(start, False)]
            while waiting:
                unit, is_ready = waiting.pop()
                if id(unit) in done:
                    continue
                if is_ready:
                    done.add(id(unit))
                    order.append(unit)
                    continue
                waiting.append((unit, True))
                for name in self.operands(unit):
                    other = self.of_value.get(name)
                    if other is not None and id(other) not in done:
                        waiting.append((other, False))
        return order


def needed_units(graph: Graph, units: Units) -> list[Unit]:
    """Return the units that outputs need, in order; operands that calls read past are not needed."""
    needed = set(graph.outputs)
    kept: list[Unit] = []
    for unit in reversed(units.ordered()):
        results = {result for node in unit.nodes for result in node.results}
        if not needed & results and unit.nodes[0].operator not in CHECKS:
            continue
        kept.append(unit)
        if unit.call is None:
            needed.update(units.operands(unit))
        else:
            needed.update(one.value for one in unit.call.arguments.values())
            read = {name for node in unit.nodes for name in node.tensors}
            needed.update(name for name in units.operands(unit) if name not in read)
    return kept[::-1]
