"""A decoder like Llama: RMSNorm, rotary positions, grouped queries, SwiGLU; caches are inputs and outputs.

A call gives new tokens and what the call before returned as caches, [layers, B, groups, P, depth];
P is 0 at first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Config:
    vocabulary: int = 500
    hidden: int = 64
    heads: int = 4
    groups: int = 2
    layers: int = 2
    inner: int = 160
    positions: int = 256


def full() -> Config:
    """The sizes of a model of a billion parameters."""
    return Config(vocabulary=32000, hidden=2048, heads=32, groups=4, layers=22, inner=5632, positions=2048)


def small() -> Config:
    """Four layers of hidden size 512."""
    return Config(vocabulary=8000, hidden=512, heads=8, groups=2, layers=4, inner=1408, positions=1024)


class Norm(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(hidden) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Layer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, depth = config, config.hidden // config.heads
        self.attention_norm, self.output_norm = Norm(config.hidden), Norm(config.hidden)
        self.query = nn.Linear(config.hidden, config.hidden, bias=False)
        self.key = nn.Linear(config.hidden, config.groups * depth, bias=False)
        self.value = nn.Linear(config.hidden, config.groups * depth, bias=False)
        self.projection = nn.Linear(config.hidden, config.hidden, bias=False)
        self.gate = nn.Linear(config.hidden, config.inner, bias=False)
        self.up = nn.Linear(config.hidden, config.inner, bias=False)
        self.down = nn.Linear(config.inner, config.hidden, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor,
        cache: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch, length, hidden = x.shape
        own = self.attention_norm(x)

        def split(y: torch.Tensor, heads: int) -> torch.Tensor:
            return y.view(batch, length, heads, -1).transpose(1, 2)

        q = rotated(split(self.query(own), self.config.heads), *angles)
        k = rotated(split(self.key(own), self.config.groups), *angles)
        v = split(self.value(own), self.config.groups)
        k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        context = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
        x = x + self.projection(context.transpose(1, 2).reshape(batch, length, hidden))
        own = self.output_norm(x)
        return x + self.down(F.silu(self.gate(own)) * self.up(own)), k, v


class Llama(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        depth = config.hidden // config.heads
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = Norm(config.hidden)
        self.head = nn.Linear(config.hidden, config.vocabulary, bias=False)
        self.register_buffer("frequencies", 10000.0 ** (-torch.arange(0, depth, 2) / depth))

    def forward(self, tokens: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[Any, ...]:
        past, length = keys.shape[3], tokens.shape[1]
        positions = torch.arange(past, past + length)
        angles = positions[:, None].to(torch.float32) * self.frequencies
        angles = torch.cat([angles, angles], -1)
        visible = torch.arange(past + length)[None, :] <= positions[:, None]
        x, found = self.embedding(tokens), []
        for number, layer in enumerate(self.layers):
            cache = (keys[number], values[number])
            x, *own = layer(x, (angles.cos(), angles.sin()), visible, cache)
            found.append(own)
        new_keys, new_values = (torch.stack(list(one)) for one in zip(*found, strict=True))
        return self.head(self.norm(x)), new_keys, new_values


def build(config: Config | None = None) -> nn.Module:
    torch.manual_seed(0)
    return Llama(config or Config()).eval()


def example_args(
    batch: int = 2, length: int = 5, past: int = 7, config: Config | None = None
) -> tuple[Any, ...]:
    config = config or Config()
    cache = (config.layers, batch, config.groups, past, config.hidden // config.heads)
    return torch.randint(0, config.vocabulary, (batch, length)), torch.randn(cache), torch.randn(cache)


def dynamic_shapes(config: Config | None = None) -> Any:
    positions = (config or Config()).positions
    batch = torch.export.Dim("B", min=1, max=4)
    length = torch.export.Dim("L", min=1, max=positions // 2)
    past = torch.export.Dim("P", min=0, max=positions // 2)
    return {0: batch, 1: length}, {1: batch, 3: past}, {1: batch, 3: past}
