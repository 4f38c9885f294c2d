"""A graph of one node as a graph of many rows: every value that depends on an input gets a first axis.

There is a rule for every operator that a cell may have; others are refused by their name and the line of the
user's source.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Graph, Node, Value
from dietcode.graph.tensor_type import GraphError
from dietcode.models.importing.refusals import listed
from dietcode.recursion.kinds import ELEMENTWISE, REDUCTIONS

ROWS = Extent.of("B")
_NOT_BATCHED = "is not computed for the nodes of a level at once"
_MOST_OFFSETS = 64  # of a convolution's window: each is a slice
Shape = tuple[Extent, ...]


@dataclass
class Batching:
    """A graph of rows that is written from a graph of one.

    Attributes
    ----------
    old, new : Graph
    names : dict of str to str
        The value of the new graph for each of the old one; those of the inputs are given.
    batched : set of str
        The values of the new graph that have the axis of the rows.
    """

    old: Graph
    new: Graph
    names: dict[str, str]
    batched: set[str] = field(default_factory=set)
    source: str = ""

    def run(self) -> None:
        """Write all nodes, and the outputs, each with the axis of the rows.

        Raises
        ------
        ModelError
            There are operators without a rule; all are named.
        """
        problems: dict[str, None] = {}
        self.batched.update(self.names.values())
        for name, type_ in self.old.weights.items():
            self.names[name] = name if name in self.new.weights else self.new.add_weight(name, type_)
        for node in self.old.nodes:
            self.source = node.source
            try:
                self._write(node)
            except GraphError as error:
                where = f" ({node.source})" if node.source else ""
                problems[f"{node.operator}: {error}{where}"] = None
            except KeyError:
                continue  # what depends on a node that was refused says nothing new
        if problems:
            raise ModelError(
                f"{listed(list(problems))}; use other operators, or say the model with dietcode.program"
            )
        self.new.outputs += [self.rows_of(self.names[name]) for name in self.old.outputs]

    def _write(self, node: Node) -> None:
        operands = [self.names[one] if isinstance(one, str) else one for one in node.operands]
        if not any(one in self.batched for one in operands):
            first = self.add(node.operator, *operands, **node.attributes)
            results = self.new.nodes[-1].results
        else:
            rule = RULES.get(node.operator)
            if rule is None or node.graphs:
                raise GraphError(_NOT_BATCHED)
            first = rule(self, node, operands)
            results = (first,)
            self.batched.add(first)
        self.names.update(zip(node.results, results, strict=True))

    def add(self, operator: str, *operands: Value, **attributes: Any) -> str:
        """Write a node and return the name of its first result."""
        return self.new.add(operator, *operands, source=self.source, **attributes)

    def shape(self, name: Value) -> Shape:
        """Return the shape of a value for one node."""
        own = self.new.types[str(name)].shape
        return own[1:] if name in self.batched else own

    def rows(self, operator: str, *operands: Value, **attributes: Any) -> str:
        """Write a node whose result has the axis of the rows."""
        name = self.add(operator, *operands, **attributes)
        self.batched.add(name)
        return name

    def reshaped(self, name: str, shape: Shape) -> str:
        """Return a value with another shape for one node."""
        if self.shape(name) == shape:
            return name
        if name in self.batched:
            return self.rows("reshape", name, shape=(ROWS, *shape))
        return self.add("reshape", name, shape=shape)

    def rows_of(self, name: str) -> str:
        """Return a value with the axis of the rows: itself, or one that is the same in all of them."""
        if name in self.batched:
            return name
        shape = self.shape(name)
        return self.rows("expand", self.add("reshape", name, shape=(ONE, *shape)), shape=(ROWS, *shape))


Rule = Callable[[Batching, Node, list[Any]], str]


def _elementwise(b: Batching, node: Node, operands: list[Any]) -> str:
    """Align ranks: the axis of the rows has to stay the first."""
    rank = max(len(b.shape(one)) for one in operands if isinstance(one, str))
    given = [
        b.reshaped(one, (ONE,) * (rank - len(b.shape(one))) + b.shape(one)) if one in b.batched else one
        for one in operands
    ]
    return b.add(node.operator, *given, **node.attributes)


def _rank(b: Batching, name: Value) -> int:
    return len(b.shape(name))


def _reduction(b: Batching, node: Node, operands: list[Any]) -> str:
    rank = _rank(b, operands[0])
    axes = tuple(axis % rank + 1 for axis in node.attributes["axes"] or range(rank))
    if not rank:
        return str(operands[0])
    return b.add(node.operator, operands[0], axes=axes, keep=node.attributes["keep"])


def _one_axis(b: Batching, node: Node, operands: list[Any]) -> str:
    axis = node.attributes["axis"] % _rank(b, operands[0]) + 1
    return b.add(node.operator, operands[0], **(dict(node.attributes) | {"axis": axis}))


def _same(b: Batching, node: Node, operands: list[Any]) -> str:
    """Write an operator on last axes alone."""
    if any(one in b.batched for one in operands[1:]):
        raise GraphError("has weights that depend on the node's values; allowed: constants")
    return b.add(node.operator, *operands, **node.attributes)


def _linear(b: Batching, node: Node, operands: list[Any]) -> str:
    x, w, *bias = operands
    if w not in b.batched:
        if bias and bias[0] in b.batched:
            return _elementwise_of(b, "add", b.rows("linear", x, w), bias[0])
        return b.add("linear", *operands)
    product = _product(b, x, _transposed(b, w))
    return _elementwise_of(b, "add", product, bias[0]) if bias and bias[0] is not None else product


def _elementwise_of(b: Batching, operator: str, *operands: str) -> str:
    return _elementwise(b, Node(operator, (), {}, ()), list(operands))


def _transposed(b: Batching, name: str) -> str:
    if name in b.batched:
        return b.rows("transpose", name, axes=(0, 2, 1))
    return b.add("transpose", name, axes=(1, 0))


def _matmul(b: Batching, node: Node, operands: list[Any]) -> str:
    return _product(b, operands[0], operands[1])


def _product(b: Batching, first: str, second: str) -> str:
    """Return the product of vectors, matrices and batches of them, for each row."""
    ranks = (_rank(b, first), _rank(b, second))
    shapes = (b.shape(first), b.shape(second))
    if ranks == (1, 1):
        return b.rows("sum", b.rows("mul", first, second), axes=(1,))
    if second not in b.batched and ranks[1] <= 2:
        if ranks[1] == 2:
            return b.rows("matmul", first, second)
        wide = b.rows("linear", first, b.add("reshape", second, shape=(ONE, *shapes[1])))
        return b.reshaped(wide, shapes[0][:-1])
    if first not in b.batched and ranks == (2, 1):
        return b.rows("linear", second, first)
    if ranks == (2, 1):  # as a row times the transpose, whose columns lie along vectors
        row = b.reshaped(second, (ONE, *shapes[1])) if second in b.batched else second
        wide = _product(b, row, _transposed(b, first))
        return b.reshaped(wide, shapes[0][:-1])
    rank = max(*ranks, 2)
    first = b.reshaped(first, _matrix(shapes[0], rank, is_row=True))
    second = b.reshaped(second, _matrix(shapes[1], rank, is_row=False))
    wide = b.rows("matmul", first, second)
    shape = b.shape(wide)
    if ranks[1] == 1:
        shape = shape[:-1]
    elif ranks[0] == 1:
        shape = (*shape[:-2], shape[-1])
    return b.reshaped(wide, shape)


def _matrix(shape: Shape, rank: int, is_row: bool) -> Shape:
    """Return the shape of a vector as a matrix, and of a matrix among batches of `rank` axes."""
    if len(shape) == 1:
        shape = (ONE, *shape) if is_row else (*shape, ONE)
    return (ONE,) * (rank - len(shape)) + shape


def _attention(b: Batching, node: Node, operands: list[Any]) -> str:
    """Return attention of few positions as two products and a softmax."""
    q, k, v, *mask = operands
    if node.attributes["causal"] != "none" or b.shape(q)[:-2] != b.shape(k)[:-2]:
        raise GraphError("is causal, or has heads that share keys; allowed: neither")
    axes = [*range(_rank(b, k) - 2), _rank(b, k) - 1, _rank(b, k) - 2]
    if k in b.batched:
        turned = b.rows("transpose", k, axes=(0, *(axis + 1 for axis in axes)))
    else:
        turned = b.add("transpose", k, axes=tuple(axes))
    scores = b.rows("mul", _product(b, q, turned), node.attributes["scale"])
    if mask:
        scores = _elementwise_of(b, "add", scores, mask[0])
        b.batched.add(scores)
    masked = node.attributes["masked_rows"]
    return _product(b, b.rows("softmax", scores, axis=_rank(b, scores), masked_rows=masked), v)


def _concat(b: Batching, node: Node, operands: list[Any]) -> str:
    axis = node.attributes["axis"] % _rank(b, operands[0]) + 1
    return b.add("concat", *(b.rows_of(one) for one in operands), axis=axis)


def _conv(b: Batching, node: Node, operands: list[Any]) -> str:
    """Return a convolution as one product of what each window reads, element after element.

    Windows at the same offset are a slice of the padded value.
    """
    x, w, *bias = operands
    if any(one in b.batched for one in (w, *bias)) or x not in b.batched:
        raise GraphError("has weights that depend on the node's values; allowed: constants")
    attributes, groups = node.attributes, node.attributes["groups"]
    (many, _, *_), (rows, depth, *window) = b.shape(x), b.new.types[str(w)].shape
    spatial = b.old.types[node.result].shape[2:]
    if math.prod(one.constant for one in window) > _MOST_OFFSETS:
        raise GraphError(f"has windows of more than {_MOST_OFFSETS} elements")
    if any(map(any, attributes["pads"])):
        x = b.rows("pad", x, pads=((0, 0),) * 3 + tuple(attributes["pads"]), value=0.0)
    rank = len(window)
    parts = []
    for group in range(groups):
        own = x if groups == 1 else _piece(b, x, 2, depth * group, depth * (group + 1), 1)
        read = _windows(b, node, own, window)
        per = Extent.of(rows.constant // groups)
        own_rows = {"axis": 0, "start": per * group, "stop": per * (group + 1), "step": 1}
        mine = w if groups == 1 else b.add("slice", w, **own_rows)
        mine = b.add("transpose", mine, axes=(0, *range(2, rank + 2), 1))
        mine = b.add("reshape", mine, shape=(per, _product_of((*window, depth))))
        flat = b.reshaped(read, (many * _product_of(spatial), _product_of((*window, depth))))
        parts.append(b.rows("linear", flat, mine))
    made = b.rows("concat", *parts, axis=2) if groups > 1 else parts[0]
    if bias and bias[0] is not None:
        made = b.rows("add", made, bias[0])
    made = b.reshaped(made, (many, *spatial, rows))
    return b.rows("transpose", made, axes=(0, 1, rank + 2, *range(2, rank + 2)))


def _windows(b: Batching, node: Node, x: str, window: Sequence[Extent]) -> str:
    """Return what each window of x [B, n, c, spatial…] reads, as [B, n, spatial…, elements · c]."""
    spatial = b.old.types[node.result].shape[2:]
    axes = list(range(3, 3 + len(window)))
    offsets = []
    for at in itertools.product(*(range(one.constant) for one in window)):
        piece = x
        options = node.attributes["strides"], node.attributes["dilation"], spatial
        for axis, k, step, apart, count in zip(axes, at, *options, strict=True):
            stop = k * apart + (count.constant - 1) * step + 1
            piece = _piece(b, piece, axis, Extent.of(k * apart), Extent.of(stop), step)
        offsets.append(b.rows("transpose", piece, axes=(0, 1, *axes, 2)))  # what is added up comes last
    return b.rows("concat", *offsets, axis=len(window) + 2) if len(offsets) > 1 else offsets[0]


def _piece(b: Batching, x: str, axis: int, start: Extent, stop: Extent, step: int) -> str:
    whole = start == Extent() and stop == b.new.types[x].shape[axis] and step == 1
    return x if whole else b.rows("slice", x, axis=axis, start=start, stop=stop, step=step)


def _product_of(shape: Sequence[Extent]) -> Extent:
    return Extent.of(math.prod(one.constant for one in shape))


def _reshape(b: Batching, node: Node, operands: list[Any]) -> str:
    return b.add("reshape", operands[0], shape=(ROWS, *node.attributes["shape"]))


def _transpose(b: Batching, node: Node, operands: list[Any]) -> str:
    return b.add("transpose", operands[0], axes=(0, *(axis + 1 for axis in node.attributes["axes"])))


def _expand(b: Batching, node: Node, operands: list[Any]) -> str:
    shape, own = node.attributes["shape"], b.shape(operands[0])
    aligned = b.reshaped(operands[0], (ONE,) * (len(shape) - len(own)) + own)
    return b.add("expand", aligned, shape=(ROWS, *shape))


def _pad(b: Batching, node: Node, operands: list[Any]) -> str:
    return b.add("pad", operands[0], pads=((0, 0), *node.attributes["pads"]), value=node.attributes["value"])


def _flip(b: Batching, node: Node, operands: list[Any]) -> str:
    rank = _rank(b, operands[0])
    return b.add("flip", operands[0], axes=tuple(axis % rank + 1 for axis in node.attributes["axes"]))


def _take(b: Batching, node: Node, operands: list[Any]) -> str:
    table, positions = operands
    axis, wraps = node.attributes["axis"] % _rank(b, table), node.attributes["wraps"]
    if table not in b.batched:
        if axis:
            raise GraphError("takes positions along a later axis of a constant; allowed: along the first")
        return b.add("take", table, positions, axis=0, wraps=wraps)
    if positions in b.batched:
        raise GraphError("takes positions that depend on values out of what depends on them")
    return b.add("take", table, positions, axis=axis + 1, wraps=wraps)


def _one_hot(b: Batching, node: Node, operands: list[Any]) -> str:
    """Ones at positions of zeros along the last axis -> whether the position is each of them."""
    filled = {one.result: one.attributes["value"] for one in b.old.nodes if one.operator == "full"}
    none, _, one = node.operands
    is_one_hot = (filled.get(str(none)), filled.get(str(one)), node.attributes["by"]) == (0, 1, "set")
    shape, axis = b.old.types[str(none)].shape, node.attributes["axis"]
    if not is_one_hot or axis % len(shape) != len(shape) - 1 or b.shape(operands[1])[-1] != ONE:
        raise GraphError(_NOT_BATCHED)
    counted = b.add("arange", stop=shape[-1], dtype=b.new.types[operands[1]].dtype)
    return b.add("cast", b.add("equal", operands[1], counted), dtype=b.old.types[node.result].dtype)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(("argmax", "argmin", "softmax", "log_softmax", "slice"), _one_axis),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), _one_axis),
    **dict.fromkeys(("layernorm", "rmsnorm", "rotate", "triangle"), _same),
    "linear": _linear,
    "matmul": _matmul,
    "attention": _attention,
    "conv": _conv,
    "concat": _concat,
    "reshape": _reshape,
    "transpose": _transpose,
    "expand": _expand,
    "pad": _pad,
    "flip": _flip,
    "take": _take,
    "scatter_along": _one_hot,
}
"""Operators that have a rule, with it: it takes the batching, the node and its operands in the new graph."""
