"""A cell's graph of rows in the form that one kernel has.

Slices move up to the products and take these apart; products of rows that lie one after the other become sums
of products; then all products of the same rows become one, whose slices are gates.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from dietcode.graph.attributes import plain
from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Graph, Node, Value
from dietcode.graph.tensor_type import broadcast
from dietcode.models.grouping import constants_of
from dietcode.models.rewriting.activations import ACTIVATIONS
from dietcode.models.rewriting.dense import DENSE
from dietcode.models.rewriting.patterns import guarded, rmsnorm
from dietcode.models.rewriting.rewriter import Rewriter, Rule, rewritten
from dietcode.models.rewriting.transposition import reshape as reshaped
from dietcode.models.rewriting.transposition import transposes
from dietcode.recursion.arithmetic import arithmetic
from dietcode.recursion.batching import ROWS
from dietcode.recursion.kinds import ELEMENTWISE
from dietcode.recursion.passes import ALL, Passes
from dietcode.recursion.slices import moved_slices
from dietcode.recursion.squeezing import SQUEEZING
from dietcode.recursion.tables import looked_up
from dietcode.workload.operators import MAX_GATES


def canonical(graph: Graph, order: str, passes: Passes = ALL) -> Graph:
    """Return the graph that is hoisted from and taken apart.

    Parameters
    ----------
    graph : Graph
        Of rows.
    order : str
        Its input of positions that each row has, for rows that are all the same.
    passes : Passes
        Of which tables and joined gates belong here.
    """
    graph = rewritten(graph, (arithmetic(constants_of(graph)),))
    graph = rewritten(
        graph, (rmsnorm, guarded, *ACTIVATIONS, *DENSE, transposes, reshaped, *SQUEEZING, _of_each)
    )
    graph = rewritten(graph, (moved_slices(graph), transposes, reshaped, *SQUEEZING))
    constants = constants_of(graph)
    graph = rewritten(graph, (_split(constants), *DENSE, _rows_alike(order)))
    if passes.tables:
        graph = looked_up(graph)
    graph = rewritten(graph, (_widened(constants_of(graph)),))
    graph = _deduplicated(graph)
    return _together(graph) if passes.joined_gates else graph


def _of_each(r: Rewriter, node: Node) -> str | None:
    """``f(concat(x, y))`` along the last axis -> ``concat(f(x), f(y))``, which a product takes apart."""
    if node.operator not in ELEMENTWISE or len(node.tensors) != 1:
        return None
    before = r.producer(node.tensors[0], "concat")
    if (
        before is None
        or before.attributes["axis"] % r.type(before.result).rank + 1 != r.type(before.result).rank
    ):
        return None
    parts = []
    for one in before.operands:
        operands = [one if isinstance(operand, str) else operand for operand in node.operands]
        parts.append(r.add(node.operator, *operands, **node.attributes))
    return r.add("concat", *parts, axis=before.attributes["axis"])


def _widened(constants: set[str]) -> Rule:
    """``f(x, [c])`` with a weight of one element -> ``f(x, [c, c, …])``, as kernels read a row."""

    def widened(r: Rewriter, node: Node) -> str | None:
        shape = max((r.type(one).shape for one in node.tensors), key=len, default=())
        if node.operator not in ELEMENTWISE or not shape or shape[-1] == ONE or node.result in constants:
            return None
        operands = list(node.operands)
        for at, one in enumerate(operands):
            if one in constants and r.type(one).num_elements == ONE:
                operands[at] = r.add("expand", r.reshape(str(one), (ONE,)), shape=shape[-1:])
        return r.add(node.operator, *operands, **node.attributes) if operands != list(node.operands) else None

    return widened


def _split(constants: set[str]) -> Rule:
    """``linear(concat(x, y), W)`` -> ``linear(x, W₁) + linear(y, W₂)``; ``W · concat(X, Y)`` likewise."""

    def split(r: Rewriter, node: Node) -> str | None:
        if node.operator not in ("linear", "matmul"):
            return None
        weight, at = (node.operands[1], 0) if node.operator == "linear" else (node.operands[0], 1)
        before = r.producer(node.operands[at], "concat")
        if before is None or weight not in constants or len(before.operands) < 2:
            return None
        rank = r.type(before.result).rank
        depth = rank - 1 if at == 0 else rank - 2
        if before.attributes["axis"] % rank != depth or r.type(weight).rank != 2:
            return None
        terms, begin = [], Extent()
        for number, one in enumerate(before.tensors):
            end = begin + r.type(one).shape[depth]
            own = r.add("slice", weight, axis=1, start=begin, stop=end, step=1)
            bias = node.operands[2:] if number == 0 else ()
            terms.append(r.add("linear", one, own, *bias) if at == 0 else r.add("matmul", own, one))
            begin = end
        return reduce(lambda a, b: r.add("add", a, b), terms)

    return split


def _rows_alike(order: str) -> Rule:
    """Rows that are all the same -> a table of one row; positions past its end read it too."""

    def alike(r: Rewriter, node: Node) -> str | None:
        if node.operator in ELEMENTWISE:
            shape = _common_shape(r, node)
            if ROWS not in shape[:1]:
                return None
            found = _without_expansion(r, node)
            is_short = found is not None and ROWS not in r.type(found).shape
            return _repeated(r, str(found), shape, order) if is_short else found
        if node.operator not in ("full", "expand") or ROWS not in node.attributes["shape"][:1]:
            return None
        shape = node.attributes["shape"]
        if node.operator == "expand":
            return _repeated(r, str(node.operands[0]), shape, order)
        table = r.add("full", **{**node.attributes, "shape": (ONE, *shape[1:])})
        return _repeated(r, table, shape, order)

    return alike


def _common_shape(r: Rewriter, node: Node) -> tuple[Extent, ...]:
    return broadcast([r.type(one).shape for one in node.tensors])


def _repeated(r: Rewriter, value: str, shape: tuple[Extent, ...], order: str) -> str | None:
    """Return rows that are all one value; None where rows have their own."""
    table = _of_one_row(r, value, len(shape))
    if table is None:
        return None
    wanted = (ONE, *shape[1:])
    return r.add(
        "take",
        table if r.type(table).shape == wanted else r.add("expand", table, shape=wanted),
        order,
        axis=0,
    )


def _of_one_row(r: Rewriter, value: str, rank: int) -> str | None:
    """Return a value that all rows have as a table of one row; None where rows have their own."""
    shape = r.type(value).shape
    padded = (ONE,) * (rank - len(shape)) + shape
    return r.reshape(value, padded) if padded[0] == ONE else None


def _without_expansion(r: Rewriter, node: Node) -> str | None:
    """Let functions of elements broadcast what another operand makes large anyway, or nothing does."""
    operands = [_source_of_rows(r, one) for one in node.operands]
    kept = [r.type(one).shape for one in operands if isinstance(one, str)]
    is_short = all(ROWS not in shape for shape in kept)
    if operands == list(node.operands) or (_common_shape(r, node) not in kept and not is_short):
        return None
    return r.add(node.operator, *operands, **node.attributes)


def _source_of_rows(r: Rewriter, value: Value) -> Value:
    """Return the one row that a value repeats, or the value."""
    before = r.producer(value, "take", "expand")
    if before is None:
        return value
    source = str(before.operands[0])
    if before.operator == "expand":
        return source if r.type(source).shape[-1:] == r.type(value).shape[-1:] else value
    return source if r.type(source).shape[0] == ONE and source not in r.graph.inputs else value


def _key(node: Node, names: Mapping[str, str]) -> Any:
    operands = tuple(names.get(one, one) if isinstance(one, str) else one for one in node.operands)
    return node.operator, operands, str(sorted((k, str(plain(v))) for k, v in node.attributes.items()))


def _deduplicated(graph: Graph) -> Graph:
    """Return the graph that computes nothing twice."""
    known: dict[Any, str] = {}

    def again(r: Rewriter, node: Node) -> str | None:
        found = known.get(_key(node, {}))
        if found is None and not node.graphs:
            known[_key(node, {})] = node.result
        return found if len(node.results) == 1 else None

    return rewritten(graph, (again,))


def _together(graph: Graph) -> Graph:
    """Return the graph with one product for all that read the same rows and have as many columns."""
    constants = constants_of(graph)
    groups: dict[tuple[str, Extent], list[Node]] = {}
    for node in graph.nodes:
        if node.operator == "linear" and node.operands[1] in constants and node.operands[0] not in constants:
            key = (str(node.operands[0]), graph.types[node.result].shape[-1])
            groups.setdefault(key, []).append(node)
    member = {
        node.result: group for group in groups.values() if 1 < len(group) <= MAX_GATES for node in group
    }
    first = [node for node in graph.nodes if node.result in constants]
    graph = _ordered(graph, [*first, *(node for node in graph.nodes if node.result not in constants)])
    made: dict[str, str] = {}

    def gate(r: Rewriter, node: Node) -> str | None:
        group = member.get(node.result)
        if group is None:
            return None
        wide = made.get(group[0].result)
        width = r.type(node.operands[1]).shape[0]
        if wide is None:
            wide = made[group[0].result] = _joined(r, node, group, width)
        at = [one.result for one in group].index(node.result)
        axis = r.type(wide).rank - 1
        return r.add("slice", wide, axis=axis, start=width * at, stop=width * (at + 1), step=1)

    return rewritten(graph, (gate,))


def _ordered(graph: Graph, nodes: list[Node]) -> Graph:
    found = Graph(graph.name, graph.ranges, dict(graph.inputs), dict(graph.weights), nodes)
    found.outputs, found.types = list(graph.outputs), dict(graph.types)
    return found


def _joined(r: Rewriter, node: Node, group: list[Node], width: Extent) -> str:
    """Return the product of rows with the matrices of several products, one below the other."""
    biases = [one.operands[2] if len(one.operands) > 2 else None for one in group]
    weight = _below_each_other(r, [str(one.operands[1]) for one in group])
    bias = []
    if any(one is not None for one in biases):
        zeros = r.add("full", shape=(width,), value=0.0, dtype="float32") if None in biases else ""
        bias = [_below_each_other(r, [zeros if one is None else str(one) for one in biases])]
    return r.add("linear", node.operands[0], weight, *bias)


def distinct_outputs(graph: Graph) -> Graph:
    """Return the graph whose outputs are each computed by a node of their own, which a kernel writes."""
    constants, producers = constants_of(graph), graph.producers()
    found = _ordered(graph, list(graph.nodes))
    known: set[str] = set()
    for at, name in enumerate(found.outputs):
        base = name
        while base in producers and producers[base].operator == "reshape":
            base = str(producers[base].operands[0])
        node = producers.get(base)
        is_written = node is not None and node.operator not in ("take", "expand", "transpose")
        if base in known or base in constants or not is_written:
            base = found.add("add", base, 0.0, source=node.source if node is not None else "")
            shape = graph.types[name].shape
            is_same = found.types[base].shape == shape
            found.outputs[at] = base if is_same else found.add("reshape", base, shape=shape)
        known.add(base)
    found.without_unused()
    return found


def _below_each_other(r: Rewriter, parts: list[str]) -> str:
    """Return matrices one below the other: the one that they are all the slices of, where it is that."""
    slices = [r.producer(one, "slice") for one in parts]
    known = [one for one in slices if one is not None and one.attributes["axis"] == 0]
    if len(known) == len(parts) and len({one.operands for one in known}) == 1:
        whole, end = str(known[0].operands[0]), Extent()
        for one in known:
            if one.attributes["start"] != end or one.attributes["step"] != 1:
                break
            end = one.attributes["stop"]
        else:
            if end == r.type(whole).shape[0]:
                return whole
    return r.add("concat", *parts, axis=0)
