"""An encoder of speech, as Whisper's: two convolutions over frames, sinusoids, pre-norm layers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.output_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.query, self.value = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.projection = nn.Linear(hidden, hidden)
        self.mlp = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = self.attention_norm(x)
        q, k, v = (
            layer(own).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        x = x + self.projection(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.output_norm(x))


class Encoder(nn.Module):
    def __init__(self, bands: int, hidden: int, heads: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(bands, hidden, 3, padding=1)
        self.second = nn.Conv1d(hidden, hidden, 3, stride=2, padding=1)
        self.layers = nn.ModuleList(Layer(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        rate = torch.exp(-math.log(10000) / (hidden // 2 - 1) * torch.arange(hidden // 2))
        self.register_buffer("rate", rate)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.second(F.gelu(self.first(frames)))).transpose(1, 2)
        angles = torch.arange(x.shape[1])[:, None] * self.rate
        x = x + torch.cat([angles.sin(), angles.cos()], 1)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def build(bands: int = 16, hidden: int = 48, heads: int = 4, layers: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return Encoder(bands, hidden, heads, layers).eval()


def full() -> nn.Module:
    """The encoder of Whisper-base."""
    return build(80, 512, 8, 6)


def example_args(batch: int = 2, frames: int = 21, bands: int = 16) -> tuple[Any, ...]:
    return (torch.randn(batch, bands, frames),)


def dynamic_shapes() -> Any:
    return ({0: torch.export.Dim("B", min=1, max=4), 2: torch.export.Dim("T", min=3, max=3000)},)
