"""What depends on rows of constant tables alone, as of a table of words, is a larger table, made at load.

``f(table[ids])`` -> ``f(table)[ids]``, where f treats each row by itself: products with constant matrices are
then looked up, not computed. A product of a sum of looked-up rows is a sum of looked-up products. Tables take
memory instead, which is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import Graph, Node, Value
from dietcode.models.grouping import constants_of
from dietcode.models.rewriting.rewriter import Rewriter, rewritten
from dietcode.recursion.batching import ROWS
from dietcode.recursion.kinds import ELEMENTWISE, REDUCTIONS

MOST_TABLE_BYTES = 64 << 20  # of one table
MOST_BYTES = 256 << 20  # of all tables of one form of a cell


def looked_up(graph: Graph) -> Graph:
    """Return a graph of rows where what depends on rows of constant tables alone is read from tables."""
    return rewritten(graph, (_Tables(constants_of(graph)).rule,))


@dataclass(frozen=True)
class Lookup:
    """Rows of a constant table at positions.

    Attributes
    ----------
    table, positions : str
    num_rows : int
        Of the table; where it is 1, all positions read that row.
    """

    table: str
    positions: str
    num_rows: int


def lookup_of(graph: Graph, node: Node | None, constants: set[str]) -> Lookup | None:
    """Return what a node looks up; None where it is no lookup in a constant table."""
    if node is None or node.operator != "take" or node.attributes["axis"]:
        return None
    table, positions = map(str, node.operands)
    if table not in constants or graph.types[table].dtype != "float32" or positions not in graph.inputs:
        return None
    return Lookup(table, positions, graph.types[table].shape[0].constant)


@dataclass
class _Tables:
    """The constants of a graph that is being written, new tables among them."""

    constants: set[str]
    num_bytes: int = 0

    def rule(self, r: Rewriter, node: Node) -> str | None:
        form = _FORMS.get(node.operator)
        if form is None or node.result in self.constants or len(node.results) > 1 or node.graphs:
            return None
        return form(self, r, node)

    def _lookup(self, r: Rewriter, value: Value) -> Lookup | None:
        return lookup_of(r.graph, r.producer(value), self.constants)

    def _operand(self, r: Rewriter, value: Value, rank: int) -> Value | Lookup:
        """Return a lookup for a value that is one, and anything else as it is."""
        found = self._lookup(r, value)
        return value if found is None or r.type(value).rank != rank else found

    def _made(self, r: Rewriter, node: Node, operands: list[Value | Lookup], **changed: object) -> str | None:
        """Return the lookup that a node is; None where its operands have rows of their own, or no memory."""
        lookups = [one for one in operands if isinstance(one, Lookup)]
        many = [one for one in lookups if one.num_rows > 1] or lookups[:1]
        if not many or len({(one.positions, one.num_rows) for one in many}) > 1:
            return None
        rest = [one for one in operands if isinstance(one, str)]
        if any(one not in self.constants for one in rest):
            return None
        tables = [one.table if isinstance(one, Lookup) else one for one in operands]
        if node.operator == "concat":  # whose operands do not broadcast
            tables = [_of_rows(r, str(one), many[0].num_rows) for one in tables]
        table = r.add(node.operator, *tables, **(dict(node.attributes) | changed))
        type_ = r.type(table)
        num_bytes = 4 * math.prod(extent.constant for extent in type_.shape)
        fits = num_bytes <= MOST_TABLE_BYTES and self.num_bytes + num_bytes <= MOST_BYTES
        if type_.dtype != "float32" or type_.shape[0].constant != many[0].num_rows or not fits:
            return None
        self.num_bytes += num_bytes
        self.constants.add(table)
        return r.add("take", table, many[0].positions, axis=0)

    def elementwise(self, r: Rewriter, node: Node) -> str | None:
        rank = max((r.type(one).rank for one in node.tensors), default=0)
        for one in node.tensors:  # a constant that has as many axes must not have rows of its own
            if one in self.constants and r.type(one).rank == rank and r.type(one).shape[0] != ONE:
                return None
        return self._made(r, node, [self._operand(r, one, rank) for one in node.operands])

    def product(self, r: Rewriter, node: Node) -> str | None:
        rank = r.type(node.operands[0]).rank
        first = self._lookup(r, node.operands[0])
        if first is not None:
            return self._made(r, node, [first, *node.operands[1:]])
        terms = self._terms(r, node.operands[0]) if node.operator == "linear" and rank == 2 else None
        if terms is None or len(terms) < 2:
            return None
        parts = []
        for number, one in enumerate(terms):
            # The bias counts once.
            own = (one, *node.operands[1 : None if number == 0 else 2])
            part = self.product(r, replace(node, operands=own))
            if part is None:
                return None
            parts.append(part)
        total = parts[0]
        for part in parts[1:]:
            total = r.add("add", total, part)
        return total

    def _terms(self, r: Rewriter, value: Value) -> list[str] | None:
        """Return lookups whose sum a value is; None for a value that is no such sum."""
        if self._lookup(r, value) is not None:
            return [str(value)]
        before = r.producer(value, "add", "mul")
        if before is None or r.type(value).rank != 2:
            return None
        if before.operator == "add":
            found = [self._terms(r, one) for one in before.operands]
            return None if None in found else [one for own in found if own for one in own]
        number = next((one for one in before.operands if isinstance(one, int | float)), None)
        tensors = before.tensors
        terms = self._terms(r, tensors[0]) if number is not None and len(tensors) == 1 else None
        if terms is None:
            return None
        scaled = [self.elementwise(r, replace(before, operands=(one, number))) for one in terms]
        return None if None in scaled else [one for one in scaled if one is not None]

    def matrices(self, r: Rewriter, node: Node) -> str | None:
        """A product with a constant on either side, of rows that are vectors or matrices."""
        left, right = node.operands
        if left in self.constants and r.type(left).rank == 2 and r.type(right).rank > 2:
            found = self._lookup(r, right)
            return None if found is None else self._made(r, node, [left, found])
        return self.product(r, node) if right in self.constants and r.type(right).rank == 2 else None

    def along_rows(self, r: Rewriter, node: Node) -> str | None:
        """What treats each row by itself unless it goes along the first axis."""
        rank = r.type(node.operands[0]).rank
        axes = node.attributes.get("axes", (node.attributes.get("axis", -1),))
        if not axes or any(axis % rank == 0 for axis in axes) or node.attributes.get("num_axes", 1) >= rank:
            return None
        return self._made(r, node, [self._operand(r, one, rank) for one in node.operands])

    def turned(self, r: Rewriter, node: Node) -> str | None:
        own = self._lookup(r, node.operands[0])
        return None if own is None or node.attributes["axes"][0] else self._made(r, node, [own])

    def shaped(self, r: Rewriter, node: Node) -> str | None:
        own, shape = self._lookup(r, node.operands[0]), node.attributes["shape"]
        if own is None or shape[:1] != (ROWS,):
            return None
        return self._made(r, node, [own], shape=(Extent.of(own.num_rows), *shape[1:]))


def _of_rows(r: Rewriter, table: str, num_rows: int) -> str:
    """Return a table with as many rows as others have, where it has one for all."""
    first, *rest = r.type(table).shape
    if first != ONE or num_rows == 1:
        return table
    return r.add("expand", table, shape=(Extent.of(num_rows), *rest))


_FORMS: Mapping[str, Callable[[_Tables, Rewriter, Node], str | None]] = {
    **dict.fromkeys(ELEMENTWISE, _Tables.elementwise),
    **dict.fromkeys(REDUCTIONS, _Tables.along_rows),
    **dict.fromkeys(("softmax", "layernorm", "rmsnorm", "slice", "concat", "flip"), _Tables.along_rows),
    "linear": _Tables.product,
    "matmul": _Tables.matrices,
    "transpose": _Tables.turned,
    "reshape": _Tables.shaped,
}


def multiply_adds(graph: Graph) -> int:
    """Return the multiplications that the products of a graph take for a row."""
    constants, total = constants_of(graph), 0
    for node in graph.nodes:
        if node.operator in ("linear", "matmul") and node.result not in constants:
            own = graph.types[node.result].shape
            depth = graph.types[node.tensors[0]].shape[-1]
            total += math.prod(one.constant for one in (*own, depth) if one.is_constant)
    return total
