"""Dense layers with a residual and dropout, over any number of rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(hidden, 2 * hidden), nn.ReLU(), nn.Dropout(), nn.Linear(2 * hidden, hidden)
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(hidden, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def build(hidden: int = 32, layers: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return Mlp(hidden, layers).eval()


def full() -> nn.Module:
    return build(1024, 3)


def example_args(batch: int = 3, hidden: int = 32) -> tuple[Any, ...]:
    return (torch.randn(batch, hidden),)


def dynamic_shapes() -> Any:
    return ({0: torch.export.Dim("B", min=1, max=128)},)
