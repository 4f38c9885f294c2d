"""Nodes that compute nothing, as moves of elements, which the runtime's loop does itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Graph, Node
from dietcode.recursion.batching import ROWS

MOVES = frozenset({"concat", "transpose", "flip", "pad", "expand", "slice", "take"})
_MAX_AXES = 8


@dataclass(frozen=True)
class Source:
    """Where the rows of a value lie.

    Attributes
    ----------
    value : str
    positions : str or None
        Which of its rows each row is.
    shape : tuple of int
        Of a row.
    """

    value: str
    positions: str | None
    shape: tuple[int, ...]


@dataclass
class _Move:
    shape: Sequence[int]
    strides: Sequence[int]
    begin: int = 0
    to: Sequence[int] = ()
    to_begin: int = 0
    source: Source | None = None
    filler: float = 0.0
    result: str = field(default="", init=False)


def is_move(node: Node, graph: Graph) -> bool:
    """Whether a node can be moves of elements of rows."""
    types = [graph.types[one] for one in (*node.tensors[:1], node.result)] if node.tensors else []
    if node.operator not in MOVES or any(one.dtype != "float32" or one.rank > _MAX_AXES for one in types):
        return False
    if node.operator == "take":
        return bool(node.attributes["axis"] == 0)
    if node.operator == "transpose":
        return bool(node.attributes["axes"][0] == 0)
    if node.operator == "pad":
        return bool(node.attributes["pads"][0] == (0, 0) and min(map(min, node.attributes["pads"])) >= 0)
    if node.operator in ("concat", "slice"):
        return bool(node.attributes["axis"] % types[0].rank > 0)
    return node.operator != "flip" or all(axis % types[0].rank for axis in node.attributes["axes"])


def moves_of(graph: Graph, node: Node, sources: Sequence[Source]) -> list[dict[str, Any]]:
    """Return the steps that write a node's rows.

    Parameters
    ----------
    graph : Graph
    node : Node
        `is_move`.
    sources : sequence of Source
        Of its operands; that of a table for ``take``.
    """
    shape = [extent.constant for extent in graph.types[node.result].shape[1:]]
    moves = _RULES[node.operator](node, sources, shape)
    steps = []
    for one in moves:
        source = one.source
        steps.append(
            {
                "move": None if source is None else source.value,
                "rows": None if source is None else source.positions,
                "shape": list(one.shape),
                "from": [one.begin, list(one.strides)],
                "result": node.result,
                "to": [one.to_begin, list(one.to or _strides(shape))],
                "filler": one.filler,
            }
        )
    return steps


def row_shape(shape: Sequence[Extent]) -> tuple[int, ...]:
    """Return the shape of a row of a value; of a constant, which has no rows, without a first axis of one."""
    own = shape[1:] if shape[:1] in ((ROWS,), (ONE,)) else shape
    return tuple(extent.constant for extent in own)


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _slice(node: Node, sources: Sequence[Source], shape: Sequence[int]) -> list[_Move]:
    (source,) = sources
    strides = _strides(source.shape)
    axis = node.attributes["axis"] % (len(shape) + 1) - 1
    begin = node.attributes["start"].constant * strides[axis]
    strides[axis] *= node.attributes["step"]
    return [_Move(shape, strides, begin, source=source)]


def _concat(node: Node, sources: Sequence[Source], shape: Sequence[int]) -> list[_Move]:
    axis = node.attributes["axis"] % (len(shape) + 1) - 1
    to, moves, begin = _strides(shape), [], 0
    for source in sources:
        own = source.shape
        moves.append(_Move(own, _strides(own), to=to, to_begin=begin * to[axis], source=source))
        begin += own[axis]
    return moves


def _transpose(node: Node, sources: Sequence[Source], shape: Sequence[int]) -> list[_Move]:
    strides = _strides(sources[0].shape)
    order = [axis - 1 for axis in node.attributes["axes"][1:]]
    return [_Move(shape, [strides[axis] for axis in order], source=sources[0])]


def _flip(node: Node, sources: Sequence[Source], shape: Sequence[int]) -> list[_Move]:
    strides, begin = _strides(shape), 0
    for axis in {axis % (len(shape) + 1) - 1 for axis in node.attributes["axes"]}:
        begin += (shape[axis] - 1) * strides[axis]
        strides[axis] *= -1
    return [_Move(shape, strides, begin, source=sources[0])]


def _pad(node: Node, sources: Sequence[Source], shape: Sequence[int]) -> list[_Move]:
    to = _strides(shape)
    own = sources[0].shape
    begin = sum(low * stride for (low, _), stride in zip(node.attributes["pads"][1:], to, strict=True))
    fill = _Move(shape, [0] * len(shape), filler=float(node.attributes["value"]))
    return [fill, _Move(own, _strides(own), to=to, to_begin=begin, source=sources[0])]


def _expand(node: Node, sources: Sequence[Source], shape: Sequence[int]) -> list[_Move]:
    own = (1,) * (len(shape) - len(sources[0].shape)) + sources[0].shape
    strides = [0 if extent == 1 else stride for extent, stride in zip(own, _strides(own), strict=True)]
    return [_Move(shape, strides, source=sources[0])]


def _take(node: Node, sources: Sequence[Source], shape: Sequence[int]) -> list[_Move]:
    return [_Move(shape, _strides(shape), source=sources[0])]


_RULES: Mapping[str, Callable[[Node, Sequence[Source], Sequence[int]], list[_Move]]] = {
    "slice": _slice,
    "concat": _concat,
    "transpose": _transpose,
    "flip": _flip,
    "pad": _pad,
    "expand": _expand,
    "take": _take,
}
