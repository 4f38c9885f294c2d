"""Nodes of a graph as one block: its indices, its tensors, and what is called what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from dietcode.graph.extent import ONE, Extent, product_of
from dietcode.graph.graph import Graph, Node, Value
from dietcode.models.gates import gates_of
from dietcode.models.kernel_call import Argument, KernelCall

POINTWISE = frozenset(
    {
        *("add", "sub", "mul", "div", "maximum", "minimum", "clip", "neg", "abs", "square", "sqrt", "rsqrt"),
        *("exp", "tanh", "sigmoid", "relu", "silu", "gelu", "log", "sin", "cos", "floor", "ceil", "round"),
        *("less", "less_equal"),  # whose results are 0 and 1 in float32
    }
)
MOVING = frozenset({"rotate"})  # reads other elements of the row, of a tensor alone
REDUCTIONS = frozenset({"sum", "mean", "max", "min"})
ALONG_ROW = frozenset({"softmax", "layernorm", "rmsnorm", *REDUCTIONS})
_ROW_LETTERS = "mbhqtuvw"
_DEPTH_LETTERS = "kcdeijlopqrs"
_TABLE_LETTERS = "TUVWRS"  # beside products, whose depths have other letters
_GATE_LETTERS = "gxyzf"
_MAX_NUMBER = 1e30
_ATTRIBUTES = ("low", "high", "form", "eps", "by", "negate", "masked_rows")


class _NotABlockError(Exception):
    """The nodes do not lie on one grid."""


def is_product(node: Node, graph: Graph, constants: AbstractSet[str]) -> bool:
    """Whether a node is a product with a constant matrix."""
    if node.operator == "linear":
        return node.operands[1] in constants
    if node.operator != "matmul" or node.operands[1] not in constants:
        return False
    return (
        isinstance(node.operands[0], str)
        and graph.types[str(node.operands[1])].rank == 2
        and (graph.types[node.operands[0]].rank >= 2)
    )


@dataclass
class _Axes:
    """The axes of a grid, those merged that all operands have or lack together.

    Attributes
    ----------
    groups : list of list of int
        Axes of the full shape, outer first; one group holds the columns, mostly the last.
    letters : list of str
        An index for each group; ``n`` for the columns.
    full : tuple of Extent
    """

    groups: list[list[int]]
    letters: list[str]
    full: tuple[Extent, ...]

    def extents(self) -> dict[str, Extent]:
        return {
            letter: product_of([self.full[axis] for axis in group])
            for letter, group in zip(self.letters, self.groups, strict=True)
        }


def _presence(shape: Sequence[Extent], full: Sequence[Extent]) -> tuple[bool, ...]:
    """Return which axes of the full shape a shape has; the others it broadcasts along."""
    padded = (ONE,) * (len(full) - len(shape)) + tuple(shape)
    if len(padded) != len(full) or any(own not in (ONE, e) for own, e in zip(padded, full, strict=True)):
        raise _NotABlockError
    return tuple(own != ONE or e == ONE for own, e in zip(padded, full, strict=True))


def _merged(
    full: Sequence[Extent], presences: Iterable[tuple[bool, ...]], columns: Sequence[int]
) -> list[list[int]]:
    """Return groups of neighbouring axes; the columns are one group of their own."""
    known = list(presences)
    groups: list[list[int]] = []
    for axis in range(len(full)):
        if axis in columns:
            if axis == columns[0]:
                groups.append(list(columns))
            continue
        if full[axis] == ONE:
            continue
        alike = groups and groups[-1] != list(columns)
        if alike and all(one[axis] == one[groups[-1][-1]] for one in known):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    if any(len({one[axis] for axis in columns}) > 1 for one in known):
        raise _NotABlockError
    return groups


def block_call(
    graph: Graph, nodes: Sequence[Node], constants: AbstractSet[str], outputs: Sequence[str]
) -> KernelCall | None:
    """Return the call of the block that nodes are; None where they do not lie on one grid.

    Parameters
    ----------
    nodes : sequence of Node
        In an order in which they can be computed.
    constants : set of str
        Values that follow from weights alone.
    outputs : sequence of str
        The results that are read outside.
    """
    try:
        return _Block(graph, constants, list(nodes), list(outputs)).call()
    except _NotABlockError:
        return None


class _Block:
    def __init__(
        self, graph: Graph, constants: AbstractSet[str], nodes: list[Node], outputs: list[str]
    ) -> None:
        self._graph, self._constants, self._nodes, self._outputs = graph, constants, nodes, outputs
        self._inside = {node.result: node for node in nodes}
        self._products = [node for node in nodes if is_product(node, graph, constants)]
        self._gates = gates_of(graph, nodes, outputs) if self._products else {}
        self._rows_alone = self._read_as_rows()
        self._full = self._full_shape()
        self._columns = self._find_columns()
        self._flat = self._flat_values()
        self._axes = self._find_axes()
        self._tensors: dict[str, dict[str, Any]] = {}
        self._arguments: dict[str, Argument] = {}
        self._by_use: dict[tuple[str, str], str] = {}
        self._dims = dict(self._axes.extents())
        self._names: dict[str, str] = {}
        self._body: dict[str, Any] = {}
        self._wrapping, self._refusing = set[str](), set[str]()  # tensors of positions

    def _shape(self, name: str) -> tuple[Extent, ...]:
        return self._graph.types[name].shape

    def _full_shape(self) -> tuple[Extent, ...]:
        left_out = {*self._gates, *self._rows_alone}
        shapes = [self._shape(node.result) for node in self._nodes if node.result not in left_out]
        shapes += [self._shape(str(node.operands[0])) for node in self._nodes if node.operator in ALONG_ROW]
        return max(shapes, key=lambda shape: (len(shape), sum(one != ONE for one in shape)))

    def _read_as_rows(self) -> set[str]:
        """Return the rows of tables that products alone read."""
        found = {node.result for node in self._nodes if node.operator == "take"} - set(self._outputs)
        for node in self._nodes:
            found -= set(node.tensors[1 if node in self._products else 0 :])
        return found

    def _find_columns(self) -> list[int]:
        """Return the axes that reductions and norms go along, and rows of tables have: all the same."""
        found = {self._own_columns(node) for node in self._nodes if node.operator in ALONG_ROW}
        for node in self._nodes:
            if node.operator == "take" and node.result not in self._rows_alone:
                count = max(1, len(self._shape(str(node.operands[0]))) - 1)
                found.add(tuple(range(-count, 0)))
        if len(found) > 1:
            raise _NotABlockError
        columns = found.pop() if found else (-1,)
        if self._products and columns != (-1,):  # a product's columns are one axis, the last
            raise _NotABlockError
        if columns[-1] != -1 and any(node.operator in MOVING for node in self._nodes):
            raise _NotABlockError
        return [axis + len(self._full) for axis in columns]

    def _own_columns(self, node: Node) -> tuple[int, ...]:
        """Return the axes that a node goes along, from the end: next to each other."""
        rank = len(self._shape(str(node.operands[0])))
        if node.operator in ("layernorm", "rmsnorm"):
            return tuple(range(-int(node.attributes["num_axes"]), 0))
        given = (
            node.attributes["axes"] or range(rank)
            if "axes" in node.attributes
            else (node.attributes["axis"],)
        )
        axes = tuple(sorted(axis % rank - rank for axis in given))
        if axes != tuple(range(axes[0], axes[0] + len(axes))) or (axes[-1] != -1 and rank != len(self._full)):
            raise _NotABlockError
        return axes

    def _find_axes(self) -> _Axes:
        full, presences = self._full, []
        for node in self._nodes:
            if node in self._products:
                rows = self._shape(str(node.operands[0]))[:-1]
                columns = full[-1] * self._gates.get(node.result, 1)
                if rows != full[:-1] or self._shape(node.result)[-1] != columns:
                    raise _NotABlockError
                continue
            if node.operator == "take" or (node.operator == "slice" and node.operands[0] in self._gates):
                if node.result not in self._rows_alone:
                    presences.append(_presence(self._shape(node.result), full))
                continue
            for operand in node.tensors:
                if operand not in self._inside or self._is_reduced(operand):
                    presences.append(self._presence_of(operand, node))
        groups = _merged(full, presences, self._columns)
        if len(groups) > len(_ROW_LETTERS):
            raise _NotABlockError
        rows_letters = iter(_ROW_LETTERS)
        letters = ["n" if own == self._columns else next(rows_letters) for own in groups]
        return _Axes(groups, letters, full)

    def _is_reduced(self, name: str) -> bool:
        node = self._inside.get(name)
        return node is not None and node.operator in REDUCTIONS

    def _flat_values(self) -> set[str]:
        """Return the values without axes of the columns, as they follow from reductions that keep none."""
        found: set[str] = set()
        for node in self._nodes:
            if node in self._products or node.operator in ("take", "slice"):
                continue
            reads = not found.isdisjoint(node.tensors)
            if reads and node.operator in ALONG_ROW | MOVING:
                raise _NotABlockError
            if reads and any(one in self._inside and one not in found for one in node.tensors):
                raise _NotABlockError
            if reads or (node.operator in REDUCTIONS and not node.attributes["keep"]):
                found.add(node.result)
        return found

    def _presence_of(self, name: str, reader: Node | None = None) -> tuple[bool, ...]:
        """Return which axes of the full shape a value has, as a node reads it that may have no columns."""
        shape = self._shape(name)
        reads_flat = reader is not None and reader.operator not in REDUCTIONS and reader.result in self._flat
        if reads_flat or name in self._flat:
            rank, first = len(self._full) - len(self._columns), self._columns[0]
            if len(shape) > rank:
                raise _NotABlockError
            padded = (ONE,) * (rank - len(shape)) + shape
            shape = (*padded[:first], *(ONE for _ in self._columns), *padded[first:])
        return _presence(shape, self._full)

    def call(self) -> KernelCall:
        for number, node in enumerate(self._nodes):
            self._add(node, f"v{number}")
        outputs = [self._names[name] for name in self._outputs]
        if len(set(outputs)) != len(outputs):
            raise _NotABlockError
        used = {letter for tensor in self._tensors.values() for letter in tensor["dims"]}
        dims = {letter: extent for letter, extent in self._dims.items() if letter in used}
        block = {"version": 1, "graph": self._body, "outputs": outputs}
        results = [Argument(name, self._output_shape(name)) for name in self._outputs]
        wrapping = self._wrapping - self._refusing
        flops = self._num_flops()
        return KernelCall({"block": block}, self._tensors, dims, self._arguments, results, flops, wrapping)

    def _output_shape(self, name: str) -> tuple[Extent, ...]:
        present = self._presence_of(name)[self._columns[0]] and not self._lacks_columns(name)
        return tuple(self._dims[letter] for letter in self._axes.letters if present or letter != "n")

    def _lacks_columns(self, name: str) -> bool:
        """Whether a value follows from reductions alone, which shapes do not say of rows of one element."""
        node = self._inside.get(name)
        if node is None or node in self._products or node.operator in ("take", "slice"):
            return False
        return self._is_reduced(name) or (bool(node.tensors) and all(map(self._lacks_columns, node.tensors)))

    def _num_flops(self) -> Extent:
        total = product_of(self._full) * len(self._nodes)
        for node in self._products:
            once = product_of(self._full) * self._shape(str(node.operands[0]))[-1] * 2
            total = total + once * self._gates.get(node.result, 1)
        return total

    def _add(self, node: Node, name: str) -> None:
        if node in self._products:
            self._names[node.result] = self._add_product(node, name)
            return
        if node.operator == "take":
            if node.result in self._rows_alone:
                return
            self._body[name] = self._gathered(node, "n")
        elif node.operator == "slice":
            self._body[name] = self._gate(node)
        else:
            operands = [self._operand(operand, node) for operand in node.operands]
            self._body[name] = {node.operator: operands, **self._attributes(node)}
        self._names[node.result] = name

    def _gathered(self, node: Node, columns: str) -> dict[str, Any]:
        """Return the rows of a table at positions, whose elements lie along an index."""
        table, positions = node.tensors
        extents = self._shape(table)
        along = tuple(self._full[axis] for axis in self._axes.groups[-1]) if columns == "n" else extents[-1:]
        if node.attributes["axis"] % len(extents) != 0 or tuple(extents[1:]) != along:
            raise _NotABlockError
        dims = "".join(self._letters(self._presence_of_rows(positions)))
        extent = extents[0]
        row = self._letter_of(extent, _TABLE_LETTERS) if self._products else self._dims_of_depth(extent)
        name = self._tensor(positions, dims, "int32")
        (self._wrapping if node.attributes["wraps"] else self._refusing).add(name)
        return {"gather": [self._tensor(table, row + columns), name]}

    def _gate(self, node: Node) -> dict[str, Any]:
        """Return a slice as one position of an index of its own."""
        value = str(node.operands[0])
        if value not in self._gates:
            raise _NotABlockError
        count = self._gates[value]
        letter = self._letter_of(Extent.of(count), _GATE_LETTERS)
        width = self._shape(node.result)[-1].constant
        if value in self._names:
            operand = self._names[value]
        else:
            rows = self._letters(_presence(self._shape(node.result), self._full))[:-1]
            operand = self._tensor(value, "".join(rows) + letter + "n")
        return {"slice": operand, "axis": letter, "at": node.attributes["start"].constant // width}

    def _letter_of(self, extent: Extent, letters: str) -> str:
        for letter in letters:
            if self._dims.setdefault(letter, extent) == extent:
                return letter
        raise _NotABlockError

    def _presence_of_rows(self, positions: str) -> tuple[bool, ...]:
        shape = (*self._shape(positions), *(ONE for _ in self._axes.groups[-1]))
        return _presence(shape, self._full)

    def _attributes(self, node: Node) -> dict[str, Any]:
        given = {key: value for key, value in node.attributes.items() if key in _ATTRIBUTES}
        if node.operator in ALONG_ROW | MOVING:
            given["axis"] = "n"
        return {key: value for key, value in given.items() if value not in (None, "zero")}

    def _operand(self, operand: Value, node: Node) -> Any:
        if operand is None or isinstance(operand, bool):
            raise _NotABlockError
        if not isinstance(operand, str):
            if not abs(operand) <= _MAX_NUMBER:
                raise _NotABlockError
            return float(operand)
        if operand in self._names:
            return self._names[operand]
        presence = self._presence_of(operand, node)
        letters = self._letters(presence)
        if not letters:
            raise _NotABlockError
        return self._tensor(operand, "".join(letters))

    def _letters(self, presence: Sequence[bool]) -> list[str]:
        return [
            letter
            for letter, group in zip(self._axes.letters, self._axes.groups, strict=True)
            if presence[group[0]]
        ]

    def _add_product(self, node: Node, name: str) -> str:
        x, w = node.tensors[:2]
        depth = self._dims_of_depth(self._shape(x)[-1])
        rows = "".join(self._axes.letters[:-1])
        if not rows:
            raise _NotABlockError
        count = self._gates.get(node.result)
        gate = "" if count is None else self._letter_of(Extent.of(count), _GATE_LETTERS)
        order = f"{gate}n{depth}" if node.operator == "linear" else f"{depth}n"
        taken = self._inside.get(x)
        if taken is not None and taken.operator == "take":
            operand = f"{name}r"
            self._body[operand] = self._gathered(taken, depth)
        else:
            operand = self._tensor(x, rows + depth)
        has_bias = len(node.tensors) > 2 and node.operands[2] is not None
        product = f"{name}p" if has_bias else name
        self._body[product] = {"einsum": [operand, self._tensor(w, order)], "dims": f"{rows}{gate}n"}
        if has_bias:
            self._body[name] = {"add": [product, self._tensor(str(node.operands[2]), f"{gate}n")]}
        return name

    def _dims_of_depth(self, extent: Extent) -> str:
        for letter in _DEPTH_LETTERS:
            if letter in self._axes.letters:
                continue
            if self._dims.setdefault(letter, extent) == extent:
                return letter
        raise _NotABlockError

    def _tensor(self, value: str, dims: str, dtype: str = "float32") -> str:
        """Return the name of a tensor of the block; a value that is read in one way is one tensor."""
        if (value, dims) in self._by_use:
            return self._by_use[value, dims]
        own = self._graph.types[value].dtype
        if own != dtype and not (dtype == "int32" and own == "int64"):
            raise _NotABlockError
        name = f"T{len(self._tensors)}"
        self._tensors[name] = {"dims": dims, "dtype": dtype}
        if value in self._constants:
            self._tensors[name]["constant"] = True
        self._by_use[value, dims] = name
        self._arguments[name] = Argument(value, tuple(self._dims[letter] for letter in dims))
        return name


def outputs_of(
    nodes: Sequence[Node], consumers: Mapping[str, Sequence[Node]], wanted: Iterable[str]
) -> list[str]:
    """Return the results of nodes that others read, or the model gives."""
    own, given = {node.result for node in nodes}, set(wanted)
    return [
        node.result
        for node in nodes
        if node.result in given or any(reader.result not in own for reader in consumers[node.result])
    ]
