"""The TreeLSTM of ``examples/programs`` as a recursion: what a program of the same model is measured beside.

dietcode compile benchmarks/program_recursion.py:model --samples samples -o DIR/tree_lstm_recursion
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import dietcode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "programs"))
tree_lstm: Any = __import__("tree_lstm")

HIDDEN, WORDS = 256, 1000


class Cell(nn.Module):
    """A node of two children; it has no word of its own."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(
        self, word: Tensor, h_left: Tensor, c_left: Tensor, h_right: Tensor, c_right: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return h and c of a node."""
        found: tuple[Tensor, Tensor] = self.cell((h_left, c_left), (h_right, c_right))
        return found


def build() -> dietcode.Recursion:
    """Return the recursion, with the weights of the example."""
    torch.manual_seed(0)
    leaf, cell = tree_lstm.Leaf(HIDDEN, WORDS).eval(), tree_lstm.Cell(HIDDEN).eval()
    states = [(HIDDEN,), (HIDDEN,)]
    return dietcode.Recursion(Cell(cell).eval(), children=2, leaf=leaf, states=states, x=())


def arrays_of_trees(trees: Sequence[Any]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the children of all nodes, children first, and their words; roots are in the order of trees."""
    rows: list[list[int]] = []
    words: list[int] = []

    def add(tree: Any) -> int:
        row = [-1, -1] if tree.left is None else [add(tree.left), add(tree.right)]
        rows.append(row)
        words.append(tree.word)
        return len(rows) - 1

    for tree in trees:
        add(tree)
    return np.array(rows, np.int32), np.array(words, np.int32)


def samples() -> list[NDArray[np.int32]]:
    """Return structures of calls of 1, 8 and 64 trees, as programs are tuned for."""
    trees = tree_lstm.samples()
    return [arrays_of_trees(trees[:count])[0] for count in (1, 8, 64)]


model = build()
