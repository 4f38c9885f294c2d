"""A cell that takes all children in one tensor, as one that takes each by itself.

A value whose first axis is the children becomes a list of values without this axis. Functions of elements,
products and norms are applied to each; a sum over the children becomes additions. What needs them together
is given them together, one after the other.

A cell that takes each child by itself may put them together, as ``torch.stack`` does, or view what a product
gives as so many rows, as gates: these axes are taken apart in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import accumulate
from typing import Any, TypeAlias

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Graph, Node, Value
from dietcode.graph.tensor_type import TensorType
from dietcode.recursion.kinds import ELEMENTWISE, REDUCTIONS
from dietcode.workload.operators import MAX_GATES

_COMBINED = {
    "sum": "add",
    "mean": "add",
    "max": "maximum",
    "min": "minimum",
    "prod": "mul",
    "any": "or",
    "all": "and",
}
Parts: TypeAlias = "list[str]"


def unrolled(graph: Graph, num_inputs: int, children: int, num_states: int) -> Graph:
    """Return the cell that takes the states of the first child, then those of the second, and so on.

    Parameters
    ----------
    graph : Graph
        Of one node; its inputs are `num_inputs` of the node, then each state of all children.
    num_inputs : int
    children : int
    num_states : int
    """
    return _Unrolling(graph, num_inputs, children, num_states).run()


def taken_apart(graph: Graph) -> Graph:
    """Return a cell in which each of what is stacked, or viewed as several rows, is a value of its own.

    Parameters
    ----------
    graph : Graph
        Of one node, whose inputs stay as they are.
    """
    return _Apart(graph, len(graph.inputs), 0, 0).run()


class _Unrolling:
    def __init__(self, old: Graph, num_inputs: int, children: int, num_states: int) -> None:
        self._old, self._children = old, children
        self._new = Graph(old.name, old.ranges)
        self._parts: dict[str, Parts] = {}
        self._names: dict[str, str] = {}
        self._source = ""
        names = list(old.inputs)
        for name in names[:num_inputs]:
            self._names[name] = self._new.add_input(name, old.inputs[name])
        states = names[num_inputs : num_inputs + num_states]
        for child in range(children):
            for name in states:
                type_ = old.inputs[name]
                own = self._new.add_input(f"{name}:{child}", TensorType(type_.dtype, type_.shape[1:]))
                self._parts.setdefault(name, []).append(own)
        for name, type_ in old.weights.items():
            self._names[name] = self._new.add_weight(name, type_)

    def run(self) -> Graph:
        for node in self._old.nodes:
            self._source = node.source
            parts = self._in_parts(node)
            if parts is None:
                self._whole(node)
            elif parts:
                self._parts[node.result] = parts
        self._new.outputs = [self._together(name) for name in self._old.outputs]
        self._new.without_unused()
        return self._new

    def _add(self, operator: str, *operands: Value, **attributes: Any) -> str:
        return self._new.add(operator, *operands, source=self._source, **attributes)

    def _shape(self, name: str) -> tuple[Extent, ...]:
        return self._new.types[name].shape

    def _whole(self, node: Node) -> None:
        """Write a node as it is, over children that are together."""
        operands = tuple(self._together(one) if isinstance(one, str) else one for one in node.operands)
        first = self._add(node.operator, *operands, **node.attributes)
        results = self._new.producers()[first].results if len(node.results) > 1 else (first,)
        self._names.update(zip(node.results, results, strict=True))

    def _together(self, name: str) -> str:
        """Return a value with the axis of the children."""
        if name in self._names:
            return self._names[name]
        parts = [self._add("reshape", one, shape=(ONE, *self._shape(one))) for one in self._parts[name]]
        self._names[name] = self._add("concat", *parts, axis=0)
        return self._names[name]

    def _in_parts(self, node: Node) -> Parts | None:
        """Return a result for each child; None where a node is over all of them, or over none.

        No result at all where the node's result is known by its name already.
        """
        if node.operator == "concat" and not node.attributes["axis"] % self._old.types[node.result].rank:
            return self._listed(node)
        if not any(one in self._parts for one in node.tensors) or node.graphs:
            return None
        if node.operator in ELEMENTWISE:
            return self._elementwise(node)
        if node.operands[0] not in self._parts:
            return None
        rule = _RULES.get(node.operator)
        return None if rule is None else rule(self, node, self._parts[str(node.operands[0])])

    def _listed(self, node: Node) -> Parts | None:
        """Return what lies along the first axis, where it is as many as there are children."""
        parts: list[str] = []
        for one in node.tensors:
            shape = self._old.types[one].shape
            if one in self._parts:
                parts += self._parts[one]
            elif len(shape) > 1 and shape[0] == ONE:
                parts.append(self._add("reshape", self._names[one], shape=shape[1:]))
            else:
                return None
        return parts if self._is_count(len(parts)) else None

    def _is_count(self, count: int) -> bool:
        """Whether so many rows are those of the children."""
        return count == self._children

    def _elementwise(self, node: Node) -> Parts | None:
        rank = self._old.types[node.result].rank
        own = [one for one in node.tensors if one in self._parts]
        counts = {len(self._parts[one]) for one in own}
        if any(self._old.types[one].rank != rank for one in own):
            return None
        rows = self._old.types[node.result].shape[0]
        if rows == ONE or (rows.is_constant and self._is_count(rows.constant)):
            count = rows.constant  # of one that was kept, and of what it meets
        else:
            count = max(counts)
        if Extent.of(count) != rows or not counts <= {1, count}:
            return None
        columns: list[list[Value]] = [self._of_each(one, rank, count) for one in node.operands]
        return [
            self._add(node.operator, *operands, **node.attributes) for operands in zip(*columns, strict=True)
        ]

    def _of_each(self, operand: Value, rank: int, count: int) -> list[Value]:
        """Return an operand for each child, without the axis of the children."""
        if not isinstance(operand, str):
            return [operand] * count
        if operand in self._parts:
            own = self._parts[operand]
            return list(own if len(own) == count else own * count)
        name = self._names[operand]
        shape = self._shape(name)
        if len(shape) < rank:
            return [name] * count
        if shape[0] == ONE:
            return [self._add("reshape", name, shape=shape[1:])] * count
        rows = (self._add("slice", name, axis=0, start=k, stop=k + 1, step=1) for k in range(count))
        return [self._add("reshape", one, shape=shape[1:]) for one in rows]

    def reduced(self, node: Node, parts: Parts) -> Parts | None:
        rank = self._old.types[str(node.operands[0])].rank
        axes = sorted(axis % rank for axis in node.attributes["axes"] or range(rank))
        keep = node.attributes["keep"]
        rest = tuple(axis - 1 for axis in axes if axis)
        if rest:
            parts = [self._add(node.operator, one, axes=rest, keep=keep) for one in parts]
        if 0 not in axes:
            return parts
        if node.operator not in _COMBINED:
            return None
        found = reduce(lambda a, b: self._add(_COMBINED[node.operator], a, b), parts)
        if node.operator == "mean":
            found = self._add("mul", found, 1 / len(parts))
        if keep:
            return [found]
        self._names[node.result] = found
        return []

    def weighted(self, node: Node, parts: Parts) -> Parts | None:
        """Return a softmax over the children."""
        rank = self._old.types[str(node.operands[0])].rank
        axis = node.attributes["axis"] % rank
        if axis:
            masked = node.attributes["masked_rows"]
            return [self._add("softmax", one, axis=axis - 1, masked_rows=masked) for one in parts]
        largest = reduce(lambda a, b: self._add("maximum", a, b), parts)
        powers = [self._add("exp", self._add("sub", one, largest)) for one in parts]
        total = reduce(lambda a, b: self._add("add", a, b), powers)
        return [self._add("div", one, total) for one in powers]

    def of_each(self, node: Node, parts: Parts) -> Parts | None:
        """Return a product or a norm of each child, along the last axis."""
        rank = self._old.types[str(node.operands[0])].rank
        num_axes = node.attributes.get("num_axes", 1)
        others = [self._together(one) if isinstance(one, str) else one for one in node.operands[1:]]
        is_batched = node.operator == "matmul" and len(self._shape(str(others[0]))) > 2
        if rank <= num_axes or is_batched:
            return None
        return [self._add(node.operator, one, *others, **node.attributes) for one in parts]

    def sliced(self, node: Node, parts: Parts) -> Parts | None:
        rank = self._old.types[str(node.operands[0])].rank
        axis = node.attributes["axis"] % rank
        if axis:
            return [self._add("slice", one, **(dict(node.attributes) | {"axis": axis - 1})) for one in parts]
        start, stop = (node.attributes[word].constant for word in ("start", "stop"))
        return parts[start : stop : node.attributes["step"]] or None

    def accumulated(self, node: Node, parts: Parts) -> Parts | None:
        """Return sums of each child and those before it."""
        axis = node.attributes["axis"] % self._old.types[str(node.operands[0])].rank
        if axis:
            return [self._add("cumsum", one, axis=axis - 1) for one in parts]
        return list(accumulate(parts, lambda a, b: self._add("add", a, b)))

    def flipped(self, node: Node, parts: Parts) -> Parts | None:
        rank = self._old.types[str(node.operands[0])].rank
        axes = {axis % rank for axis in node.attributes["axes"]}
        rest = tuple(sorted(axis - 1 for axis in axes if axis))
        if rest:
            parts = [self._add("flip", one, axes=rest) for one in parts]
        return parts[::-1] if 0 in axes else parts

    def reshaped(self, node: Node, parts: Parts) -> Parts | None:
        shape = node.attributes["shape"]
        if len(parts) == 1 and shape == self._shape(parts[0]):
            self._names[node.result] = parts[0]
            return []
        own = self._shape(parts[0])
        if own and shape == (own[0] * len(parts), *own[1:]):
            self._names[node.result] = self._add("concat", *parts, axis=0)
            return []
        if not shape or shape[0] != Extent.of(len(parts)):
            return None
        return [self._add("reshape", one, shape=shape[1:]) for one in parts]


class _Apart(_Unrolling):
    """Takes apart what a cell of separate children stacks, or views as rows."""

    def _is_count(self, count: int) -> bool:
        return 2 <= count <= MAX_GATES

    def _in_parts(self, node: Node) -> Parts | None:
        if node.operator == "reshape" and node.operands[0] in self._names:
            return self._viewed(node)
        return super()._in_parts(node)

    def _viewed(self, node: Node) -> Parts | None:
        """Return the rows of ``[count * n, …]`` as ``[count, n, …]``, which is there as a whole too."""
        name, shape = self._names[str(node.operands[0])], node.attributes["shape"]
        own = self._shape(name)
        is_view = (
            own and len(shape) == len(own) + 1 and shape[2:] == own[1:] and shape[0] * shape[1] == own[0]
        )
        if name in self._new.weights or not is_view or not self._is_count(shape[0].constant):
            return None
        self._whole(node)
        width = shape[1]
        return [
            self._add("slice", name, axis=0, start=width * at, stop=width * (at + 1), step=1)
            for at in range(shape[0].constant)
        ]


_RULES: dict[str, Callable[[_Unrolling, Node, Parts], Parts | None]] = {
    **dict.fromkeys(REDUCTIONS, _Unrolling.reduced),
    "softmax": _Unrolling.weighted,
    **dict.fromkeys(("linear", "matmul", "layernorm", "rmsnorm"), _Unrolling.of_each),
    "cumsum": _Unrolling.accumulated,
    "flip": _Unrolling.flipped,
    "slice": _Unrolling.sliced,
    "reshape": _Unrolling.reshaped,
}
