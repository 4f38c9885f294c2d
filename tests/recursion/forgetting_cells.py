"""Cells with products of each child, for schedules; also read by ``dietcode compile``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import dietcode

CHILDREN, H, X, WORDS = 5, 12, 6, 9


class Forgetting(nn.Module):  # type: ignore[misc]
    """Of each child a gate of its own, of tanh of its state, with a bias; and a sum over children."""

    def __init__(self, words: bool) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.words = nn.Embedding(WORDS, X) if words else None
        self.of_x, self.of_h = nn.Linear(X, 2 * H), nn.Linear(H, H, bias=False)
        self.forget, self.mixed = nn.Linear(H, H), nn.Linear(H, H, bias=False)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        new, out = self.of_x(x if self.words is None else self.words(x)).chunk(2)
        kept = (torch.sigmoid(self.forget(torch.tanh(h))) * c + self.mixed(c)).sum(0)
        c = torch.tanh(new + self.of_h(h.sum(0))) + kept / 10
        return torch.sigmoid(out) * torch.tanh(c), c


class Leaf(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.of_x = nn.Linear(X, H)

    def forward(self, x: Any) -> Any:
        return torch.tanh(self.of_x(x)), self.of_x(x)


def forgetting(kind: str) -> Any:
    is_words = kind == "words"
    leaf = {"leaf": Leaf().eval()} if kind == "leaf" else {}
    children = dietcode.ChildSum(max=CHILDREN)
    x = () if is_words else (X,)
    return dietcode.Recursion(
        Forgetting(is_words).eval(), children=children, states=[(H,), (H,)], x=x, **leaf
    )


class Small(nn.Module):
    """Of each child a gate of its own: as few kernels as there may be."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.words, self.forget = nn.Embedding(WORDS, H), nn.Linear(H, H)

    def forward(self, x: Any, h: Any) -> Any:
        return torch.tanh(self.words(x) + (torch.sigmoid(self.forget(h)) * h).sum(0) / 2)


def small() -> Any:
    return dietcode.Recursion(Small().eval(), children=dietcode.ChildSum(max=CHILDREN), states=[(H,)], x=())
