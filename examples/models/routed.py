"""Layers for chosen words alone: how many are chosen depends on the words, at most all of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Routed(nn.Module):
    def __init__(self, vocabulary: int, width: int, wide: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.gate = nn.Linear(width, 1)
        self.up, self.down = nn.Linear(width, wide), nn.Linear(wide, width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 5)

    def forward(self, text: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.embedding(text)
        chosen = self.gate(x).squeeze(1) > 0
        rows = self.down(torch.nn.functional.gelu(self.up(x[chosen])))
        # Row k + 1 is the k-th that was chosen; row 0 is for all others.
        rows = torch.cat((torch.zeros(1, rows.shape[1]), rows))
        places = torch.where(chosen, chosen.to(torch.int64).cumsum(0), 0)
        return self.head(self.norm(x + rows[places])), torch.nonzero(chosen).squeeze(1)


def build(vocabulary: int = 100, width: int = 24, wide: int = 64) -> nn.Module:
    torch.manual_seed(0)
    return Routed(vocabulary, width, wide).eval()


def full() -> nn.Module:
    """A vocabulary of 8000, width 512 and 2048."""
    return build(8000, 512, 2048)


def example_args(length: int = 9, vocabulary: int = 100) -> tuple[Any, ...]:
    return (torch.randint(0, vocabulary, (length,)),)


def dynamic_shapes() -> Any:
    return ({0: torch.export.Dim("L", min=1, max=256)},)
