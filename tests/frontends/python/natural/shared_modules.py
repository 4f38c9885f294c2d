"""Programs that share modules: built by a function, marked in a class, an ensemble of one class, siamese and tied weights."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partialmethod, singledispatchmethod
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

import dietcode

D, V = 10, 12
T = TypeVar("T")


class Encodes(Protocol):
    def __call__(self, item: object) -> Tensor: ...


class Encoder(nn.Module):
    def __init__(self, scale: float = 1.0):
        super().__init__()
        self.scale = scale
        self.embedding = nn.Embedding(V, D)
        self.cell = nn.GRUCell(D, D)
        self.register_buffer("start", scale * torch.linspace(-1, 1, D))

    @singledispatchmethod
    def encode(self, item) -> Tensor:
        raise TypeError(f"cannot encode a {type(item).__name__}")

    @encode.register
    def _(self, item: int) -> Tensor:
        return self.scale * self.embedding(torch.tensor(item))

    @encode.register
    def _(self, item: list) -> Tensor:
        h = self.start
        for x in item:
            h = self.cell(self.encode(x), h)
        return h

    @dietcode.program
    def depth_first(self, item) -> Tensor:
        return self.encode(item)

    def forward(self, item):
        return self.encode(item)


@dataclass
class Ranked(Generic[T]):
    item: T
    score: float

    def __lt__(self, other: Ranked[T]) -> bool:
        return self.score < other.score


class Siamese(nn.Module):
    def __init__(self, encoder: Encodes):
        super().__init__()
        self.encoder = encoder
        self.out = nn.Linear(2 * D, D, bias=False)
        self.tied = nn.Linear(D, V, bias=False)
        self.tied.weight = encoder.embedding.weight

    def compare(self, a, b, mode="cosine"):
        u, v = self.encoder(a), self.encoder(b)
        if mode == "cosine":
            return torch.cosine_similarity(u, v, dim=0).item()
        if mode == "dot":
            return torch.dot(u, self.out(torch.cat([u, v]))).item()
        raise NotImplementedError(mode)

    by_dot = partialmethod(compare, mode="dot")

    def next_word(self, item):
        return self.tied(self.encoder(item)).argmax().item()


def build(scale: float, stop: float):
    encoder = Encoder(scale).eval()
    step, value = nn.Linear(D, D).eval(), nn.Linear(D, 1).eval()

    def settle(h) -> Iterator[Tensor]:
        for _ in range(6):
            h = torch.tanh(step(h))
            yield h
            if value(h) > stop:
                return

    @dietcode.program
    def program(item):
        *_, last = settle(encoder(item))
        return last, sum(1 for _ in settle(last))

    return program


torch.manual_seed(0)
small, large = Encoder(0.5).eval(), Encoder(2.0).eval()
siamese = Siamese(large).eval()
ensemble = nn.ModuleList(Encoder(s) for s in (0.5, 1.0, 1.5)).eval()
heads = {len(m): m for m in [nn.Sequential(nn.Linear(D, 3)), nn.Sequential(nn.Linear(D, 4), nn.Tanh(), nn.Linear(4, 3)), nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Dropout(0.5), nn.Linear(D, 3))]}
for module in heads.values():
    module.eval()


@dietcode.program
def vote(item, quorum=2):
    votes, states = [0, 0, 0], []
    for k, member in enumerate(ensemble):
        h = member(item)
        head = heads[sorted(heads)[k]]
        choice = head(h).argmax().item()
        votes[choice] += 1
        states.append(h)
        if votes[choice] >= quorum:
            break
    return votes.index(max(votes)), k, torch.stack(states).std(dim=0) if len(states) > 1 else None


@dietcode.program
def search(query, documents, mode="cosine"):
    ranked = sorted((Ranked(d, siamese.compare(query, d, mode)) for d in documents), reverse=True)
    return ranked[:2], siamese.by_dot(query, ranked[0].item) if ranked else None, [siamese.next_word(r.item) for r in ranked]


ITEMS = [3, [1], [1, [2, 3], 4], [[5], [6, [7]], 8], [], [[], [9]], [11, 10, [2, [2, [2]]]], "x", [1, None], [4, [12]]]
QUERIES = [([1, 2], [1, 3]), ([3], 3), ([1, [2]], [[1], 2]), (5, [6, 6, 6])]
PROGRAMS = [
    (small.depth_first, lambda: ITEMS[:5], lambda: ITEMS),
    (large.depth_first, lambda: ITEMS[:5], lambda: ITEMS),
    (build(1.0, 0.2), lambda: ITEMS[:5], lambda: ITEMS),
    (build(2.0, 0.6), lambda: ITEMS[:5], lambda: ITEMS),
    (vote, lambda: ITEMS[:6], lambda: [*ITEMS, (ITEMS[2], 1), (ITEMS[3], 3)]),
    (dietcode.program(siamese.compare), lambda: QUERIES[:3], lambda: [*QUERIES, (1, 2, "dot"), ([], [3], "l2")]),
    (search, lambda: [(ITEMS[2], ITEMS[:3]), (ITEMS[1], ITEMS[3:6]), (3, [[3], [2, 1]])], lambda: [([9], [ITEMS[3]]), ([1], []), (ITEMS[6], ITEMS[:7], "dot")]),
]
