"""A network that narrows an image and widens it again beside what it saw before, as U-Net."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def layers(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.GroupNorm(4, outputs),
        nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.SiLU(),
    )


class Unet(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = layers(3, channels), layers(channels, 2 * channels)
        self.bottom = layers(2 * channels, 2 * channels)
        self.third, self.last = layers(4 * channels, channels), layers(2 * channels, channels)
        self.head = nn.Conv2d(channels, 2, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        first = self.first(image)
        second = self.second(F.max_pool2d(first, 2))
        x = F.interpolate(self.bottom(F.avg_pool2d(second, 2)), scale_factor=2)
        x = F.interpolate(self.third(torch.cat([x, second], 1)), scale_factor=2)
        return self.head(self.last(torch.cat([x, first], 1)))


def build(channels: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return Unet(channels).eval()


def full() -> nn.Module:
    return build(64)


def example_args(batch: int = 2, height: int = 24, width: int = 36) -> tuple[Any, ...]:
    return (torch.randn(batch, 3, height, width),)


def dynamic_shapes() -> Any:
    height, width = (4 * torch.export.Dim(name, min=2, max=64) for name in ("h", "w"))
    return ({0: torch.export.Dim("B", min=1, max=4), 2: height, 3: width},)
