"""Depthwise 7 × 7 convolutions and dense layers over channels, as ConvNeXt's."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.expand, self.contract = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.rand(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.contract(F.gelu(self.expand(y)))).permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    def __init__(self, channels: int, blocks: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, channels, 4, 4)]
        for stage, count in enumerate(blocks):
            if stage:
                layers += [nn.GroupNorm(1, channels), nn.Conv2d(channels, 2 * channels, 2, 2)]
                channels *= 2
            layers += [Block(channels) for _ in range(count)]
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(channels, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(image).mean((-2, -1)))


def build(channels: int = 16, blocks: tuple[int, ...] = (1, 1)) -> nn.Module:
    torch.manual_seed(0)
    return ConvNext(channels, blocks).eval()


def full() -> nn.Module:
    return build(96, (3, 3, 9, 3))


def example_args(batch: int = 2, height: int = 45, width: int = 37) -> tuple[Any, ...]:
    return (torch.randn(batch, 3, height, width),)


def dynamic_shapes() -> Any:
    height, width = (torch.export.Dim(name, min=32, max=256) for name in ("H", "W"))
    return ({0: torch.export.Dim("B", min=1, max=8), 2: height, 3: width},)
