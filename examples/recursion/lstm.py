"""An LSTM over sequences of any lengths: a recursion with one child.

dietcode compile examples/recursion/lstm.py:model -o lstm.bundle --max-level 64
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import dietcode


class Cell(nn.Module):
    """A step: PyTorch's own cell, on input ``[width]`` and states ``[hidden]``."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.step = nn.LSTMCell(width, hidden)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Return h and c after a step."""
        return self.step(x, (h, c))


def build(hidden: int = 256, width: int = 256) -> dietcode.Recursion:
    """Return the recursion; the first step is the cell with states of zeros."""
    cell = Cell(width, hidden).eval()
    return dietcode.Recursion(cell, children=1, states=[(hidden,), (hidden,)], x=(width,))


torch.manual_seed(0)
model = build()
