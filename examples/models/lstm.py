"""A tagger: embeddings, an LSTM over any length, a classifier. Export it by ``dietcode.export``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, vocabulary: int, inputs: int, hidden: int, layers: int, bidirectional: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, inputs)
        self.lstm = nn.LSTM(inputs, hidden, layers, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(hidden * (2 if bidirectional else 1), 12)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        return self.head(states).log_softmax(-1)


def build(
    vocabulary: int = 500, inputs: int = 20, hidden: int = 24, layers: int = 1, bidirectional: bool = True
) -> nn.Module:
    torch.manual_seed(0)
    return Tagger(vocabulary, inputs, hidden, layers, bidirectional).eval()


def full(layers: int = 1) -> nn.Module:
    """Inputs of 300, states of 512, in one direction."""
    return build(10000, 300, 512, layers, bidirectional=False)


def two() -> nn.Module:
    """The same with two layers."""
    return full(2)


def example_args(batch: int = 2, length: int = 9, vocabulary: int = 500) -> tuple[Any, ...]:
    return (torch.randint(0, vocabulary, (batch, length)),)


def dynamic_shapes() -> Any:
    return ({0: torch.export.Dim("B", min=1, max=16), 1: torch.export.Dim("L", min=1, max=128)},)
