"""Windows of an image that attend within themselves, rolled in every second layer, as Swin's."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, size: int, hidden: int, heads: int, window: int, shift: int) -> None:
        super().__init__()
        self.window, self.shift, self.heads = window, shift, heads
        self.norm = nn.LayerNorm(hidden)
        self.qkv, self.projection = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.bias = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads))
        at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = (at[:, :, None] - at[:, None, :]) + window - 1
        self.register_buffer("positions", apart[0] * (2 * window - 1) + apart[1])
        area = torch.zeros(1, size, size, 1)
        if shift:  # windows at the border hold parts that are no neighbours
            for number, rows in enumerate((slice(-window), slice(-window, -shift), slice(-shift, None))):
                area[:, rows] += 3 * number
                area[:, :, rows] += number
        parts = self.parts(area).squeeze(-1)
        self.register_buffer("hidden", (parts[:, None, :] != parts[:, :, None]).float() * -100.0)

    def parts(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, depth = x.shape
        w = self.window
        x = x.view(batch, height // w, w, width // w, w, depth)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, depth)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, depth = x.shape
        w = self.window
        y = self.norm(x)
        y = torch.roll(y, (-self.shift, -self.shift), (1, 2)) if self.shift else y
        y = self.parts(y)
        q, k, v = self.qkv(y).reshape(-1, w * w, 3, self.heads, depth // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT * (depth // self.heads) ** -0.5
        scores = scores + self.bias[self.positions.view(-1)].view(w * w, w * w, -1).permute(2, 0, 1)
        count = self.hidden.shape[0]
        scores = scores.view(batch, count, self.heads, w * w, w * w) + self.hidden[None, :, None]
        y = scores.view(-1, self.heads, w * w, w * w).softmax(-1) @ v
        y = self.projection(y.transpose(1, 2).reshape(-1, w * w, depth))
        y = y.view(batch, height // w, width // w, w, w, depth).permute(0, 1, 3, 2, 4, 5)
        y = y.reshape(batch, height, width, depth)
        return x + (torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y)


class Swin(nn.Module):
    def __init__(self, size: int, hidden: int, heads: int, window: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, 4, 4)
        shifts = (0, window // 2)
        self.layers = nn.ModuleList(Layer(size // 4, hidden, heads, window, one) for one in shifts)
        self.merge = nn.Linear(4 * hidden, 2 * hidden, bias=False)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).permute(0, 2, 3, 1)
        for layer in self.layers:
            x = layer(x)
        pieces = (x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2])
        return self.merge(torch.cat(pieces, -1))


def build(size: int = 32, hidden: int = 24, heads: int = 3, window: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return Swin(size, hidden, heads, window).eval()


def full() -> nn.Module:
    return build(224, 96, 3, 7)


def example_args(batch: int = 2, size: int = 32) -> tuple[Any, ...]:
    return (torch.randn(batch, 3, size, size),)


def dynamic_shapes() -> Any:
    return ({0: torch.export.Dim("B", min=1, max=8)},)
