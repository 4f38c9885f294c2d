"""Greedy decoding of an RNN transducer (Graves, 2012): for each frame, labels until the blank is best.

dietcode compile examples/programs/rnn_transducer.py:transcribe --samples samples -o rnn-transducer.bundle
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import dietcode


def build(
    hidden: int = 256, frame: int = 80, labels: int = 32, most: int = 3, blank: float = 0.3
) -> dietcode.Program:
    """Return the program: from the frames of a recording to its labels.

    Parameters
    ----------
    hidden : int
    frame : int
        The width of a frame.
    labels : int
        How many there are; 0 is the blank.
    most : int
        The most labels of one frame.
    blank : float
        By how much the blank is preferred.
    """
    torch.manual_seed(0)
    encoder, predictor = nn.LSTMCell(frame, hidden).eval(), nn.LSTMCell(hidden, hidden).eval()
    embedding, first = nn.Embedding(labels, hidden).eval(), nn.Linear(2 * hidden, hidden).eval()
    scores = nn.Linear(hidden, labels).eval()
    with torch.no_grad():
        scores.weight.mul_(8)
        scores.bias[0] += blank
    zero = torch.zeros(hidden)

    def encode(frames: list[Tensor]) -> list[Tensor]:
        h, c = zero, zero
        states: list[Tensor] = []
        for one in frames:
            h, c = encoder(one, (h, c))
            states.append(h)
        return states

    @dietcode.program
    def transcribe(frames: list[Tensor]) -> list[int]:
        found: list[int] = []
        h, c = predictor(embedding(torch.tensor(0)), (zero, zero))
        for state in encode(frames):
            for _ in range(most):
                best = int(scores(torch.tanh(first(torch.cat([state, h])))).argmax())
                if best == 0:
                    break
                found.append(best)
                h, c = predictor(embedding(torch.tensor(best)), (h, c))
        return found

    return transcribe


def samples(count: int = 64, frame: int = 80, longest: int = 30) -> list[list[Tensor]]:
    """Return recordings of 5 frames and more."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(5, longest + 1, (count,), generator=generator).tolist()
    return [[torch.randn(frame, generator=generator) for _ in range(length)] for length in lengths]


transcribe = build()
