"""Child-sum TreeGRU: a gated recurrent unit over the sum of the children's states.

dietcode compile examples/recursion/tree_gru.py:model -o tree-gru.bundle
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import dietcode


class Cell(nn.Module):
    """A node of input ``[width]`` and state ``[hidden]``; those of children are ``[max, hidden]``."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.of_x = nn.Linear(width, 3 * hidden)
        self.gates_of_h = nn.Linear(hidden, 2 * hidden, bias=False)
        self.new_of_h = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        """Return the state of a node."""
        h = h.sum(0)
        update_of_x, reset_of_x, new_of_x = self.of_x(x).chunk(3)
        update_of_h, reset_of_h = self.gates_of_h(h).chunk(2)
        update = torch.sigmoid(update_of_x + update_of_h)
        reset = torch.sigmoid(reset_of_x + reset_of_h)
        new = torch.tanh(new_of_x + self.new_of_h(reset * h))
        return (1 - update) * h + update * new


def build(hidden: int = 256, width: int = 256, children: int = 2) -> dietcode.Recursion:
    """Return the recursion; a leaf is the cell without children."""
    cell = Cell(width, hidden).eval()
    return dietcode.Recursion(cell, children=dietcode.ChildSum(max=children), states=[(hidden,)], x=(width,))


torch.manual_seed(0)
model = build()
