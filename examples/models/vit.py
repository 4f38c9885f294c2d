"""A vision transformer: patches of an image, a class token, pre-norm layers, PyTorch's own attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Vit(nn.Module):
    def __init__(self, size: int, patch: int, hidden: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, hidden))
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, hidden))
        layer = nn.TransformerEncoderLayer(
            hidden, heads, 4 * hidden, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(hidden), enable_nested_tensor=False)
        self.head = nn.Linear(hidden, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.encoder(x)[:, 0])


def build(size: int = 32, patch: int = 8, hidden: int = 48, heads: int = 4, layers: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return Vit(size, patch, hidden, heads, layers).eval()


def full() -> nn.Module:
    """ViT-B/16 at 224 × 224."""
    return build(224, 16, 768, 12, 12)


def example_args(batch: int = 2, size: int = 32) -> tuple[Any, ...]:
    return (torch.randn(batch, 3, size, size),)


def dynamic_shapes() -> Any:
    return ({0: torch.export.Dim("B", min=1, max=8)},)
