"""A bidirectional RNN over sentences of any length, with an output for each word.

dietcode compile examples/programs/birnn.py:tag --samples samples -o birnn.bundle
"""

from __future__ import annotations

import random

import torch
from torch import Tensor, nn

import dietcode


def build(hidden: int = 256, words: int = 1000, tags: int = 16) -> dietcode.Program:
    """Return the program: from the words of a sentence to the scores of each word's tags."""
    torch.manual_seed(0)
    embedding = nn.Embedding(words, hidden).eval()
    forth, back = nn.RNNCell(hidden, hidden).eval(), nn.RNNCell(hidden, hidden).eval()
    scores = nn.Linear(2 * hidden, tags).eval()
    start = torch.zeros(hidden)

    def run(cell: nn.Module, sentence: list[int]) -> list[Tensor]:
        state, states = start, []
        for word in sentence:
            state = cell(embedding(torch.tensor(word)), state)
            states.append(state)
        return states

    def reverse(items: list[int]) -> list[int]:
        return list(reversed(items))

    @dietcode.program
    def tag(sentence: list[int]) -> list[Tensor]:
        left, right = dietcode.concurrent(run(forth, sentence), run(back, reverse(sentence)))
        return [torch.relu(scores(torch.cat([a, b]))) for a, b in zip(left, reversed(right), strict=True)]

    return tag


def samples(count: int = 64, words: int = 1000) -> list[list[int]]:
    """Return sentences as long as those of XNLI: Gamma(4, 21.7 / 4) within 3 to 60."""
    draw = random.Random(0)
    lengths = [min(60, max(3, round(draw.gammavariate(4, 21.7 / 4)))) for _ in range(count)]
    return [[draw.randrange(words) for _ in range(length)] for length in lengths]


tag = build()
