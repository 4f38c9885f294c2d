"""TreeFC: one layer over the states of two children; leaves are words.

dietcode compile examples/recursion/tree_fc.py:model -o tree-fc.bundle
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import dietcode


class Cell(nn.Module):
    """A node: ``relu(W · [left; right] + b)``, of float32 ``[hidden]``."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.join = nn.Linear(2 * hidden, hidden)

    def forward(self, word: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """Return the state of a node; only leaves have words."""
        return torch.relu(self.join(torch.cat([left, right])))


class Leaf(nn.Module):
    """A leaf: the vector of its word."""

    def __init__(self, words: int, hidden: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(words, hidden)

    def forward(self, word: Tensor) -> Tensor:
        """Return the state of a leaf."""
        return self.vectors(word)


def build(hidden: int = 256, words: int = 1000) -> dietcode.Recursion:
    """Return the recursion."""
    cell, leaf = Cell(hidden).eval(), Leaf(words, hidden).eval()
    return dietcode.Recursion(cell, children=2, leaf=leaf, states=[(hidden,)], x=())


torch.manual_seed(0)
model = build()
