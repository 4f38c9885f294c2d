"""Programs with exceptions beside tensors, texts that they make, modules beside lists, orders of objects."""

from __future__ import annotations

import functools
import heapq
import random
from typing import Any

import torch
from torch import nn

import dietcode

H, VOCAB = 8, 12
torch.manual_seed(7)  # which lines samples reach depends on the weights
EMBEDDING, CELL = nn.Embedding(VOCAB, H).eval(), nn.GRUCell(H, H).eval()
VALUE, JOIN = nn.Linear(H, 1).eval(), nn.Linear(2 * H, H).eval()
Case = tuple[Any, ...]


def vector(word: int) -> Any:
    return EMBEDDING(torch.tensor(word))


def score(state: Any) -> float:
    found: float = VALUE(state).item()
    return found


def _words(seed: int, count: int = 14, most: int = 6) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(VOCAB) for _ in range(draw.randint(1, most))] for _ in range(count)]


class TooHighError(Exception):
    def __init__(self, state: Any, place: int) -> None:
        super().__init__(f"too high at {place}")
        self.state, self.place = state, place


def exceptions_beside_tensors() -> Case:
    """They pass tasks that run side by side, carry tensors, and end the instance that does not take them."""

    def step(word: int, state: Any) -> Any:
        state = CELL(vector(word), state)
        if score(state) > 0.1:
            raise TooHighError(state, word)
        if word == 11:
            raise RuntimeError(f"no word {word}")
        return state

    def program(words: Any) -> Any:
        state, notes = torch.zeros(H), []
        stack: list[int] = list(words)
        memo: dict[str, Any] = {}
        while True:
            try:
                word = stack.pop()
                left, right = dietcode.concurrent(step(word, state), step((word + 5) % 11, state))
                state = torch.tanh(JOIN(torch.cat([left, right])))
            except TooHighError as error:
                notes.append(str(error))
                state = error.state * 0.25
                key = f"{error.place}/{len(stack) % 2}"
                if key not in memo:
                    memo[key] = vector(word)
                state = state + memo[key]
            except IndexError:
                break
            finally:
                notes.append("end")
        return state, notes, memo

    given = _words(21)
    return dietcode.program(program), [one for one in given if 11 not in one][:8], [*given, [11], [2, 11]]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList([nn.GRUCell(H, H) for _ in range(2)])
        self.heads = nn.ModuleList([nn.Linear(H, H // 2) for _ in range(2)])

    def mixed(self, x: Any, **options: Any) -> Any:
        return torch.cat([torch.tanh(head(x)) for head in self.heads], -1) * options.get("scale", 1.0)

    def forward(self, words: Any) -> Any:
        states = [torch.zeros(H) for _ in self.cells]
        for word in words:
            x, found = vector(word), []
            for cell, state in zip(self.cells, states, strict=True):
                x = cell(x, state)
                found.append(x)
            states = found
        return self.mixed(states[-1], scale=0.5), states[0]


class Wider(Layers):
    def mixed(self, x: Any, **options: Any) -> Any:
        return super().mixed(x * 2, **options) + x


def modules_beside_lists() -> Case:
    """Each round of a loop over modules has its own item of a list; a parent's method is called."""
    return dietcode.program(Wider().eval()), _words(22)[:6], _words(23)[:5]


@functools.total_ordering
class Candidate:
    def __init__(self, cost: float, state: Any, depth: int) -> None:
        self.cost, self.state, self.depth = cost, state, depth

    def __lt__(self, other: Candidate) -> bool:
        return self.cost < other.cost

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidate) and self.cost == other.cost

    __hash__ = None  # type: ignore[assignment]


def best_first() -> Case:
    """A search whose heap has objects."""

    def program(words: Any) -> Any:
        heap = [Candidate(0.0, vector(words[0]), 0)]
        seen = []
        while heap:
            node = heapq.heappop(heap)
            seen.append(f"{node.depth}:{node.cost:.2f}")
            if node.depth == len(words) or len(seen) > 6:
                return node.state, seen, max(heap) > node if heap else False
            for k in (1, 2):
                state = CELL(vector(words[node.depth]), node.state * k)
                heapq.heappush(heap, Candidate(node.cost + abs(score(state)), state, node.depth + 1))
        return None

    return dietcode.program(program), _words(24)[:8], _words(25)[:6]


def taken_behind_a_product() -> Case:
    """What depends on the instance alone is taken out of a block that stands before a ``try``."""
    inner, outer = nn.Linear(H, H).eval(), nn.Linear(H, H).eval()

    def program(rows: Any) -> Any:
        state, found = torch.zeros(H), []
        for number, row in rows:
            state = torch.tanh(inner(state) + outer(row))
            try:
                found.append(12 // number)
                _, last = found[-number:]
            except ZeroDivisionError:
                found.append(-1)
            except ValueError:
                found.append(-2)
            else:
                found.append(last)
        return state, found

    given = [[(number, torch.randn(H)) for number in words] for words in _words(26)]
    return dietcode.program(program), given[:8], given[8:]


PROGRAMS = {
    one.__name__: one
    for one in (exceptions_beside_tensors, modules_beside_lists, best_first, taken_behind_a_product)
}
