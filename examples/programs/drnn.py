"""A doubly recurrent network (Alvarez-Melis and Jaakkola, 2017): it generates a tree top down.

Whether a node has children, and how many, depends on what was just computed.

dietcode compile examples/programs/drnn.py:generate --samples samples -o drnn.bundle
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import dietcode


@dataclass
class Made:
    """A node of the tree that is generated."""

    state: Tensor
    children: list[Made]


def build(hidden: int = 256, deepest: int = 5, most: int = 3) -> dietcode.Program:
    """Return the program: from a vector to a tree.

    Parameters
    ----------
    hidden : int
    deepest : int
        The most levels of a tree.
    most : int
        The most children of a node.
    """
    torch.manual_seed(0)
    down, along = nn.GRUCell(hidden, hidden).eval(), nn.GRUCell(hidden, hidden).eval()
    decide = nn.Linear(hidden, 1).eval()
    with torch.no_grad():
        decide.weight.mul_(4)
    start = torch.zeros(hidden)

    def grow(above: Tensor, before: Tensor, depth: int) -> Made:
        state = torch.tanh(down(above, before) + along(before, above))
        states: list[Tensor] = []
        sibling = start
        if depth < deepest:
            while len(states) < most and torch.sigmoid(decide(state + sibling)) > 0.5:
                sibling = along(state, sibling)
                states.append(sibling)
        return Made(state, dietcode.map(grow_from, [(state, one, depth + 1) for one in states]))

    def grow_from(given: tuple[Tensor, Tensor, int]) -> Made:
        above, before, depth = given
        return grow(above, before, depth)

    @dietcode.program
    def generate(seed: Tensor) -> Made:
        return grow(seed, start, 0)

    return generate


def samples(count: int = 64, hidden: int = 256) -> list[Tensor]:
    """Return seeds."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(hidden, generator=generator) for _ in range(count)]


generate = build()
