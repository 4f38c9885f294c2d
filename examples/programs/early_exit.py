"""An encoder with early exits (as BERxiT, Xin and others, 2021): its layers share their weights.

dietcode compile examples/programs/early_exit.py:classify --samples samples -o early-exit.bundle
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import dietcode


class Layer(nn.Module):
    """One layer of an encoder over ``[length, width]``."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the states behind the layer."""
        length, width = x.shape
        q, k, v = (
            one.reshape(length, self.heads, -1).transpose(0, 1) for one in self.qkv(x).chunk(3, dim=-1)
        )
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        x = self.first(x + self.out(attended.transpose(0, 1).reshape(length, width)))
        return self.second(x + self.down(torch.relu(self.up(x))))


def build(width: int = 256, heads: int = 4, layers: int = 12) -> dietcode.Program:
    """Return the program: from a sequence of vectors to probabilities of two classes.

    Parameters
    ----------
    width, heads : int
    layers : int
        The most layers that an instance goes through.
    """
    torch.manual_seed(0)
    layer, classes = Layer(width, heads).eval(), nn.Linear(width, 2).eval()

    @dietcode.program
    def classify(x: Tensor) -> tuple[Tensor, int]:
        for number in range(layers):
            x = layer(x)
            found = torch.softmax(classes(x[0]), dim=-1)
            if found.max() > 0.62:
                return found, number + 1
        return found, layers

    return classify


def samples(count: int = 64, width: int = 256, length: int = 32) -> list[Tensor]:
    """Return sequences of vectors."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(length, width, generator=generator) for _ in range(count)]


classify = build()
