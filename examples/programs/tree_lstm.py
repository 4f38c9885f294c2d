"""A binary TreeLSTM (Tai, Socher and Manning, 2015) as plain recursion; leaves are words.

dietcode compile examples/programs/tree_lstm.py:encode --samples samples -o tree-lstm.bundle
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import dietcode


@dataclass
class Tree:
    """A leaf has a word; other nodes have two trees."""

    left: Tree | None
    right: Tree | None
    word: int


class Cell(nn.Module):
    """A node whose children have h and c ``[hidden]``."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.left = nn.Linear(hidden, 5 * hidden)
        self.right = nn.Linear(hidden, 5 * hidden, bias=False)

    def forward(self, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return h and c of a node."""
        i, f, g, o, u = (self.left(left[0]) + self.right(right[0])).chunk(5)
        c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f) * left[1] + torch.sigmoid(g) * right[1]
        return torch.sigmoid(o) * torch.tanh(c), c


class Leaf(nn.Module):
    """A word as h and c ``[hidden]``."""

    def __init__(self, hidden: int, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, hidden)
        self.gates = nn.Linear(hidden, 3 * hidden)

    def forward(self, word: Tensor) -> tuple[Tensor, Tensor]:
        """Return h and c of a leaf."""
        i, o, u = self.gates(self.embedding(word)).chunk(3)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c


def build(hidden: int = 256, words: int = 1000) -> dietcode.Program:
    """Return the program: from a tree to h of its root."""
    torch.manual_seed(0)
    leaf, cell = Leaf(hidden, words).eval(), Cell(hidden).eval()

    def node(tree: Tree) -> tuple[Tensor, Tensor]:
        if tree.left is None:
            return leaf(torch.tensor(tree.word))
        left, right = dietcode.concurrent(node(tree.left), node(tree.right))
        return cell(left, right)

    @dietcode.program
    def encode(tree: Tree) -> Tensor:
        h, _ = node(tree)
        return h

    return encode


def random_tree(draw: random.Random, leaves: int, words: int) -> Tree:
    """Return a tree of so many leaves."""
    if leaves == 1:
        return Tree(None, None, draw.randrange(words))
    left = draw.randrange(1, leaves)
    return Tree(random_tree(draw, left, words), random_tree(draw, leaves - left, words), 0)


def samples(count: int = 64, words: int = 1000) -> list[Tree]:
    """Return trees of 3 to 30 leaves."""
    draw = random.Random(0)
    return [random_tree(draw, draw.randrange(3, 31), words) for _ in range(count)]


encode = build()
