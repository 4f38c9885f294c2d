"""What follows from shapes alone is read from tables: positions, angles, masks and biases of positions.

``arange(s, e)`` is the part from ``s`` to ``e`` of ``arange(0, most)``, and functions of elements are parts
of the same functions of that. Such a table follows from no size, so that it is computed once, when a model is
loaded; a call gets a view. Rows that a matrix of weights has at such positions are a view of the matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dietcode.graph.extent import ONE, Extent
from dietcode.graph.graph import CHECKS, Node, Value, variables_of
from dietcode.graph.operators import LIBRARY_FUNCTIONS
from dietcode.graph.tensor_type import TensorType
from dietcode.models.rewriting.rewriter import Rewriter, Rule

MAX_TABLE_BYTES = 4 << 20
_MAX_POSITIONS = 1 << 20  # whole numbers up to it are exact in float32 too
_OF_ELEMENTS = frozenset(
    {
        *("neg", "abs", "sign", "square", "relu", "floor", "ceil", "round", "not", "sqrt", "rsqrt", "exp"),
        *("log", "tanh", "sigmoid", "silu", "erf", "sin", "cos", "gelu", "clip", "cast"),
        *("add", "sub", "mul", "div", "pow", "maximum", "minimum", "floor_divide", "remainder"),
        *("fmod", "atan2", "copysign", "hypot", *LIBRARY_FUNCTIONS),
        *("less", "less_equal", "equal", "not_equal", "and", "or", "xor", "where"),
    }
)
Cuts = dict[int, tuple[Extent, Extent]]


@dataclass(frozen=True)
class _PartOfTable:
    """What a value is a part of.

    Attributes
    ----------
    whole : str
        A value that follows from no size.
    cuts : dict of int to (Extent, Extent)
        For each axis of the whole that is cut, where the part begins and ends.
    is_counted : bool
        Whether the whole is 0, 1, 2, ….
    """

    whole: str
    cuts: Cuts
    is_counted: bool = False


def tables() -> Rule:
    """Return the rule for one graph; it remembers the parts of tables that it has seen there."""
    return _SizeTables().rule


@dataclass
class _SizeTables:
    known: dict[str, _PartOfTable] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)  # what follows from no size, beside the weights

    def rule(self, r: Rewriter, node: Node) -> str | None:
        """A node that follows from sizes and weights alone -> a part of a table."""
        if node.graphs or len(node.results) > 1:
            return None
        if node.operator == "arange":
            return self._counted(r, node)
        if node.operator == "slice":
            return self._cut(r, node)
        if not any(name in self.known for name in node.tensors):
            self._note_fixed(r, node)
            return None
        make = {
            "reshape": self._reshaped,
            "transpose": self._transposed,
            "concat": self._joined,
            "take": self._rows,
            **dict.fromkeys(_OF_ELEMENTS, self._function),
        }.get(node.operator)
        is_known = all(name in self.known or self._is_fixed(r, name) for name in node.tensors)
        return make(r, node) if make is not None and is_known else None

    def _is_fixed(self, r: Rewriter, name: str) -> bool:
        return name in r.graph.weights or name in self.fixed

    def _note_fixed(self, r: Rewriter, node: Node) -> None:
        """Note what follows from weights and from no size."""
        extents = self._type_of(r, node).shape
        if variables_of(node) or not all(extent.is_constant for extent in extents):
            return
        if node.operator not in CHECKS and all(self._is_fixed(r, name) for name in node.tensors):
            self.fixed.add(node.result)

    def _counted(self, r: Rewriter, node: Node) -> str | None:
        start, stop = node.attributes["start"], node.attributes["stop"]
        variables = start.variables | stop.variables
        if not variables or node.attributes["step"] != 1 or variables & r.graph.sizes.keys():
            return None
        (low, _), (_, most) = start.bounds(r.graph.ranges), stop.bounds(r.graph.ranges)
        if low < 0 or not 0 < most <= _MAX_POSITIONS:
            return None
        whole = r.add("arange", start=0, stop=most, step=1, dtype=node.attributes["dtype"])
        return self._part(r, node, _PartOfTable(whole, {0: (start, stop)}, is_counted=True))

    def _cut(self, r: Rewriter, node: Node) -> str | None:
        """A part of a weight, or of a part -> a part of the weight or of the table."""
        source, start, stop = str(node.operands[0]), node.attributes["start"], node.attributes["stop"]
        variables = start.variables | stop.variables
        if node.attributes["step"] != 1 or variables & r.graph.sizes.keys():
            return None
        table = self.known.get(source, _PartOfTable(source, {}))
        if source not in self.known and not self._is_fixed(r, source):
            return None
        axis = node.attributes["axis"] % r.type(source).rank
        cuts, whole = dict(table.cuts), table.whole
        if axis in cuts:
            first = cuts[axis][0]
            cuts[axis] = first + start, first + stop
        elif variables:
            cuts[axis] = start, stop
        elif cuts:
            whole = r.add("slice", whole, axis=axis, start=start, stop=stop, step=1)
        else:
            return None
        (low, _), (_, most) = (one.bounds(r.graph.ranges) for one in cuts.get(axis, (start, stop)))
        if low < 0 or most > r.type(source if axis not in cuts else whole).shape[axis].bounds({})[1]:
            return None
        return self._part(r, node, _PartOfTable(whole, cuts, table.is_counted))

    def _part(self, r: Rewriter, node: Node, table: _PartOfTable) -> str | None:
        """Return a part of a table as a value, where it has the shape of a node."""
        value = table.whole
        for axis, (start, stop) in table.cuts.items():
            value = r.add("slice", value, axis=axis, start=start, stop=stop, step=1)
        if r.type(value) != self._type_of(r, node):
            return None
        self.known[value] = table
        return value

    @staticmethod
    def _type_of(r: Rewriter, node: Node) -> TensorType:
        return r.graph.checked(node.operator, node.operands, node.attributes, "", "")[1][0]

    def _function(self, r: Rewriter, node: Node) -> str | None:
        """A function of elements of parts -> a part of the function of the tables."""
        result = self._type_of(r, node)
        cuts: Cuts = {}
        extents = list(result.shape)
        for axis, name, table in self._cut_axes(node):
            extent = r.type(table.whole).shape[axis]
            at = axis + result.rank - r.type(name).rank
            if at in cuts and (cuts[at], extents[at]) != (table.cuts[axis], extent):
                return None
            cuts[at], extents[at] = table.cuts[axis], extent
        for name in node.tensors:  # each is cut as the result is, or has one position there
            behind = result.rank - r.type(name).rank
            own = self.known[name].cuts if name in self.known else {}
            shape = r.type(name).shape
            if any(at >= behind and at - behind not in own and shape[at - behind] != ONE for at in cuts):
                return None
        if _num_bytes(result.dtype, extents) > MAX_TABLE_BYTES:
            return None
        operands = self._wholes(node)
        return self._part(r, node, _PartOfTable(r.add(node.operator, *operands, **node.attributes), cuts))

    def _cut_axes(self, node: Node) -> list[tuple[int, str, _PartOfTable]]:
        """Return the cut axes of a node's operands."""
        parts = [(name, self.known[name]) for name in node.tensors if name in self.known]
        return [(axis, name, table) for name, table in parts for axis in table.cuts]

    def _wholes(self, node: Node) -> list[Value]:
        return [
            self.known[one].whole if isinstance(one, str) and one in self.known else one
            for one in node.operands
        ]

    def _reshaped(self, r: Rewriter, node: Node) -> str | None:
        """Axes of one position come and go; the others stay."""
        table, old = self.known[str(node.operands[0])], r.type(node.operands[0]).shape
        new = self._type_of(r, node).shape
        before = [axis for axis, extent in enumerate(old) if extent != ONE]
        after = [axis for axis, extent in enumerate(new) if extent != ONE]
        if [old[axis] for axis in before] != [new[axis] for axis in after]:
            return None
        place = dict(zip(before, after, strict=True))
        if not place.keys() >= table.cuts.keys():
            return None
        shape, whole = list(new), r.type(table.whole).shape
        for axis in table.cuts:
            shape[place[axis]] = whole[axis]
        cuts = {place[axis]: cut for axis, cut in table.cuts.items()}
        own = r.reshape(table.whole, shape)
        return self._part(r, node, _PartOfTable(own, cuts, table.is_counted))

    def _transposed(self, r: Rewriter, node: Node) -> str | None:
        table, axes = self.known[str(node.operands[0])], node.attributes["axes"]
        cuts = {axes.index(axis): cut for axis, cut in table.cuts.items()}
        return self._part(r, node, _PartOfTable(r.add("transpose", table.whole, axes=axes), cuts))

    def _joined(self, r: Rewriter, node: Node) -> str | None:
        if not all(name in self.known for name in node.tensors):
            return None
        parts = [self.known[name] for name in node.tensors]
        result = self._type_of(r, node)
        cuts, axis = parts[0].cuts, node.attributes["axis"] % result.rank
        if any(one.cuts != cuts for one in parts) or axis in cuts:
            return None
        shape = list(r.type(parts[0].whole).shape)
        alike = [[e for n, e in enumerate(r.type(one.whole).shape) if n != axis] for one in parts]
        shape[axis] = result.shape[axis]
        if any(one != alike[0] for one in alike) or _num_bytes(result.dtype, shape) > MAX_TABLE_BYTES:
            return None
        whole = r.add("concat", *(one.whole for one in parts), axis=axis)
        return self._part(r, node, _PartOfTable(whole, cuts))

    def _rows(self, r: Rewriter, node: Node) -> str | None:
        """Rows of a matrix at positions one after the other -> a part of the matrix."""
        source, name = (str(one) for one in node.operands)
        table = self.known.get(name)
        if table is None or source in self.known or node.attributes["axis"] % r.type(source).rank:
            return None
        if not table.is_counted:
            return None
        (num_rows, *row), places = r.type(source).shape, r.type(table.whole).shape
        ((axis, cut),) = table.cuts.items()
        if num_rows.constant < places[axis].constant:
            return None  # a call has to refuse positions behind the last row
        whole = r.reshape(self._first(r, source, places[axis]), [*places, *row])
        return self._part(r, node, _PartOfTable(whole, {axis: cut}))

    @staticmethod
    def _first(r: Rewriter, source: str, number: Extent) -> str:
        """Return the first rows of a matrix."""
        if r.type(source).shape[0] == number:
            return source
        return r.add("slice", source, axis=0, start=0, stop=number, step=1)


def _num_bytes(dtype: str, shape: Sequence[Extent]) -> int:
    """Return the bytes of a table."""
    return math.prod(extent.constant for extent in shape) * np.dtype(dtype).itemsize
