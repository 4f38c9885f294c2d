"""What a block with products computes at each row and column: sums of products, reads, functions of both.

A value that has an index which slices take apart, the gates of a cell for instance, is one value for each
position along it, of which only those that are needed are computed. Products that are only added up share
accumulators. Standard library only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dietcode.workload.block_forms import after_reductions
from dietcode.workload.expansion import Primitive, expand
from dietcode.workload.operators import OPERATORS

if TYPE_CHECKING:  # needs pydantic
    from dietcode.workload.block import BlockNode

Gates = tuple[tuple[str, int], ...]
"""Indices that slices take apart, each with a position, in alphabetical order."""


@dataclass(frozen=True)
class Read:
    """A tensor that is read at a row and column.

    Attributes
    ----------
    tensor : str
    gates : Gates
        The position along each of its indices that slices take apart.
    indices : str
        Of what is read, as the block sees it here.
    positions : str or None
        The tensor of the rows to read of a table; None where `tensor` is none.
    """

    tensor: str
    gates: Gates
    indices: str
    positions: str | None = None


@dataclass(frozen=True)
class ProductTerm:
    """A product of two tensors that is summed into accumulators.

    Attributes
    ----------
    rows : Read
        What has the rows.
    columns : str
        The tensor that has the columns.
    reduction : str
        The indices that are summed over, in the order of `columns`.
    gates : Gates
        Of the column tensor.
    """

    rows: Read
    columns: str
    reduction: str
    gates: Gates


@dataclass(frozen=True)
class ProductPlan:
    """What is computed at each row and column.

    Attributes
    ----------
    accumulators : dict of str to tuple of ProductTerm
        Sets of accumulators: the products that each adds up, in order.
    reads : dict of str to Read
    primitives : tuple of Primitive
        Pointwise, each after its operands: names of accumulators, reads and primitives, or numbers.
    outputs : dict of str to str
        The value of each output.
    """

    accumulators: Mapping[str, tuple[ProductTerm, ...]]
    reads: Mapping[str, Read]
    primitives: tuple[Primitive, ...]
    outputs: Mapping[str, str]

    @property
    def terms(self) -> list[tuple[ProductTerm, list[tuple[Gates, str]]]]:
        """Products of the same tensors, each with the gates that are needed and the sum that each goes to."""
        found: dict[tuple[Read, str, str], list[tuple[ProductTerm, str]]] = {}
        for name, terms in self.accumulators.items():
            for term in terms:
                found.setdefault((term.rows, term.columns, term.reduction), []).append((term, name))
        return [
            (replace(own[0][0], gates=()), sorted((term.gates, name) for term, name in own))
            for own in found.values()
        ]


@dataclass(frozen=True)
class Halves:
    """A block in two: what is computed before any reduction along rows, and what follows.

    Attributes
    ----------
    after : dict of str to BlockNode
        Nodes that depend on a reduction, reductions themselves among them.
    inputs : tuple of str
        Tensors and earlier nodes that these read.
    set_aside : tuple of str
        Earlier nodes that they read and that are no outputs.
    outputs : tuple of str
        Outputs that are known before any reduction.
    """

    after: Mapping[str, BlockNode]
    inputs: tuple[str, ...]
    set_aside: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, nodes: Mapping[str, BlockNode], outputs: tuple[str, ...]) -> Halves:
        """Return the halves of a block; `nodes` are in order."""
        late = after_reductions(nodes)
        after = {name: node for name, node in nodes.items() if name in late}
        read = dict.fromkeys(o for node in after.values() for o in node.operands if isinstance(o, str))
        inputs = tuple(name for name in read if name not in late)
        set_aside = tuple(name for name in inputs if name in nodes and name not in outputs)
        return cls(after, inputs, set_aside, tuple(name for name in outputs if name not in late))


def plan_products(
    nodes: Mapping[str, BlockNode], indices: Mapping[str, str], outputs: tuple[str, ...], columns: str
) -> ProductPlan:
    """Return what a block with products computes before any reduction along rows.

    Parameters
    ----------
    nodes : mapping of str to BlockNode
        Each after its operands.
    indices : mapping of str to str
        Of every tensor and node.
    outputs : tuple of str
    columns : str
        Indices of the columns.
    """
    writer, halves = _Planner(nodes, indices, set(columns)), Halves.of(nodes, outputs)
    values = {name: writer.value(name, {}) for name in (*halves.outputs, *halves.set_aside)}
    values = _merge_accumulators(writer, values)
    primitives = expand(writer.functions, writer.own_indices)
    return ProductPlan(writer.accumulators, writer.reads, primitives, values)


class _Planner:
    """Collects what is needed of a graph, with positions along gates in the names."""

    def __init__(self, nodes: Mapping[str, BlockNode], indices: Mapping[str, str], columns: set[str]) -> None:
        self.nodes, self.indices, self.columns = nodes, indices, columns
        self.gates = {node.attribute("axis") for node in nodes.values() if node.operator == "slice"}
        self.accumulators: dict[str, tuple[ProductTerm, ...]] = {}
        self.reads: dict[str, Read] = {}
        self.functions: dict[str, BlockNode] = {}
        self.own_indices: dict[str, str] = {}

    def value(self, name: str, at: Mapping[str, int]) -> str:
        """Return the name of a tensor's or node's value at positions along gates."""
        own: Gates = tuple(sorted((k, at[k]) for k in self.indices[name] if k in self.gates))
        key = name + "".join(f"@{gate}{position}" for gate, position in own)
        if key in self.own_indices:
            return key
        indices = "".join(k for k in self.indices[name] if k not in self.gates)
        node = self.nodes.get(name)
        if node is None or node.operator == "gather":
            self.reads[key] = self._read(name, own)
        elif node.operator == "relabel":
            self.reads[key] = Read(str(node.operands[0]), own, self.indices[name])
        elif node.operator == "slice":
            return self.value(str(node.operands[0]), {**at, node.attribute("axis"): node.attribute("at")})
        elif OPERATORS[node.operator].is_product:
            self.accumulators[key] = (self._term(name, node, own),)
        else:
            operands = tuple(self.value(o, at) if isinstance(o, str) else o for o in node.operands)
            self.functions[key] = replace(node, operands=operands)
        self.own_indices[key] = indices
        return key

    def _term(self, name: str, node: BlockNode, at: Gates) -> ProductTerm:
        first, second = (str(operand) for operand in node.operands)
        if set(self.indices[first]) & set(self.indices[name]) & self.columns:
            first, second = second, first
        reduction = "".join(k for k in self.indices[second] if k not in self.indices[name])
        return ProductTerm(self._read(first, ()), second, reduction, at)

    def _read(self, name: str, at: Gates) -> Read:
        """Return what is read for a tensor, or for rows of a table."""
        node = self.nodes.get(name)
        if node is None:
            return Read(name, at, self.indices[name])
        table, positions = (str(operand) for operand in node.operands)
        return Read(table, at, self.indices[name], positions)


def _merge_accumulators(planner: _Planner, outputs: Mapping[str, str]) -> dict[str, str]:
    """Let products that are only added up share accumulators; returns the value of each output."""
    values = dict(outputs)
    uses = Counter(o for node in planner.functions.values() for o in node.operands if isinstance(o, str))
    uses.update(values.values())
    inner = {
        o
        for node in planner.functions.values()
        if node.operator == "add"
        for o in node.operands
        if isinstance(o, str) and uses[o] == 1 and _is_add(planner, o)
    }
    for root in [name for name in planner.functions if _is_add(planner, name) and name not in inner]:
        leaves, adds = _leaves(planner, root, inner)
        merged = [leaf for leaf in leaves if leaf in planner.accumulators and uses[leaf] == 1]
        if len(merged) < 2:
            continue
        first, *others = merged
        planner.accumulators[str(first)] = sum((planner.accumulators[str(leaf)] for leaf in merged), ())
        for leaf in others:
            del planner.accumulators[str(leaf)]
        rest = [leaf for leaf in leaves if leaf not in others and leaf != first]
        _write_chain(planner, root, adds, [first, *rest], values)
    return values


def _is_add(planner: _Planner, name: str) -> bool:
    return name in planner.functions and planner.functions[name].operator == "add"


def _leaves(planner: _Planner, root: str, inner: set[str]) -> tuple[list[str | float], list[str]]:
    """Return what a tree of additions adds up, and its additions."""
    leaves: list[str | float] = []
    adds = [root]
    for operand in planner.functions[root].operands:
        if isinstance(operand, str) and operand in inner:
            below, more = _leaves(planner, operand, inner)
            leaves, adds = leaves + below, adds + more
        else:
            leaves.append(operand)
    return leaves, adds


def _write_chain(
    planner: _Planner, root: str, adds: list[str], leaves: list[str | float], values: dict[str, str]
) -> None:
    """Write a tree of additions anew, as a chain over fewer leaves that ends in its root."""
    at = list(planner.functions).index(root)
    rest = [(name, node) for name, node in planner.functions.items() if name not in adds]
    before = sum(1 for name in list(planner.functions)[:at] if name not in adds)
    node, chain = planner.functions[root], []
    so_far: str | float = leaves[0]
    for number, leaf in enumerate(leaves[1:]):
        name = root if number == len(leaves) - 2 else f"{root}+{number}"
        chain.append((name, replace(node, operands=(so_far, leaf))))
        planner.own_indices[name] = planner.own_indices[root]
        so_far = name
    if not chain:  # the sum is the result itself
        rest = [
            (n, replace(f, operands=tuple(so_far if o == root else o for o in f.operands))) for n, f in rest
        ]
        values.update({output: str(so_far) for output, value in values.items() if value == root})
    planner.functions = dict([*rest[:before], *chain, *rest[before:]])
