"""The cells of a recursion as data: graphs of one node, without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.graph.graph import Graph
from dietcode.graph.reading import read_graph

Shape = tuple[int, ...]
MAX_CHILDREN = 16


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
        """Return plain data, the inverse of `from_json`."""
        return {
            "name": self.name,
            "children": self.children,
            "is_sum": self.is_sum,
            "states": [list(one) for one in self.states],
            "x": None if self.x is None else list(self.x),
            "cell": self.cell.to_json(),
            "leaf": None if self.leaf is None else self.leaf.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cells:
        """Return what `to_json` gave."""
        return cls(
            data["name"],
            data["children"],
            data["is_sum"],
            tuple(tuple(one) for one in data["states"]),
            None if data["x"] is None else tuple(data["x"]),
            read_graph(data["cell"]),
            None if data["leaf"] is None else read_graph(data["leaf"]),
        )
