"""A matrix-vector recursive network (Socher and others, 2012): each node has a vector and a matrix.

dietcode compile examples/programs/mv_rnn.py:encode --samples samples -o mv-rnn.bundle
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import dietcode


@dataclass
class Phrase:
    """A leaf has a word; other nodes have two phrases."""

    left: Phrase | None
    right: Phrase | None
    word: int


class Words(nn.Module):
    """A word as its vector ``[hidden]`` and its matrix ``[hidden, hidden]``."""

    def __init__(self, hidden: int, words: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.vectors, self.matrices = nn.Embedding(words, hidden), nn.Embedding(words, hidden * hidden)
        with torch.no_grad():
            self.matrices.weight.div_(hidden**0.5)

    def forward(self, word: Tensor) -> tuple[Tensor, Tensor]:
        """Return vector and matrix."""
        return self.vectors(word), self.matrices(word).reshape(self.hidden, self.hidden)


class Join(nn.Module):
    """Two phrases as one."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.vector = nn.Linear(2 * hidden, hidden)
        self.matrix = nn.Linear(2 * hidden, hidden, bias=False)

    def forward(self, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return vector and matrix of the phrase of both."""
        (a, a_matrix), (b, b_matrix) = left, right
        vector = torch.tanh(self.vector(torch.cat([b_matrix @ a, a_matrix @ b])))
        return vector, self.matrix.weight @ torch.cat([a_matrix, b_matrix])


def build(hidden: int = 64, words: int = 1000) -> dietcode.Program:
    """Return the program: from a tree to the vector of its root."""
    torch.manual_seed(0)
    leaf, join = Words(hidden, words).eval(), Join(hidden).eval()

    def node(phrase: Phrase) -> tuple[Tensor, Tensor]:
        if phrase.left is None:
            return leaf(torch.tensor(phrase.word))
        left, right = dietcode.concurrent(node(phrase.left), node(phrase.right))
        return join(left, right)

    @dietcode.program
    def encode(phrase: Phrase) -> Tensor:
        vector, _ = node(phrase)
        return vector

    return encode


def random_phrase(draw: random.Random, leaves: int, words: int) -> Phrase:
    """Return a tree of so many leaves."""
    if leaves == 1:
        return Phrase(None, None, draw.randrange(words))
    left = draw.randrange(1, leaves)
    return Phrase(random_phrase(draw, left, words), random_phrase(draw, leaves - left, words), 0)


def samples(count: int = 64, words: int = 1000) -> list[Phrase]:
    """Return trees of 3 to 30 leaves."""
    draw = random.Random(0)
    return [random_phrase(draw, draw.randrange(3, 31), words) for _ in range(count)]


encode = build()
