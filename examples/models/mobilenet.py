"""Inverted residual blocks, as in MobileNetV2, over images of any size."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def convolution(inputs: int, outputs: int, window: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, window, stride, window // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(),
    )


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.alike = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            *([convolution(inputs, inner, 1)] if expansion > 1 else []),
            convolution(inner, inner, 3, stride, inner),
            nn.Conv2d(inner, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.alike else self.layers(x)


# Expansion, channels, blocks, stride of the first of them.
FULL = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
SMALL = ((1, 8, 1, 1), (4, 16, 2, 2), (4, 24, 1, 2))


def build(stages: tuple[tuple[int, int, int, int], ...] = SMALL, stem: int = 8, last: int = 64) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = [convolution(3, stem, 3, 2)]
    channels = stem
    for expansion, outputs, blocks, stride in stages:
        for number in range(blocks):
            layers.append(Block(channels, outputs, stride if number == 0 else 1, expansion))
            channels = outputs
    layers += [convolution(channels, last, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 10)]
    module = nn.Sequential(*layers).eval()
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.uniform_(norm.running_mean, -0.1, 0.1)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)
    return module


def full() -> nn.Module:
    return build(FULL, 32, 1280)


def example_args(batch: int = 2, height: int = 45, width: int = 37) -> tuple[Any, ...]:
    return (torch.randn(batch, 3, height, width),)


def dynamic_shapes() -> Any:
    height, width = (torch.export.Dim(name, min=32, max=256) for name in ("H", "W"))
    return ({0: torch.export.Dim("B", min=1, max=8), 2: height, 3: width},)
