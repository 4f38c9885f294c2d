"""A recursion in plain PyTorch, one node after the other."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from dietcode.errors import ModelError
from dietcode.graph.cells import Shape

Array = np.ndarray[Any, Any]


class Applied(Protocol):
    """What is applied, as `dietcode.recursion.module.Recursion` has it."""

    cell: Any
    leaf: Any
    children: int
    is_sum: bool
    states: tuple[Shape, ...]
    x: Shape | None


def run_eagerly(recursion: Applied, structure: Any, x: Any, all_nodes: bool) -> Any:
    """Return the states of the roots, or of all nodes; see `Recursion.__call__`."""
    import torch

    children = np.asarray(structure.children)
    num_nodes, width = children.shape
    if width > recursion.children:
        raise ModelError(
            f"a structure of {width} children a node; allowed: {recursion.children}, as the recursion says"
        )
    given = _inputs(recursion.x, x, num_nodes)
    zeros = [torch.zeros(shape) for shape in recursion.states]
    found: dict[int, tuple[Any, ...]] = {}
    with torch.no_grad():
        for node in _children_first(children):
            own = [int(one) for one in children[node]]
            own += [-1] * (recursion.children - width)
            below = [found[one] if one >= 0 else tuple(zeros) for one in own]
            inputs = [] if given is None else [given[node]]
            if recursion.leaf is not None and max(own) < 0:
                made = recursion.leaf(*inputs)
            elif recursion.is_sum:
                made = recursion.cell(*inputs, *(torch.stack(one) for one in zip(*below, strict=True)))
            else:
                made = recursion.cell(*inputs, *(state for one in below for state in one))
            found[node] = checked_states(made, recursion.states)
    is_child = np.zeros(num_nodes + 1, bool)
    is_child[children[children >= 0]] = True
    wanted = range(num_nodes) if all_nodes else np.flatnonzero(~is_child[:num_nodes])
    states = tuple(
        torch.stack([found[int(node)][at] for node in wanted]) for at in range(len(recursion.states))
    )
    return states if len(states) > 1 else states[0]


def checked_states(made: Any, shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
    """Return the states that a cell or leaf returned, as a tuple.

    Raises
    ------
    ModelError
        They are not those that were declared.
    """
    states = tuple(made) if isinstance(made, list | tuple) else (made,)
    given = [tuple(getattr(one, "shape", ("no tensor",))) for one in states]
    if given != list(shapes):
        raise ModelError(
            f"a cell returns states {given}; declared: {list(shapes)}; return them in this order"
        )
    return states


def _inputs(shape: Shape | None, x: Any, num_nodes: int) -> Any:
    """Return the inputs of all nodes as a tensor; None where nodes have none."""
    import torch

    if (shape is None) != (x is None):
        raise ModelError(f"x: {'given' if shape is None else 'missing'}; the recursion has x={shape}")
    if shape is None:
        return None
    x = torch.as_tensor(x)
    wanted = (num_nodes, *shape)
    if tuple(x.shape) != wanted:
        raise ModelError(f"x: given the shape {tuple(x.shape)}; allowed: {wanted}, a row for each node")
    return x.to(torch.float32 if shape else torch.int64)


def _children_first(children: Array) -> list[int]:
    """Return all nodes, each after its children."""
    order: list[int] = []
    state = [0] * len(children)  # 1: its children wait, 2: done
    for root in range(len(children)):
        waiting = [root]
        while waiting:
            node = waiting[-1]
            below = [int(one) for one in children[node] if one >= 0] if state[node] == 0 else []
            if state[node] == 0:
                state[node] = 1
                if any(state[one] == 1 for one in below):
                    raise ModelError(f"node {node} is among its own descendants; allowed: no circle")
                waiting += [one for one in below if state[one] == 0]
                continue
            waiting.pop()
            if state[node] == 1:
                state[node] = 2
                order.append(node)
    return order
