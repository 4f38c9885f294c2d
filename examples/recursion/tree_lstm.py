"""Child-sum TreeLSTM (Tai, Socher and Manning, 2015), equations 2 to 8: children without an order.

dietcode compile examples/recursion/tree_lstm.py:model -o tree-lstm.bundle
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import dietcode


class Cell(nn.Module):
    """A node of input ``[width]`` and states h, c ``[hidden]``; those of children are ``[max, hidden]``."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gates_of_x = nn.Linear(width, 3 * hidden)
        self.gates_of_h = nn.Linear(hidden, 3 * hidden, bias=False)
        self.forget_of_x = nn.Linear(width, hidden)
        self.forget_of_h = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Return h and c of a node; a child that is not there has zeros, which add nothing."""
        i, o, u = (self.gates_of_x(x) + self.gates_of_h(h.sum(0))).chunk(3)
        forget = torch.sigmoid(self.forget_of_x(x) + self.forget_of_h(h))
        new = torch.sigmoid(i) * torch.tanh(u) + (forget * c).sum(0)
        return torch.sigmoid(o) * torch.tanh(new), new


def build(hidden: int = 256, width: int = 256, children: int = 2) -> dietcode.Recursion:
    """Return the recursion; a leaf is the cell without children."""
    cell = Cell(width, hidden).eval()
    shapes = [(hidden,), (hidden,)]
    return dietcode.Recursion(cell, children=dietcode.ChildSum(max=children), states=shapes, x=(width,))


torch.manual_seed(0)
model = build()
