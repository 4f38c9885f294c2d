"""Residual blocks with pooling, as in ResNet, over images of any size."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, inputs: int, inner: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.reduce = nn.Sequential(nn.Conv2d(inputs, inner, 1, bias=False), nn.BatchNorm2d(inner))
        self.middle = nn.Sequential(nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner))
        self.expand = nn.Sequential(nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.expand(F.relu(self.middle(F.relu(self.reduce(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, stem: int, blocks: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, stem, 7, 2, 3, bias=False), nn.BatchNorm2d(stem), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        layers, channels = [], stem
        for stage, count in enumerate(blocks):
            inner = stem << stage
            for number in range(count):
                layers.append(Block(channels, inner, 4 * inner, 2 if stage and number == 0 else 1))
                channels = 4 * inner
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(channels, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.stem(image)).mean((2, 3)))


def build(stem: int = 8, blocks: tuple[int, ...] = (1, 2)) -> nn.Module:
    torch.manual_seed(0)
    return ResNet(stem, blocks).eval()


def full() -> nn.Module:
    """ResNet-50."""
    return build(64, (3, 4, 6, 3))


def small() -> nn.Module:
    """One block for each stage of ResNet-50."""
    return build(64, (1, 1, 1, 1))


def example_args(batch: int = 2, height: int = 45, width: int = 37) -> tuple[Any, ...]:
    return (torch.randn(batch, 3, height, width),)


def dynamic_shapes() -> Any:
    height, width = (torch.export.Dim(name, min=32, max=256) for name in ("H", "W"))
    return ({0: torch.export.Dim("B", min=1, max=8), 2: height, 3: width},)
