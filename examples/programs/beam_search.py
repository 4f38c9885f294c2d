"""Beam search over an LSTM: the texts with the largest probability, of which some end before others.

dietcode compile examples/programs/beam_search.py:search --samples samples -o beam-search.bundle
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import dietcode


@dataclass
class Beam:
    """A text that is being made.

    Attributes
    ----------
    score : float
        The logarithm of its probability.
    words : list of int
    h, c : Tensor
        The state behind its last word.
    is_done : bool
    """

    score: float
    words: list[int]
    h: Tensor
    c: Tensor
    is_done: bool


def build(hidden: int = 256, words: int = 50, width: int = 4, longest: int = 12) -> dietcode.Program:
    """Return the program: from a vector to the best texts and their scores, the best first.

    Parameters
    ----------
    hidden : int
    words : int
        How many there are; 0 begins a text, and 1 ends it.
    width : int
        How many texts are kept.
    longest : int
        The most words of a text.
    """
    torch.manual_seed(0)
    embedding, cell = nn.Embedding(words, hidden).eval(), nn.LSTMCell(hidden, hidden).eval()
    scores = nn.Linear(hidden, words).eval()
    with torch.no_grad():
        scores.weight.mul_(8)
        scores.bias[1] += 1.0
    zero = torch.zeros(hidden)

    def longer(beam: Beam) -> list[Beam]:
        if beam.is_done:
            return [beam]
        h, c = cell(embedding(torch.tensor(beam.words[-1])), (beam.h, beam.c))
        chances = torch.log_softmax(scores(h), dim=-1).tolist()
        found: list[Beam] = []
        for word, chance in enumerate(chances):
            if word != 0:
                insert(found, Beam(beam.score + chance, [*beam.words, word], h, c, word == 1))
        return found

    def insert(kept: list[Beam], one: Beam) -> None:
        at = len(kept)
        while at > 0 and kept[at - 1].score < one.score:
            at -= 1
        if at < width:
            kept.append(one)
            for place in range(len(kept) - 1, at, -1):
                kept[place] = kept[place - 1]
            kept[at] = one
            if len(kept) > width:
                kept.pop()

    @dietcode.program
    def search(seed: Tensor) -> list[tuple[float, list[int]]]:
        beams = [Beam(0.0, [0], seed, zero, False)]
        for _ in range(longest):
            kept: list[Beam] = []
            for several in dietcode.map(longer, beams):
                for one in several:
                    insert(kept, one)
            beams = kept
        return [(beam.score, beam.words) for beam in beams]

    return search


def samples(count: int = 64, hidden: int = 256) -> list[Tensor]:
    """Return seeds."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(hidden, generator=generator) for _ in range(count)]


search = build()
