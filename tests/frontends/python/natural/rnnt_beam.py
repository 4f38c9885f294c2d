"""RNN-T beam search (Graves 2012) with prefix merging; hypotheses in a dict keyed by their label tuple."""
from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

import dietcode

BLANK, LABELS, H, F = 0, 7, 16, 6


def logaddexp(a: float, b: float) -> float:
    if a == -math.inf:
        return b
    m = max(a, b)
    return m + math.log1p(math.exp(min(a, b) - m))


@dataclass(frozen=True)
class Hypothesis:
    labels: tuple[int, ...]
    score: float
    output: Tensor
    state: tuple[Tensor, Tensor]

    @property
    def normalized(self) -> float:
        return self.score / max(1, len(self.labels))


class Transducer(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.LSTMCell(F, H)
        self.embedding = nn.Embedding(LABELS, H)
        self.predictor = nn.LSTMCell(H, H)
        self.joiner = nn.Sequential(nn.Linear(2 * H, H), nn.Tanh(), nn.Linear(H, LABELS))

    def encode(self, frames: list[Tensor]) -> list[Tensor]:
        state = None
        out = []
        for frame in frames:
            state = self.encoder(frame, state)
            out.append(state[0])
        return out

    def predict(self, label, state=None):
        state = self.predictor(self.embedding(torch.tensor(label)), state)
        return state[0], state

    def join(self, f, g):
        return torch.log_softmax(3.0 * self.joiner(torch.cat((f, g), dim=-1)), dim=-1)


torch.manual_seed(3)
model = Transducer().eval()


@dietcode.program
def recognize(frames: list[Tensor], beam_size: int = 3, max_symbols: int = 3) -> list[tuple[list[int], float]]:
    out, state = model.predict(BLANK)
    beam = [Hypothesis((), 0.0, out, state)]
    for f in model.encode(frames):
        done: dict[tuple[int, ...], Hypothesis] = {}
        frontier = beam
        for depth in range(max_symbols + 1):
            expanded = []
            for hyp in frontier:
                logp = model.join(f, hyp.output).tolist()
                stay = replace(hyp, score=hyp.score + logp[BLANK])
                if (old := done.get(hyp.labels)) is not None:
                    stay = replace(stay, score=logaddexp(old.score, stay.score))
                done[hyp.labels] = stay
                if depth < max_symbols:
                    expanded += [(hyp.score + p, k, hyp) for k, p in enumerate(logp) if k != BLANK]
            worst = sorted((h.score for h in done.values()), reverse=True)[:beam_size][-1]
            best = heapq.nlargest(beam_size, expanded, key=lambda item: item[0])
            frontier = []
            for score, label, hyp in best:
                if score <= worst and len(done) >= beam_size:
                    continue
                out, state = model.predict(label, hyp.state)
                frontier.append(Hypothesis((*hyp.labels, label), score, out, state))
            if not frontier:
                break
        beam = heapq.nlargest(beam_size, done.values(), key=lambda h: h.score)
    beam.sort(key=lambda h: h.normalized, reverse=True)
    return [(list(h.labels), h.score) for h in beam]


def recordings(seed, lengths):
    g = torch.Generator().manual_seed(seed)
    return [[torch.randn(F, generator=g) for _ in range(n)] for n in lengths]


def samples():
    return recordings(0, [1, 2, 3, 5, 4])


def others():
    return recordings(1, [7, 2, 0])


PROGRAMS = [(recognize, samples, others)]
