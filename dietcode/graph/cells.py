"""The cells of a recursion as data: graphs of one node, without PyTorch; read from whoever wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.extent import Extent
from dietcode.graph.fields import read_mapping, read_name, read_whole
from dietcode.graph.graph import Graph
from dietcode.graph.limits import MAX_EXTENT
from dietcode.graph.reading import read_graph
from dietcode.graph.tensor_type import FLOATS, TensorType
from dietcode.workload.text import clip, one_line

Shape = tuple[int, ...]
MAX_CHILDREN = 16
MAX_STATES = 8
MAX_AXES = 4
_FIELDS = ("name", "children", "is_sum", "states", "x", "cell", "leaf")


@dataclass(frozen=True)
class Cells:
    """What is applied to a node, and to a leaf.

    Attributes
    ----------
    name : str
    children : int
        The most children that a node has.
    is_sum : bool
        Whether the cell takes each state of all children as one tensor ``[children, *state]``; otherwise it
        takes the states of the first child, then those of the second, and so on.
    states : tuple of tuple of int
        The shape of each state of a node; float32.
    x : tuple of int or None
        The shape of a node's input, float32; () for a whole number; None without one.
    cell : Graph
        Of one node: its inputs are x, where there is one, and the states of its children.
    leaf : Graph or None
        Of one leaf, whose input is x; None where the cell with states of zeros says what a leaf is.
    """

    name: str
    children: int
    is_sum: bool
    states: tuple[Shape, ...]
    x: Shape | None
    cell: Graph
    leaf: Graph | None

    def to_json(self) -> dict[str, Any]:
        """Return plain data, the inverse of `read_cells`."""
        return {
            "name": self.name,
            "children": self.children,
            "is_sum": self.is_sum,
            "states": [list(one) for one in self.states],
            "x": None if self.x is None else list(self.x),
            "cell": self.cell.to_json(),
            "leaf": None if self.leaf is None else self.leaf.to_json(),
        }


def read_cells(data: Any) -> Cells:
    """Return what `Cells.to_json` wrote, or what anybody else did: all of it is checked.

    Raises
    ------
    ModelError
        It is none; names the field, what was given and what is allowed.
    """
    data = read_mapping(data, "", _FIELDS)
    name, is_sum = read_name(data.get("name")), data.get("is_sum")
    children = read_whole(data.get("children"), "children", 1, MAX_CHILDREN)
    if type(is_sum) is not bool:
        raise ModelError(f"is_sum: given {clip(is_sum)}; allowed: true or false")
    given = data.get("states")
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_STATES:
        raise ModelError(f"states: given {clip(given)}; allowed: a list of 1 to {MAX_STATES} shapes")
    states = tuple(_shape(one, f"states.{at}") for at, one in enumerate(given))
    x = None if data.get("x") is None else _shape(data["x"], "x")
    cell = _graph(data.get("cell"), "cell")
    leaf = None if data.get("leaf") is None else _graph(data["leaf"], "leaf")
    own = [] if x is None else [x]
    below = [(children, *one) for one in states] if is_sum else [*states] * children
    _check_types(cell, "cell", [*own, *below], states, takes_ids=x == ())
    if leaf is not None:
        _check_types(leaf, "leaf", own, states, takes_ids=x == ())
        for weight, type_ in leaf.weights.items():
            if cell.weights.get(weight, type_) != type_:
                known = cell.weights[weight]
                raise ModelError(
                    f"leaf: weight {clip(weight)} is {type_}, and {known} in the cell; make them one"
                )
    return Cells(name, children, is_sum, states, x, cell, leaf)


def _shape(given: Any, field: str) -> Shape:
    is_shape = isinstance(given, list) and len(given) <= MAX_AXES
    if not is_shape or any(type(one) is not int or not 1 <= one <= MAX_EXTENT for one in given):
        allowed = f"up to {MAX_AXES} extents of one node, as [256]"
        raise ModelError(f"{field}: given {clip(given)}; allowed: {allowed}")
    return tuple(given)


def _graph(data: Any, word: str) -> Graph:
    try:
        graph = read_graph(data)
    except ModelError as error:
        raise ModelError(one_line(f"{word}.{error}")) from None
    if graph.ranges:
        dimension = clip(min(graph.ranges))
        raise ModelError(f"{word}.dimensions: {dimension} is there; allowed: none, a cell is of one node")
    return graph


def _check_types(
    graph: Graph, word: str, inputs: Sequence[Shape], states: Sequence[Shape], takes_ids: bool
) -> None:
    """Refuse a graph that takes or gives something else than what is declared.

    Parameters
    ----------
    word : str
        The field that has it.
    inputs, states : sequence of tuple of int
        The shapes of what it takes and gives, in their order.
    takes_ids : bool
        Whether the first input is a whole number.
    """
    given = list(graph.inputs.values())
    _check_shapes(f"{word}.inputs", given, inputs)
    _check_shapes(f"{word}.outputs", [graph.types[one] for one in graph.outputs], states)
    for number, type_ in enumerate(given):
        wanted = ("int32", "int64") if takes_ids and number == 0 else FLOATS[:1]
        if type_.dtype not in wanted:
            raise ModelError(f"{word}.inputs: input {number} is {type_}; allowed: {' or '.join(wanted)}")
    for name in graph.outputs:
        if graph.types[name].dtype != FLOATS[0]:
            raise ModelError(f"{word}.outputs: {clip(name)} is {graph.types[name]}; allowed: {FLOATS[0]}")


def _check_shapes(field: str, types: Sequence[TensorType], wanted: Sequence[Shape]) -> None:
    shapes = [tuple(map(Extent.of, one)) for one in wanted]
    if [type_.shape for type_ in types] != shapes:
        declared = clip([list(one) for one in wanted])
        raise ModelError(f"{field}: given {clip(list(map(str, types)))}; allowed: the shapes {declared}")
