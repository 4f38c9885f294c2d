"""Binary TreeLSTM (Tai, Socher and Manning, 2015), equations 9 to 14: weights of each child, words at leaves.

dietcode compile examples/recursion/binary_tree_lstm.py:model -o binary-tree-lstm.bundle
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import dietcode


class Cell(nn.Module):
    """A node with two children, each with states h, c ``[hidden]``."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.gates = nn.Linear(2 * hidden, 5 * hidden)

    def forward(
        self, word: Tensor, h_left: Tensor, c_left: Tensor, h_right: Tensor, c_right: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return h and c of a node; only leaves have words."""
        i, o, u, left, right = self.gates(torch.cat([h_left, h_right])).chunk(5)
        kept = torch.sigmoid(left) * c_left + torch.sigmoid(right) * c_right
        c = torch.sigmoid(i) * torch.tanh(u) + kept
        return torch.sigmoid(o) * torch.tanh(c), c


class Leaf(nn.Module):
    """A leaf: gates of the vector of its word."""

    def __init__(self, words: int, width: int, hidden: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(words, width)
        self.gates = nn.Linear(width, 3 * hidden)

    def forward(self, word: Tensor) -> tuple[Tensor, Tensor]:
        """Return h and c of a leaf."""
        i, o, u = self.gates(self.vectors(word)).chunk(3)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c


def build(hidden: int = 256, width: int = 256, words: int = 1000) -> dietcode.Recursion:
    """Return the recursion."""
    cell, leaf = Cell(hidden).eval(), Leaf(words, width, hidden).eval()
    return dietcode.Recursion(cell, children=2, leaf=leaf, states=[(hidden,), (hidden,)], x=())


torch.manual_seed(0)
model = build()
