"""What a rule of the importer sees: the graph that is built, and the node that is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from dietcode.graph.extent import Extent, larger, smaller
from dietcode.graph.graph import Graph, Value
from dietcode.graph.tensor_type import DTYPES, GraphError, TensorType, axis_of
from dietcode.models.importing.symbols import Symbols

Imported: TypeAlias = Value | tuple[Value, ...] | list[Value]


class Importer:
    """Translates one exported program's nodes; rules call its methods.

    Parameters
    ----------
    graph : Graph
        What nodes are added to.
    symbols : Symbols
    """

    def __init__(self, graph: Graph, symbols: Symbols) -> None:
        self.graph, self.symbols = graph, symbols
        self.values: dict[str, Any] = {}
        self.source = ""
        self.around = ""  # the source of the node that calls this function, for nodes that have none

    def add(self, operator: str, *operands: Value, **attributes: Any) -> str:
        """Add a node and return the name of its first result."""
        return self.graph.add(operator, *operands, source=self.source, **attributes)

    def results(self, operator: str, *operands: Value, **attributes: Any) -> tuple[str, ...]:
        """Add a node and return the names of all of its results."""
        self.add(operator, *operands, **attributes)
        return self.graph.nodes[-1].results

    def type(self, name: Value) -> TensorType:
        """Return the type of a tensor."""
        if not isinstance(name, str):
            raise GraphError(f"given {name!r}; allowed: a tensor")
        return self.graph.types[name]

    def rank(self, name: Value) -> int:
        """Return the number of axes."""
        return self.type(name).rank

    def value(self, argument: Any) -> Value:
        """Return an argument of PyTorch's as an operand: a name, a number, or None."""
        if hasattr(argument, "op") and hasattr(argument, "meta"):
            found: Value | Extent = self.values[argument.name]
            if isinstance(found, Extent):
                return found.constant if found.is_constant else self.add("extent", value=found)
            return found
        if argument is None or isinstance(argument, bool | int | float):
            return argument
        raise GraphError(f"given {type(argument).__name__}; allowed: a tensor or a number")

    def tensor(self, argument: Any) -> str:
        """Return an argument that has to be a tensor."""
        found = self.value(argument)
        if not isinstance(found, str):
            raise GraphError(f"given {found!r}; allowed: a tensor")
        return found

    def extent(self, argument: Any) -> Extent:
        """Return an argument that is a size."""
        if hasattr(argument, "op") and hasattr(argument, "meta"):
            found = self.values[argument.name]
            if isinstance(found, Extent):
                return found
            raise GraphError(
                "a size that depends on values and has no bounds; write torch._check(size >= 0) and "
                "torch._check(size <= 512) after it, with the most that it can be"
            )
        return self.symbols.extent(argument)

    def shape(self, arguments: Sequence[Any]) -> tuple[Extent, ...]:
        """Return arguments that are sizes."""
        return tuple(self.extent(one) for one in arguments)

    def symbols_shape(self, sizes: Sequence[Any]) -> tuple[Extent, ...]:
        """Return PyTorch's sizes as extents."""
        return tuple(self.symbols.extent(size) for size in sizes)

    def at(self) -> str:
        """Return where the node is that is imported, as messages end."""
        return f" ({self.source})" if self.source else ""

    def at_most(self, first: Extent, second: Extent) -> Extent:
        """Return the smaller of two extents, told by what sizes are at most where ranges do not."""
        for one, other in ((first, second), (second, first)):
            if self._known_below(one, other):
                return one
        return smaller(first, second, self.graph.ranges)

    def _known_below(self, first: Extent, second: Extent) -> bool:
        (name,) = first.variables if len(first.variables) == 1 else ("",)
        most = self.graph.sizes.get(name)
        if most is None or first != Extent.of(name):
            return False
        above = (second - most).bounds(self.graph.ranges)[0] >= 0
        return above or (most.terms != () and self._known_below(most, second))

    def bounded_by(self, first: Extent, second: Extent) -> bool:
        """Note that a size is at most an extent, where its node can check it; returns whether it can."""
        (name,) = first.variables if len(first.variables) == 1 else ("",)
        sizes = list(self.graph.sizes)
        if first != Extent.of(name) or name not in sizes:
            return False
        if second.variables & set(sizes[sizes.index(name) :]):
            return False
        self.graph.sizes[name] = smaller(self.graph.sizes[name], second, self.graph.ranges)
        return True

    def cast(self, value: Value, dtype: str) -> Value:
        """Return a value in a dtype; numbers stay."""
        if not isinstance(value, str) or self.type(value).dtype == dtype:
            return value
        return self.add("cast", value, dtype=dtype)

    def reshape(self, value: Value, shape: Sequence[Extent | int]) -> str:
        """Return a value in another shape, itself where it has this one."""
        wanted = tuple(Extent.of(one) for one in shape)
        if self.type(value).shape == wanted:
            return str(value)
        return self.add("reshape", value, shape=wanted)

    def transpose(self, value: Value, axes: Sequence[int]) -> str:
        """Return a value with its axes in another order, itself where it is the same."""
        if list(axes) == list(range(len(axes))):
            return str(value)
        return self.add("transpose", value, axes=tuple(axes))

    def within(self, position: Any, length: Extent, default: Extent) -> Extent:
        """Return a bound of a slice, counted from the front and between 0 and the length."""
        if position is None:
            return default
        found = self.extent(position)
        ranges = self.graph.ranges
        low, high = found.bounds(ranges)
        if high < 0:
            found = found + length
        elif low < 0:
            raise GraphError(f"a slice that begins or ends at {found}, whose sign is not known")
        return self.at_most(larger(found, Extent(), ranges), length)

    def slice(self, value: Value, axis: int, start: Extent | int, stop: Extent | int, step: int = 1) -> str:
        """Return elements along an axis, all of them as they are."""
        start, stop = Extent.of(start), Extent.of(stop)
        type_ = self.type(value)
        axis = axis_of(axis, type_.rank)
        if not start.terms and stop == type_.shape[axis] and step == 1:
            return str(value)
        return self.add("slice", value, axis=axis, start=start, stop=stop, step=step)

    def select(self, value: Value, axis: int, position: Extent | int) -> str:
        """Return one position along an axis, without the axis."""
        start = Extent.of(position)
        axis = axis_of(axis, self.rank(value))
        taken = self.slice(value, axis, start, start + 1)
        shape = self.type(taken).shape
        return self.reshape(taken, (*shape[:axis], *shape[axis + 1 :]))


Rule: TypeAlias = Callable[[Importer, Mapping[str, Any], Any], Imported]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators of PyTorch's, as ``aten.add.Tensor``.

    A rule takes the importer, the arguments by name with their defaults, and the fake result.
    """

    def register(function: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"{name} has a rule already")
            RULES[name] = function
        return function

    return register


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype of PyTorch's.

    Raises
    ------
    GraphError
        Models do not have it.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise GraphError(f"dtype {name}; allowed: {', '.join(DTYPES)} (convert with model.float())")
    return name
