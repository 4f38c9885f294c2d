"""Greedy decoding in one call: a loop with an early exit, which attends to a text of any length."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch._higher_order_ops import while_loop

END = 0


class Decoder(nn.Module):
    """Writes up to `steps` words about a text; a row that has written END goes on with END."""

    def __init__(self, vocabulary: int, width: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.embedding = nn.Embedding(vocabulary, width)
        self.keys, self.values = nn.Linear(width, width), nn.Linear(width, width)
        self.update, self.more = nn.Linear(width, width), nn.Linear(2 * width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, text: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = text.shape[0]
        read = self.embedding(text)
        keys, values = self.keys(read), self.values(read)

        def goes_on(step: torch.Tensor, state: Any, word: Any, written: Any) -> torch.Tensor:
            return (step < self.steps) & (word != END).any()

        def write(step: torch.Tensor, state: Any, word: Any, written: Any) -> tuple[torch.Tensor, ...]:
            scores = (keys @ state.unsqueeze(2)).squeeze(2).softmax(1)
            seen = (scores.unsqueeze(2) * values).sum(1)
            inputs = torch.cat((self.embedding(word), seen), 1)
            state = torch.tanh(self.update(state) + self.more(inputs))
            best = self.head(state).argmax(1)
            word = torch.where(word == END, word, best)
            at = torch.arange(self.steps) == step
            return step + 1, state, word, torch.where(at, word.unsqueeze(1), written)

        begin = torch.zeros((), dtype=torch.int64)
        state, words = read.mean(1), text[:, -1] * 1
        empty = torch.zeros(rows, self.steps, dtype=torch.int64)
        count, _, _, written = while_loop(goes_on, write, (begin, state, words, empty))
        return written, count


def build(vocabulary: int = 40, width: int = 16, steps: int = 12) -> nn.Module:
    torch.manual_seed(0)
    return Decoder(vocabulary, width, steps).eval()


def full() -> nn.Module:
    """A vocabulary of 8000, width 512, up to 64 words."""
    return build(8000, 512, 64)


def example_args(batch: int = 2, length: int = 9, vocabulary: int = 40) -> tuple[Any, ...]:
    return (torch.randint(0, vocabulary, (batch, length)),)


def dynamic_shapes() -> Any:
    return ({0: torch.export.Dim("B", min=1, max=16), 1: torch.export.Dim("L", min=1, max=128)},)
