"""MV-RNN (Socher et al., 2012): every node has a vector and a matrix that acts on its sibling's vector.

dietcode compile examples/recursion/mv_rnn.py:model -o mv-rnn.bundle
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import dietcode


class Cell(nn.Module):
    """A node with two children, each with a vector ``[hidden]`` and a matrix ``[hidden, hidden]``."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.join = nn.Linear(2 * hidden, hidden)
        self.matrices = nn.Parameter(torch.randn(hidden, 2 * hidden) / (2 * hidden) ** 0.5)

    def forward(
        self, word: Tensor, a: Tensor, a_matrix: Tensor, b: Tensor, b_matrix: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return vector and matrix of a node; only leaves have words."""
        vector = torch.tanh(self.join(torch.cat([b_matrix @ a, a_matrix @ b])))
        return vector, self.matrices @ torch.cat([a_matrix, b_matrix])


class Leaf(nn.Module):
    """A leaf: the vector and the matrix of its word."""

    def __init__(self, words: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.vectors = nn.Embedding(words, hidden)
        self.matrices = nn.Embedding(words, hidden * hidden)

    def forward(self, word: Tensor) -> tuple[Tensor, Tensor]:
        """Return vector and matrix of a leaf."""
        return self.vectors(word), self.matrices(word).reshape(self.hidden, self.hidden)


def build(hidden: int = 64, words: int = 100) -> dietcode.Recursion:
    """Return the recursion."""
    cell, leaf = Cell(hidden).eval(), Leaf(words, hidden).eval()
    shapes = [(hidden,), (hidden, hidden)]
    return dietcode.Recursion(cell, children=2, leaf=leaf, states=shapes, x=())


torch.manual_seed(0)
model = build()
