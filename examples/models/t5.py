"""An encoder layer with relative positions in buckets, as T5's."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def buckets(distance: torch.Tensor, count: int, furthest: int) -> torch.Tensor:
    """Near distances one by one, further ones on a logarithmic scale."""
    half = count // 2
    side = (distance > 0).long() * half
    distance, exact = distance.abs(), half // 2
    scale = torch.log(distance.clamp(min=1).float() / exact) / math.log(furthest / exact)
    far = (exact + (scale * (half - exact)).long()).clamp(max=half - 1)
    return side + torch.where(distance < exact, distance, far)


class Encoder(nn.Module):
    def __init__(self, vocabulary: int, hidden: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(32, heads)
        self.norms = nn.ModuleList(nn.RMSNorm(hidden, eps=1e-6) for _ in range(3))
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.projection = nn.Linear(hidden, hidden, bias=False)
        self.expand = nn.Linear(hidden, inner, bias=False)
        self.contract = nn.Linear(inner, hidden, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        own = torch.arange(tokens.shape[1])
        bias = self.positions(buckets(own[None, :] - own[:, None], 32, 128)).permute(2, 0, 1)[None]
        q, k, v = (
            one.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for one in self.qkv(self.norms[0](x)).split(x.shape[-1], -1)
        )
        scores = torch.matmul(q, k.mT) + bias
        context = torch.matmul(F.softmax(scores.float(), -1).type_as(scores), v)
        x = x + self.projection(context.transpose(1, 2).flatten(2))
        return self.norms[2](x + self.contract(F.relu(self.expand(self.norms[1](x)))))


def build(vocabulary: int = 300, hidden: int = 48, heads: int = 4, inner: int = 96) -> nn.Module:
    torch.manual_seed(0)
    return Encoder(vocabulary, hidden, heads, inner).eval()


def full() -> nn.Module:
    return build(32128, 512, 8, 2048)


def example_args(batch: int = 2, length: int = 19) -> tuple[Any, ...]:
    return (torch.randint(0, 300, (batch, length)),)


def dynamic_shapes() -> Any:
    return ({0: torch.export.Dim("B", min=1, max=4), 1: torch.export.Dim("L", min=1, max=200)},)
