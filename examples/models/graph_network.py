"""Attention over the neighbours of each node of a graph, which are gathered by their numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Network(nn.Module):
    def __init__(self, inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.own = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers))
        self.other = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers))
        self.weight = nn.ModuleList(nn.Linear(2 * hidden, 1) for _ in range(layers))

    def forward(self, nodes: torch.Tensor, neighbours: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.first(nodes))
        for own, other, weight in zip(self.own, self.other, self.weight, strict=True):
            around = x[neighbours]
            pairs = torch.cat([x[:, None].expand_as(around), around], -1)
            scores = F.leaky_relu(weight(pairs)[..., 0], 0.2).masked_fill(~there, -1e9)
            message = (scores.softmax(-1)[..., None] * other(around)).sum(1)
            x = F.elu(own(x) + message)
        return F.normalize(x, dim=-1)


def build(inputs: int = 12, hidden: int = 24, layers: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return Network(inputs, hidden, layers).eval()


def full() -> nn.Module:
    return build(128, 256, 3)


def example_args(nodes: int = 11, degree: int = 4, inputs: int = 12) -> tuple[Any, ...]:
    there = torch.rand(nodes, degree) < 0.7
    return torch.randn(nodes, inputs), torch.randint(0, nodes, (nodes, degree)), there


def dynamic_shapes() -> Any:
    nodes, degree = torch.export.Dim("N", min=1, max=1000), torch.export.Dim("D", min=1, max=16)
    return {0: nodes}, {0: nodes, 1: degree}, {0: nodes, 1: degree}
