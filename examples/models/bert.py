"""BERT: an encoder of post-norm layers over token, position and segment embeddings. Random weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Config:
    vocabulary: int = 1000
    hidden: int = 64
    heads: int = 4
    layers: int = 2
    inner: int = 256
    positions: int = 128


def full() -> Config:
    """BERT-base."""
    return Config(vocabulary=30522, hidden=768, heads=12, layers=12, inner=3072, positions=512)


def small() -> Config:
    """Two layers of hidden size 256."""
    return Config(vocabulary=30522, hidden=256, heads=4, layers=2, inner=1024, positions=512)


class Layer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.query = nn.Linear(config.hidden, config.hidden)
        self.key = nn.Linear(config.hidden, config.hidden)
        self.value = nn.Linear(config.hidden, config.hidden)
        self.projection = nn.Linear(config.hidden, config.hidden)
        self.attention_norm = nn.LayerNorm(config.hidden, eps=1e-12)
        self.expand = nn.Linear(config.hidden, config.inner)
        self.contract = nn.Linear(config.inner, config.hidden)
        self.output_norm = nn.LayerNorm(config.hidden, eps=1e-12)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, hidden = x.shape
        q, k, v = (
            layer(x).view(batch, length, self.heads, hidden // self.heads).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) / (hidden // self.heads) ** 0.5 + mask
        context = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, hidden)
        x = self.attention_norm(x + self.projection(context))
        return self.output_norm(x + self.contract(F.gelu(self.expand(x))))


class Bert(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.positions = nn.Embedding(config.positions, config.hidden)
        self.segments = nn.Embedding(2, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=1e-12)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.pooler = nn.Linear(config.hidden, config.hidden)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.tokens(input_ids) + self.positions(positions) + self.segments(token_type_ids)
        x = self.norm(x)
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


def build(config: Config | None = None) -> nn.Module:
    torch.manual_seed(0)
    return Bert(config or Config()).eval()


def example_args(batch: int = 2, length: int = 9, config: Config | None = None) -> tuple[Any, ...]:
    ids = torch.randint(0, (config or Config()).vocabulary, (batch, length))
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, length // 2 + 1 :] = 0
    return ids, mask, (ids > 500).long()


def dynamic_shapes(config: Config | None = None) -> Any:
    batch = torch.export.Dim("B", min=1, max=8)
    length = torch.export.Dim("L", min=1, max=(config or Config()).positions)
    return ({0: batch, 1: length},) * 3
