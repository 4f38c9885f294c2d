"""Programs with heaps, queues, properties and defaults, as ordinary Python has them."""

from __future__ import annotations

import collections
import dataclasses
import heapq
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import dietcode

H, VOCAB = 16, 12
torch.manual_seed(7)  # which lines samples reach depends on the weights
EMBEDDING, CELL = nn.Embedding(VOCAB, H).eval(), nn.GRUCell(H, H).eval()
VALUE, LOGITS = nn.Linear(H, 1).eval(), nn.Linear(H, VOCAB).eval()
Case = tuple[Any, ...]


def vector(word: int) -> Any:
    return EMBEDDING(torch.tensor(word))


def _words(seed: int, count: int = 6) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(VOCAB) for _ in range(draw.randint(1, 6))] for _ in range(count)]


def _case(program: Any, instances: list[Any], samples: int = 4) -> Case:
    return dietcode.program(program), instances[:samples], instances[samples:]


def _graphs(seed: int) -> list[list[list[int]]]:
    draw = random.Random(seed)
    return [[draw.sample(range(6), draw.randint(0, 3)) for _ in range(6)] for _ in range(8)]


def cheapest_first() -> Case:
    """A search that takes the cheapest of what it knows from a heap; equal costs by the node's number."""

    def program(edges: Any) -> Any:
        best = {0: 0.0}
        heap = [(0.0, 0)]
        done = []
        while heap:
            cost, node = heapq.heappop(heap)
            if node in done:
                continue
            done.append(node)
            h = vector(node)
            for other in edges[node]:
                step = torch.sigmoid(VALUE(CELL(vector(other), h))).item()
                if other not in best or cost + step < best[other]:
                    best[other] = cost + step
                    heapq.heappush(heap, (cost + step, other))
        return done, best

    return _case(program, _graphs(1), 6)


def layout_of_a_heap() -> Case:
    """Where CPython puts what is pushed and what is left, equal ones too."""

    def program(numbers: Any) -> Any:
        heap = list(numbers)
        heapq.heapify(heap)
        first = list(heap)
        for one in numbers:
            heapq.heappush(heap, (one * 7) % 5)
        found = [heapq.heappop(heap) for _ in range(len(numbers))]
        return first, found, heap, vector(found[0])

    draw = random.Random(2)
    return _case(program, [[draw.randrange(9) for _ in range(many)] for many in (9, 1, 2, 3, 14, 30)], 3)


def breadth_first() -> Case:
    """A walk by a queue, of which ends are taken and given at both sides."""

    def program(edges: Any) -> Any:
        seen = {0: True}
        queue = deque([0])
        later = collections.deque()
        h = torch.zeros(H)
        order = []
        while queue:
            node = queue.popleft()
            order.append(node)
            h = CELL(vector(node), h)
            for other in edges[node]:
                if other not in seen:
                    seen[other] = True
                    if other % 2:
                        queue.append(other)
                    else:
                        queue.appendleft(other)
                    later.append(other)
        last = later.pop() if later else -1
        return h, order, last, len(later)

    return _case(program, _graphs(3), 8)


@dataclass(frozen=True)
class State:
    """Of a walk over words."""

    h: Any
    steps: int = 0
    limit: int = 3

    WIDTH = 2.5

    @property
    def is_done(self) -> bool:
        return self.steps >= self.limit

    @property
    def scaled(self) -> Any:
        return self.h * self.WIDTH

    def after(self, word: int) -> State:
        return dataclasses.replace(self, h=CELL(vector(word), self.h), steps=self.steps + 1)


def properties() -> Case:
    def program(words: Any) -> Any:
        state = State(torch.zeros(H))
        for word in words:
            if state.is_done:
                break
            state = state.after(word)
        return state.scaled, state.steps, state.WIDTH

    return _case(program, [[1, 2], [3], [4, 5, 6, 7], [8, 9, 10, 11, 0], [2, 2, 2]])


@dataclass
class Node:
    """Of a tree that is searched."""

    word: int
    visits: int = 0
    total: float = 0.0
    kids: list[Node] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return self.total / max(self.visits, 1)


@dataclass
class Leaf:
    """Whose mean is another one."""

    word: int

    @property
    def mean(self) -> float:
        return 0.25 * self.word


def properties_by_class() -> Case:
    """Objects of an instance that change, and whose classes compute one name in different ways."""

    def program(nodes: Any) -> Any:
        for node in nodes:
            if isinstance(node, Node):
                node.visits += 1
                node.total += VALUE(vector(node.word)).item()
        return [node.mean for node in nodes], max((node.mean for node in nodes), default=-1.0)

    return _case(
        program, [[Node(1), Leaf(2)], [Leaf(3)], [Node(4, 1, 0.5)], [], [Leaf(1), Node(2, 3, 1.0), Leaf(5)]]
    )


def defaults() -> Case:
    """Instances leave out what has a default; functions are given by name what has to be."""

    def step(h: Any, word: int, *, scale: float = 0.5, extra: int) -> Any:
        return CELL(vector(word), h) * scale + extra

    def program(words: Any, limit: int = 4, *, penalty: float = 0.1) -> Any:
        h = torch.zeros(H)
        out: list[int] = []
        word = words[0]
        while len(out) < limit:
            h = step(h, word, extra=0)
            h = step(h, word, extra=1, scale=1.0 - penalty)
            word = LOGITS(h).argmax().item()
            out.append(word)
            if word % 5 == 0:
                break
        return out, h

    return _case(program, _words(5))


def defaults_that_are_given() -> Case:
    def program(words: Any, limit: int = 4) -> Any:
        h = torch.zeros(H)
        for word in words[:limit]:
            h = CELL(vector(word), h)
        return h

    return _case(program, [(words, at % 3) for at, words in enumerate(_words(6))])


def layers_that_are_counted() -> Case:
    """An ensemble that ends when it is sure: modules in a loop whose count begins at one."""
    torch.manual_seed(7)
    models = nn.ModuleList(
        nn.Sequential(nn.Linear(H, H), nn.ReLU(), nn.Linear(H, 3)) for _ in range(4)
    ).eval()

    def program(word: Any, threshold: float = 0.42) -> Any:
        total = torch.zeros(3)
        for count, model in enumerate(models, start=1):
            total = total + torch.softmax(model(vector(word)), -1)
            if (total / count).max().item() > threshold:
                return total / count, count
        return total / len(models), len(models)

    return _case(program, list(range(VOCAB)), 8)


PROGRAMS = {
    own.__name__: own
    for own in (
        *(cheapest_first, layout_of_a_heap, breadth_first, properties, properties_by_class),
        *(defaults, defaults_that_are_given, layers_that_are_counted),
    )
}
