"""A shift-reduce parser in the manner of the stack LSTM (Dyer and others, 2015), with RNN cells.

dietcode compile examples/programs/stack_rnn.py:parse --samples samples -o stack-rnn.bundle
"""

from __future__ import annotations

import random

import torch
from torch import Tensor, nn

import dietcode


def build(hidden: int = 256, words: int = 1000) -> dietcode.Program:
    """Return the program: from the words of a sentence to a state of its parse, and the actions taken."""
    torch.manual_seed(0)
    embedding = nn.Embedding(words, hidden).eval()
    buffer_cell, stack_cell = nn.RNNCell(hidden, hidden).eval(), nn.RNNCell(hidden, hidden).eval()
    merge = nn.Linear(2 * hidden, hidden).eval()
    score = nn.Linear(2 * hidden, 2).eval()
    start = torch.zeros(hidden)

    @dietcode.block
    def reduced(first: Tensor, second: Tensor) -> Tensor:
        return torch.tanh(merge(torch.cat([first, second])))

    @dietcode.program
    def parse(sentence: list[int]) -> tuple[Tensor, list[int]]:
        buffer, state = [start], start
        for word in reversed(sentence):
            state = buffer_cell(embedding(torch.tensor(word)), state)
            buffer.append(state)
        items: list[Tensor] = []
        stack = [start]
        actions: list[int] = []
        while len(buffer) > 1 or len(items) > 1:
            action = score(torch.cat([stack[-1], buffer[-1]])).argmax()
            if len(items) < 2 or (len(buffer) > 1 and action == 0):
                item = buffer.pop()
            else:
                second = items.pop()
                first = items.pop()
                stack.pop()
                stack.pop()
                item = reduced(first, second)
            items.append(item)
            stack.append(stack_cell(item, stack[-1]))
            actions.append(int(action))
        return items[0], actions

    return parse


def samples(count: int = 64, words: int = 1000) -> list[list[int]]:
    """Return sentences as long as those of XNLI: Gamma(4, 21.7 / 4) within 3 to 60."""
    draw = random.Random(0)
    lengths = [min(60, max(3, round(draw.gammavariate(4, 21.7 / 4)))) for _ in range(count)]
    return [[draw.randrange(words) for _ in range(length)] for length in lengths]


parse = build()
