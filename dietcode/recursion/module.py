"""``dietcode.Recursion``: a cell, which an ``nn.Module`` says for one node, applied over structures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.errors import ModelError
from dietcode.graph.cells import MAX_CHILDREN, Shape
from dietcode.recursion.eager import run_eagerly
from dietcode.workload.text import clip

_MAX_STATES = 8


@dataclass(frozen=True)
class ChildSum:
    """Children without an order: the cell takes each state of all of them as one tensor ``[max, *state]``.

    Rows of children that are not there are zeros, so that ``h.sum(0)`` is the sum over those that are.

    Parameters
    ----------
    max : int
        The most children that a node has.
    """

    max: int


class Recursion:
    """A model that is applied to every node of a structure, children first.

    Parameters
    ----------
    cell : torch.nn.Module
        Of one node, without a batch axis: ``forward(x, *states of the first child, *those of the second, …)``
        returns the states of the node; without `x` where the nodes have no input. With `ChildSum` it takes
        each state once, for all children.
    children : int or ChildSum
        How many children a node has at most, 1 for a sequence.
    states : sequence of shape
        Of one node's states, float32; ``()`` for a number.
    x : shape, optional
        Of one node's input, float32; ``()`` for a whole number, as the id of a word; None without input.
    leaf : torch.nn.Module, optional
        What a node without children is: ``forward(x)``, or ``forward()`` where nodes have no input. Without
        it, it is the cell with states of zeros.

    Raises
    ------
    ModelError
        An argument is not what is allowed.
    """

    def __init__(
        self,
        cell: Any,
        *,
        children: int | ChildSum,
        states: Sequence[Any],
        x: Any = None,
        leaf: Any = None,
    ) -> None:
        self.is_sum = isinstance(children, ChildSum)
        self.children = _count(children.max if isinstance(children, ChildSum) else children)
        for word, module in (("cell", cell), ("leaf", leaf)):
            if not hasattr(module, "named_parameters") and (word == "cell" or module is not None):
                raise ModelError(f"{word}: given {clip(module)}; allowed: a torch.nn.Module of one node")
        self.cell, self.leaf = cell, leaf
        if not isinstance(states, list | tuple) or not 1 <= len(states) <= _MAX_STATES:
            allowed = f"a list of 1 to {_MAX_STATES} shapes, as [(256,), (256,)]"
            raise ModelError(f"states: given {clip(states)}; allowed: {allowed}")
        self.states = tuple(_shape(one, f"states[{at}]") for at, one in enumerate(states))
        self.x = None if x is None else _shape(x, "x")

    def __call__(self, structure: Any, x: Any = None, *, all_nodes: bool = False) -> Any:
        """Apply the cell node by node in PyTorch, which is slow: a reference, and for a debugger.

        Parameters
        ----------
        structure : dietcode.Structure
        x : tensor or array, optional
            The inputs of all nodes, ``[num_nodes, *x]``, in the order of the structure.
        all_nodes : bool
            Whether states of all nodes are returned, ``[num_nodes, *state]``; those of the roots otherwise,
            ``[num_roots, *state]``. A tuple where there are several states.

        Raises
        ------
        ModelError
            The inputs do not fit, or the cell returns other states than were declared.
        """
        return run_eagerly(self, structure, x, all_nodes)


def _count(given: Any) -> int:
    if type(given) is not int or not 1 <= given <= MAX_CHILDREN:
        allowed = f"1 to {MAX_CHILDREN}, or dietcode.ChildSum(max=1 to {MAX_CHILDREN})"
        raise ModelError(f"children: given {clip(given)}; allowed: {allowed}")
    return given


def _shape(given: Any, field: str) -> Shape:
    is_shape = isinstance(given, list | tuple) and all(type(one) is int and one >= 1 for one in given)
    if not is_shape:
        raise ModelError(f"{field}: given {clip(given)}; allowed: a shape of one node, as (256,)")
    return tuple(given)
