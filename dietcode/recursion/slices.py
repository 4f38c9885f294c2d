"""Slices along the last axis, as gates have it, move up to the products that they take apart."""

from __future__ import annotations

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Graph, Node, Value
from dietcode.models.rewriting.rewriter import Rewriter, Rule
from dietcode.models.rewriting.transposition import sliced
from dietcode.recursion.kinds import ELEMENTWISE


def moved_slices(graph: Graph) -> Rule:
    """Return a rule for a graph.

    ``slice(f(x, y))`` along the last axis -> ``f(slice(x), slice(y))``, where nothing reads f but slices, and
    ``slice(linear(x, W))`` -> ``linear(x, slice(W))``.
    """
    return _Moving(graph).rule


class _Moving:
    def __init__(self, graph: Graph) -> None:
        self._movable = _movable(graph)

    def rule(self, r: Rewriter, node: Node) -> str | None:
        if node.operator != "slice":
            return None
        if not _is_last(r, node):
            return sliced(r, node)
        return str(self._part(r, node.operands[0], node.attributes["start"], node.attributes["stop"]))

    def _part(self, r: Rewriter, value: Value, start: Extent, stop: Extent) -> Value:
        """Return the columns of a value from `start` to before `stop`; what has one column stays."""
        if not isinstance(value, str) or r.type(value).shape[-1:] in ((), (ONE,)):
            return value
        if start == Extent() and stop == r.type(value).shape[-1]:
            return value
        before = r.producer(value, *ELEMENTWISE, "slice", "concat", "expand")
        found = None if before is None else self._of_producer(r, before, start, stop)
        if found is not None:
            return found
        name = r.add("slice", value, axis=r.type(value).rank - 1, start=start, stop=stop, step=1)
        made = r.producer(name)
        found = None if made is None else sliced(r, made)
        return name if found is None else found

    def _of_producer(self, r: Rewriter, node: Node, start: Extent, stop: Extent) -> Value:
        """Return columns of what a node computes, by columns of what it reads; None where it cannot be."""
        if node.operator == "slice" and _is_last(r, node):
            first = node.attributes["start"]
            return self._part(r, node.operands[0], first + start, first + stop)
        if node.operator == "concat":
            inside = _part_of_concat(r, node, start, stop)
            return None if inside is None else self._part(r, *inside)
        if node.operator == "expand":
            source = self._part(r, node.operands[0], start, stop)
            return r.add("expand", source, shape=(*r.type(node.result).shape[:-1], stop - start))
        if node.operator in ELEMENTWISE and node.result in self._movable:
            operands = [self._part(r, one, start, stop) for one in node.operands]
            return r.add(node.operator, *operands, **node.attributes)
        return None


def _is_last(r: Rewriter, node: Node) -> bool:
    rank = r.type(node.operands[0]).rank
    return int(node.attributes["axis"]) % rank == rank - 1 and node.attributes["step"] == 1


def _part_of_concat(
    r: Rewriter, node: Node, start: Extent, stop: Extent
) -> tuple[str, Extent, Extent] | None:
    """Return the operand of a concatenation that holds a slice, and where in it."""
    rank = r.type(node.result).rank
    if node.attributes["axis"] % rank != rank - 1:
        return None
    begin = 0
    for one in node.tensors:
        width = r.type(one).shape[-1].constant
        if begin <= start.constant and stop.constant <= begin + width:
            return one, start - begin, stop - begin
        begin += width
    return None


def _movable(graph: Graph) -> set[str]:
    """Return the values that slices along the last axis alone read, also through functions of elements."""
    consumers = graph.consumers()
    found: set[str] = set()
    for node in reversed(graph.nodes):
        shape = graph.types[node.result].shape
        if node.operator not in ELEMENTWISE or node.result in graph.outputs or not shape:
            continue
        readers = consumers[node.result]
        if all(
            (one.operator == "slice" and one.attributes["axis"] % len(shape) == len(shape) - 1)
            or (one.result in found and graph.types[one.result].shape[-1] == shape[-1])
            for one in readers
        ):
            found.add(node.result)
    return found
