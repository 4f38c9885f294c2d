"""A loop inside a loop: an RNN over texts, each step of which is a GRU over the words of a sentence.

dietcode compile examples/programs/nested_rnn.py:read --samples samples -o nested-rnn.bundle
"""

from __future__ import annotations

import random

import torch
from torch import Tensor, nn

import dietcode


def build(hidden: int = 256, words: int = 1000) -> dietcode.Program:
    """Return the program: from the sentences of a text to the state behind the last one."""
    torch.manual_seed(0)
    embedding = nn.Embedding(words, hidden).eval()
    inner, outer = nn.GRUCell(hidden, hidden).eval(), nn.RNNCell(hidden, hidden).eval()
    start = torch.zeros(hidden)

    def sentence(text: list[int]) -> Tensor:
        state = start
        for word in text:
            state = inner(embedding(torch.tensor(word)), state)
        return state

    @dietcode.program
    def read(text: list[list[int]]) -> Tensor:
        state = start
        for found in dietcode.map(sentence, text):
            state = outer(found, state)
        return state

    return read


def samples(count: int = 64, words: int = 1000) -> list[list[list[int]]]:
    """Return texts of 2 to 8 sentences, which are as long as those of XNLI."""
    draw = random.Random(0)

    def sentence() -> list[int]:
        length = min(60, max(3, round(draw.gammavariate(4, 21.7 / 4))))
        return [draw.randrange(words) for _ in range(length)]

    return [[sentence() for _ in range(draw.randrange(2, 9))] for _ in range(count)]


read = build()
