"""Programs with sets, and with the largest of a row; each gives a program, samples and further instances."""

from __future__ import annotations

import collections
import random
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import dietcode

H, VOCAB = 16, 12
torch.manual_seed(12)  # which lines samples reach depends on the weights
EMBEDDING, CELL = nn.Embedding(VOCAB, H).eval(), nn.GRUCell(H, H).eval()
LOGITS, VALUE = nn.Linear(H, VOCAB).eval(), nn.Linear(H, 1).eval()
Case = tuple[Any, ...]


def vector(word: int) -> Any:
    return EMBEDDING(torch.tensor(word))


def encoded(words: Any) -> Any:
    state = torch.zeros(H)
    for word in words:
        state = CELL(vector(word), state)
    return state


def _words(seed: int, count: int = 8) -> list[list[int]]:
    draw = random.Random(seed)
    return [draw.sample(range(VOCAB), draw.randint(1, 6)) for _ in range(count)]


def _case(program: Any, instances: list[Any], samples: int = 6) -> Case:
    return dietcode.program(program), instances[:samples], instances[samples:]


def visited_once() -> Case:
    def program(edges: Any) -> Any:
        seen = {0}
        queue = collections.deque([0])
        order: list[int] = []
        state = torch.zeros(H)
        while queue:
            at = queue.popleft()
            order.append(at)
            state = CELL(vector(at), state)
            for other in edges[at]:
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
        return state, order, len(seen)

    draw = random.Random(4)
    graphs = [[draw.sample(range(6), draw.randint(0, 3)) for _ in range(6)] for _ in range(8)]
    return _case(program, graphs)


def algebra_of_sets() -> Case:
    def program(words: Any) -> Any:
        seen = set(words[:1])
        seen.update(words[1:3])
        seen.discard(3)
        if 4 in seen:
            seen.remove(4)
        odd = {word + 1 for word in words if word % 2}
        both, same = seen & odd, seen
        same |= odd  # the same set still
        of_dict = set({1: 2, 5: 3})
        rounds = 0
        before = sorted(seen)
        while seen and rounds < 2:
            seen.discard(min(seen))
            rounds += 1
        flags = (seen == same, odd != seen, seen.isdisjoint(odd), of_dict.issubset(odd), odd >= both)
        other = odd.copy()
        other.add((1, 2))
        other.add(None)
        many = len(other)
        other.clear()
        rest = set(range(len(words))) - {word % 4 for word in words}
        first = vector(words[0]) if words[0] in {1, 2, 3} else vector(0)
        return first, before, sorted(odd), sum(both), flags, many, isinstance(other, set), max(rest | {0})

    return _case(program, [[1, 2, 3, 4], [4, 1, 7], [3], [0, 4, 5, 9, 11], [2, 0], *_words(5)], 8)


@dataclass
class Seen:
    words: set[int] = field(default_factory=set)
    counts: dict[int, int] = field(default_factory=dict)


def containers_of_an_object() -> Case:
    def program(words: Any) -> Any:
        seen = Seen()
        for word in words:
            if word in seen.words:
                seen.counts[word] = seen.counts.get(word, 1) + 1
            seen.words.add(word)
        return len(seen.words), seen.counts, vector(len(seen.words))

    return _case(program, [[1, 1, 2], [3], [4, 5, 4, 4], [6, 7], [8, 8, 8]], 4)


def a_member_that_is_missing() -> Case:
    def program(words: Any) -> Any:
        left = set(words)
        left.remove(3)
        return vector(words[0]), len(left)

    return _case(program, [[3], [4, 3], [1, 3, 3, 2], [5, 6]], 3)


def beams_by_topk() -> Case:
    def program(words: Any) -> Any:
        beams = [(0.0, [0], encoded(words))]
        ended = []
        for _ in range(3):
            found = []
            for score, text, state in beams:
                after = CELL(vector(text[-1]), state)
                best, ids = torch.log_softmax(LOGITS(after), -1).topk(3)
                for own, word in zip(best.tolist(), ids.tolist(), strict=True):
                    found.append((score + own, [*text, word], after))
            found.sort(key=lambda one: one[0], reverse=True)
            beams = [one for one in found[:4] if one[1][-1] > 2]
            ended += [one for one in found[:4] if one[1][-1] <= 2]
            if not beams:
                break
        best = max(ended + beams, key=lambda one: one[0] / len(one[1]))
        return best[1], best[0]

    return _case(program, _words(6))


class Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(H, 3)
        self.experts = nn.ModuleList([nn.Linear(H, H) for _ in range(3)])

    def forward(self, state: Any) -> Any:
        weights, chosen = self.gate(state).softmax(-1).topk(2)
        weights = weights / weights.sum()
        found = torch.zeros_like(state)
        for at in range(2):
            found = found + weights[at] * self.experts[chosen[at].item()](state)
        return found


def two_experts() -> Case:
    router = Router().eval()

    def program(words: Any) -> Any:
        state = torch.zeros(H)
        for word in words:
            state = torch.tanh(router(CELL(vector(word), state)))
        return state

    return _case(program, [[one] for one in range(VOCAB)] + _words(7), 16)


def largest_of_a_list() -> Case:
    def program(words: Any) -> Any:
        states = [vector(word) for word in words]
        scores = torch.stack([VALUE(one)[0] for one in states])
        best = torch.topk(scores, k=min(2, len(words)), dim=0)
        mixed = torch.zeros(H)
        for weight, at in zip(torch.softmax(best.values, 0), best.indices, strict=True):
            mixed = mixed + weight * states[int(at)]
        return mixed, best.values.tolist(), best.indices.tolist(), best.indices[0].item()

    return _case(program, _words(8))


def more_than_there_are() -> Case:
    def program(words: Any) -> Any:
        row = VALUE(vector(words[0]))
        return torch.cat([row, -row, 2 * row]).topk(len(words)).values.sum()

    return _case(program, [[1], [1, 2], [3, 1, 2], [4, 5, 6, 7]], 3)


PROGRAMS = {
    one.__name__: one
    for one in (
        visited_once,
        algebra_of_sets,
        containers_of_an_object,
        a_member_that_is_missing,
        beams_by_topk,
        two_experts,
        largest_of_a_list,
        more_than_there_are,
    )
}
