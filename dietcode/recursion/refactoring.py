"""Recursive refactoring (Cortex): what a node multiplies of each child is multiplied where the child is.

    linear(h[child0], W), linear(h[child1], W)  ->  p[child0], p[child1];  p of a node is linear(h of it, W)

``p`` is one more state, which nobody is given. Each node has it once, however many children it has and
however many parents read it; leaves and roots have it too, so whether it pays depends on structures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dietcode.graph.cells import Shape
from dietcode.graph.graph import Graph, Node
from dietcode.graph.tensor_type import TensorType
from dietcode.models.grouping import constants_of

_KEEPS_ZERO = frozenset({"neg", "abs", "sign", "square", "relu", "tanh", "silu", "gelu", "sin"})
_STATE, _CHILD = "state", "child"
_Key: TypeAlias = "tuple[int, tuple[str, ...], str]"  # state, what is done to it, and the weight


@dataclass(frozen=True)
class RefactoredRows:
    """Graphs of rows with states that are theirs alone.

    Attributes
    ----------
    cell : Graph
    leaf : Graph or None
        None where none was given: the cell with zeros is one.
    inner_states : tuple of tuple of int
        The shapes of the states that it has beside its own, behind these.
    """

    cell: Graph
    leaf: Graph | None
    inner_states: tuple[Shape, ...]


def refactored(cell: Graph, leaf: Graph | None, num_states: int) -> RefactoredRows | None:
    """Return graphs in which products of single children are states; None where there is none to move.

    A product is moved where the node takes it of several children: of one, it is computed as often either
    way. What a child that is not there gives has to be zeros, as all states of it are.

    Parameters
    ----------
    cell : Graph
        Of rows, canonical but for joined gates, which reads ``state0`` and so on at ``child0`` and so on.
    leaf : Graph or None
    num_states : int
        Its first outputs.
    """
    groups = _groups(cell)
    if not groups:
        return None
    numbers = {key: num_states + at for at, key in enumerate(groups)}
    constants = constants_of(cell)
    shapes: list[Shape] = []
    new = Graph(cell.name, cell.ranges, dict(cell.inputs), dict(cell.weights))
    new.types = {**cell.inputs, **cell.weights}
    rows = cell.inputs[f"{_STATE}0"].shape[0]
    for key, nodes in groups.items():
        shape = cell.types[nodes[0].result].shape[1:]
        shapes.append(tuple(extent.constant for extent in shape))
        new.add_input(f"{_STATE}{numbers[key]}", TensorType("float32", (rows, *shape)))
    moved = {node.result: key for key, nodes in groups.items() for node in nodes}
    producers = cell.producers()
    names = {name: name for name in new.types}
    for node in cell.nodes:
        if node.result not in moved:
            _copy(new, node, names)
            continue
        take = _take_below(node, producers)
        assert take is not None  # as `_groups` has it
        table = f"{_STATE}{numbers[moved[node.result]]}"
        row = new.add("take", table, names[str(take.operands[1])], axis=0, source=node.source)
        bias = node.operands[2:]
        names[node.result] = new.add("add", row, names[str(bias[0])], source=node.source) if bias else row
    new.outputs = [names[name] for name in cell.outputs]
    _add_products(new, groups, names)
    new.without_unused()
    if leaf is not None:
        own = Graph(leaf.name, leaf.ranges, dict(leaf.inputs), dict(leaf.weights), list(leaf.nodes))
        own.types, own.outputs = dict(leaf.types), list(leaf.outputs)
        names = {}
        for _, _, weight in groups:
            _copy_constant(own, cell, weight, producers, names)
        _add_products(own, groups, names)
        leaf = own
    assert constants.issuperset(weight for _, _, weight in groups)
    return RefactoredRows(new, leaf, tuple(shapes))


def _groups(cell: Graph) -> dict[_Key, list[Node]]:
    """Return the products that several children have, by what is computed of each."""
    constants, producers = constants_of(cell), cell.producers()
    found: dict[_Key, list[Node]] = {}
    for node in cell.nodes:
        if node.operator != "linear" or not constants.issuperset(node.tensors[1:]):
            continue
        take = _take_below(node, producers)
        if take is None or cell.types[node.result].rank != cell.types[take.result].rank:
            continue
        state = int(str(take.operands[0]).removeprefix(_STATE))
        found.setdefault((state, _operators(node, producers), str(node.operands[1])), []).append(node)
    return {key: nodes for key, nodes in found.items() if len(nodes) > 1}


def _take_below(node: Node, producers: Mapping[str, Node]) -> Node | None:
    """Return the read of a child's state that a product is of; None where it is of something else."""
    below = producers.get(str(node.operands[0]))
    while below is not None and below.operator in _KEEPS_ZERO:
        below = producers.get(str(below.operands[0]))
    is_read = below is not None and below.operator == "take" and not below.attributes["axis"]
    if below is None or not is_read or not str(below.operands[0]).startswith(_STATE):
        return None
    return below if str(below.operands[1]).startswith(_CHILD) else None


def _operators(node: Node, producers: Mapping[str, Node]) -> tuple[str, ...]:
    """Return what is done to a child's state before a product, the first one first."""
    found: list[str] = []
    below = producers[str(node.operands[0])]
    while below.operator != "take":
        found.append(below.operator)
        below = producers[str(below.operands[0])]
    return tuple(reversed(found))


def _add_products(graph: Graph, groups: Mapping[_Key, list[Node]], names: Mapping[str, str]) -> None:
    for (state, operators, weight), nodes in groups.items():
        value = graph.outputs[state]
        for operator in operators:
            value = graph.add(operator, value, source=nodes[0].source)
        graph.outputs.append(graph.add("linear", value, names[weight], source=nodes[0].source))


def _copy(new: Graph, node: Node, names: dict[str, str]) -> None:
    operands = [names[one] if isinstance(one, str) else one for one in node.operands]
    new.add(node.operator, *operands, source=node.source, **node.attributes)
    names.update(zip(node.results, new.nodes[-1].results, strict=True))


def _copy_constant(
    new: Graph, old: Graph, name: str, producers: Mapping[str, Node], names: dict[str, str]
) -> None:
    """Add a constant of another graph, with what it is computed of."""
    if name in names:
        return
    node = producers.get(name)
    if node is None:
        names[name] = name if name in new.weights else new.add_weight(name, old.weights[name])
        return
    for one in node.tensors:
        _copy_constant(new, old, one, producers, names)
    _copy(new, node, names)
