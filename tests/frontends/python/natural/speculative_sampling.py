"""Speculative sampling (Leviathan et al. 2023) with rejection; random numbers come from a generator of each request."""
import random
from dataclasses import dataclass, field
from typing import List

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import dietcode

V, H = 12, 16
EOS = 0


@dataclass
class Request:
    prompt: List[int]
    seed: int
    temperature: float = 1.0
    max_new_tokens: int = 10


@dataclass
class Stats:
    proposed: int = 0
    accepted: int = 0
    rounds: int = 0
    per_round: List[int] = field(default_factory=list)

    @property
    def rate(self):
        return self.accepted / self.proposed if self.proposed else float("nan")


class RNNLM(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.emb, self.cell, self.head = nn.Embedding(V, hidden), nn.GRUCell(hidden, hidden), nn.Linear(hidden, V)
        self.hidden = hidden

    def initial(self):
        return torch.zeros(self.hidden)

    def forward(self, token, state, temperature=1.0):
        state = self.cell(self.emb(torch.as_tensor(token)), state)
        return F.softmax(3 * self.head(state) / temperature, dim=-1), state


torch.manual_seed(7)
big, small = RNNLM(H).eval(), RNNLM(8).eval()


def sample(probs, rng):
    p = probs.double().numpy()
    return int(rng.choice(len(p), p=p / p.sum()))


@dietcode.program
def generate(request: Request, gamma: int = 3):
    rng = np.random.default_rng(request.seed)
    stats, tokens = Stats(), list(request.prompt)
    T = request.temperature
    p = q = None
    sp, sq = big.initial(), small.initial()
    for t in tokens:
        p, sp = big(t, sp, T)
        q, sq = small(t, sq, T)
    stop = False
    while len(tokens) < len(request.prompt) + request.max_new_tokens and not stop:
        stats.rounds += 1
        drafts, qs, states = [], [q], [sq]
        for _ in range(gamma):
            x = sample(qs[-1], rng)
            drafts.append(x)
            q_next, s_next = small(x, states[-1], T)
            qs.append(q_next)
            states.append(s_next)
        ps, target_states = [p], [sp]
        for x in drafts:
            p_next, s_next = big(x, target_states[-1], T)
            ps.append(p_next)
            target_states.append(s_next)
        n = 0
        for x, p_i, q_i in zip(drafts, ps, qs):
            if rng.random() < min(1.0, (p_i[x] / q_i[x]).item()):
                n += 1
            else:
                break
        stats.proposed += gamma
        stats.accepted += n
        stats.per_round.append(n)
        if n < gamma:
            residual = torch.clamp(ps[n] - qs[n], min=0)
            last = sample(residual / residual.sum(), rng)
        else:
            last = sample(ps[n], rng)
        for x in drafts[:n] + [last]:
            tokens.append(x)
            if x == EOS:
                stop = True
                break
        p, sp = big(last, target_states[n], T)
        q, sq = small(last, states[n], T)
    return tokens, stats, round(stats.rate, 6)


def requests(seed, n):
    r = random.Random(seed)
    return [Request([r.randrange(1, V) for _ in range(r.randint(1, 4))], r.randrange(1000), r.choice([0.7, 1.0, 1.5])) for _ in range(n)]


PROGRAMS = [(generate, lambda: requests(0, 8), lambda: requests(1, 4) + [Request([3], 5, max_new_tokens=0), Request([2, 2], 9, 0.3, 20)])]
