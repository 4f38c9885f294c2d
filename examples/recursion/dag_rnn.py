"""DAG-RNN (Shuai et al., 2015) over a grid, where a node has the states of three neighbours.

dietcode compile examples/recursion/dag_rnn.py:model -o dag-rnn.bundle
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import dietcode


class Cell(nn.Module):
    """A node of input ``[width]`` and state ``[hidden]``; those of neighbours are ``[max, hidden]``."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.of_x = nn.Linear(width, hidden)
        self.of_h = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        """Return the state of a node."""
        return torch.relu(self.of_x(x) + self.of_h(h.sum(0)))


def build(hidden: int = 256, width: int = 256, children: int = 3) -> dietcode.Recursion:
    """Return the recursion; a node that nothing precedes is the cell without children."""
    cell = Cell(width, hidden).eval()
    return dietcode.Recursion(cell, children=dietcode.ChildSum(max=children), states=[(hidden,)], x=(width,))


torch.manual_seed(0)
model = build()
