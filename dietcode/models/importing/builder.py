"""What every importer does with the graph that it builds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, TypeVar

from dietcode.errors import ModelError
from dietcode.graph.extent import Extent, larger, smaller
from dietcode.graph.graph import Graph, Node, Value
from dietcode.graph.limits import check_size
from dietcode.graph.reading import MAX_NODES
from dietcode.graph.tensor_type import GraphError, TensorType, axis_of

F = TypeVar("F", bound=Callable[..., Any])
_MAX_ADDED = 8 * MAX_NODES  # rules add nodes that nothing reads in the end


def registered(
    rules: MutableMapping[str, Callable[..., Any]], names: Iterable[str], bound: Mapping[str, Any]
) -> Callable[[F], F]:
    """Return a decorator that registers a function under names, with some parameters bound.

    It gives the function back as it is, so that one may stand behind several such decorators.
    """

    def register(function: F) -> F:
        for name in names:
            if name in rules:
                raise ValueError(f"{name} has a rule already")
            rules[name] = partial(function, **bound) if bound else function
        return function

    return register


class GraphBuilder:
    """Adds nodes to a graph.

    Parameters
    ----------
    graph : Graph

    Attributes
    ----------
    source : str
        Where the model's author wrote what is read now.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.source = ""

    def add(self, operator: str, *operands: Value, **attributes: Any) -> str:
        """Add a node and return the name of its first result.

        Raises
        ------
        GraphError
            It does not take these operands or attributes, or a result is too large.
        ModelError
            Too many nodes were added, those of sub-graphs and those that nothing reads among them.
        """
        self.graph.additions[0] += 1
        if self.graph.additions[0] > _MAX_ADDED:
            raise ModelError(
                f"{self.graph.name}: more than {_MAX_ADDED} operators while it is read, at "
                f"{self.source or operator}; allowed: {MAX_NODES} in the end (export parts of the model)"
            )
        result = self.graph.add(operator, *operands, source=self.source, **attributes)
        node = self.graph.nodes[-1]
        for name in node.results:
            check_size(self.graph.types[name], self.graph.ranges, is_made=not node.tensors)
        return result

    def results(self, operator: str, *operands: Value, **attributes: Any) -> tuple[str, ...]:
        """Add a node and return the names of all of its results."""
        self.add(operator, *operands, **attributes)
        return self.graph.nodes[-1].results

    def producer(self, value: Value) -> Node | None:
        """Return the node that computes a value; None for an input or a weight."""
        return next((node for node in reversed(self.graph.nodes) if value in node.results), None)

    def type(self, name: Value) -> TensorType:
        """Return the type of a tensor."""
        if not isinstance(name, str):
            raise GraphError(f"given {name!r}; allowed: a tensor")
        return self.graph.types[name]

    def rank(self, name: Value) -> int:
        """Return the number of axes."""
        return self.type(name).rank

    def cast(self, value: Value, dtype: str) -> Value:
        """Return a value in a dtype; numbers stay."""
        if not isinstance(value, str) or self.type(value).dtype == dtype:
            return value
        return self.add("cast", value, dtype=dtype)

    def number(self, extent: Extent) -> Value:
        """Return an extent as an operand."""
        return extent.constant if extent.is_constant else self.add("extent", value=extent)

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

    def bounded(self, position: Extent, length: Extent) -> Extent:
        """Return a bound of a slice, counted from the front and between 0 and the length."""
        front = self._from_front(position, length)
        least = larger(front, Extent(), self.graph.ranges)
        return least if front != position else self.at_most(least, length)

    def span(self, start: Extent, stop: Extent, length: Extent) -> tuple[Extent, Extent]:
        """Return both bounds of a slice, as `bounded` does, the second not before the first."""
        ranges = self.graph.ranges
        begin, end = self.bounded(start, length), self.bounded(stop, length)
        first, last = self._from_front(start, length), self._from_front(stop, length)
        is_ordered = (last - first).bounds(ranges)[0] >= 0
        if end == length or is_ordered or self._known_below(begin, end):
            return begin, end
        count = self.at_most(last, length) - larger(first, Extent(), ranges)
        return begin, begin + larger(count, Extent(), ranges)

    def within(self, position: Extent, length: Extent) -> Extent:
        """Return a position counted from the front; a call is refused where it is outside of the axis."""
        front = self._from_front(position, length)
        least, rest = (one.bounds(self.graph.ranges)[0] for one in (front, length - 1 - front))
        if least < 0 or (rest < 0 and not self._known_below(front, length - 1)):
            value = front if least < 0 else length - 1 - front
            text = f"position {position} within {length} elements"
            if value.bounds(self.graph.ranges)[1] < 0:
                raise GraphError(f"the model requires {text}")
            self.add("assert", value=value, least=0, text=text)
        return front

    def _from_front(self, position: Extent, length: Extent) -> Extent:
        low, high = position.bounds(self.graph.ranges)
        if high >= 0 > low:
            raise GraphError(f"a slice that begins or ends at {position}, whose sign is not known")
        return position + length if high < 0 else position

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
