"""Programs with what people reach for in Python: closures that count, caches, stars, classes, collections."""

from __future__ import annotations

import bisect
import functools
import heapq
import itertools
import math
import operator
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

import dietcode

H, VOCAB = 8, 12
torch.manual_seed(11)  # which lines samples reach depends on the weights
EMBEDDING, CELL = nn.Embedding(VOCAB, H).eval(), nn.GRUCell(H, H).eval()
VALUE, JOIN = nn.Linear(H, 1).eval(), nn.Linear(2 * H, H).eval()
Case = tuple[Any, ...]


def vector(word: int) -> Any:
    return EMBEDDING(torch.tensor(word))


def score(state: Any) -> float:
    found: float = VALUE(state).item()
    return found


def _words(seed: int, count: int = 10, least: int = 1) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(VOCAB) for _ in range(draw.randint(least, 6))] for _ in range(count)]


def _case(program: Any, instances: list[Any], samples: int = 6) -> Case:
    return dietcode.program(program), instances[:samples], instances[samples:]


def counting_closure() -> Case:
    """Functions within the program that change its variables, one within another; names are hidden, too."""

    def program(words: Any) -> Any:
        count, state = 0, torch.zeros(H)
        best = None

        def step(word: int) -> float:
            nonlocal count, state
            state = CELL(vector(word), state)

            def note(own: float) -> None:
                nonlocal count, best
                count += 1
                best = own if best is None else max(best, own)

            found = score(state)
            if found > -0.2:
                note(found)
            return found

        def apart(count: int) -> int:
            return count + sum(count for count in range(3))

        seen = [step(word) for word in words]
        return state, count, -9.0 if best is None else best, len(seen), apart(5)

    return _case(program, _words(1))


def kept_by_a_cache() -> Case:
    """Recursion over a graph whose results are kept, without which it would take exponentially long."""

    @functools.cache
    def embedded(word: int) -> Any:
        return vector(word)

    def program(words: Any) -> Any:
        @functools.cache
        def state(at: int) -> Any:
            if at < 2:
                return embedded(words[at])
            return torch.tanh(state(at - 1) + JOIN(torch.cat([state(at - 2), embedded(words[at])])))

        return state(len(words) - 1)

    return _case(program, [*_words(2, 9, 2), list(range(VOCAB)) * 3], 9)


def stars() -> Case:
    """Arguments that are written together, of functions with and without ``*args``."""

    def joined(first: Any, *rest: Any, scale: float = 1.0) -> Any:
        total = first
        for one in rest:
            total = total + one * scale
        return total, len(rest)

    def of_pair(left: Any, right: Any) -> Any:
        return torch.tanh(JOIN(torch.cat([left, right])))

    def program(words: Any) -> Any:
        states = [vector(word) for word in words]
        pair = (states[0], states[-1])
        total, many = joined(*states, scale=0.5)
        both = of_pair(*pair)
        mixed, _ = joined(both, total, *pair)
        ids, again = zip(*[(word, state) for word, state in zip(words, states, strict=True)])  # noqa: B905
        return mixed, many, max(*ids), torch.stack(again).sum(0)

    return _case(program, _words(3, least=2))


def rows_of_lists() -> Case:
    """Lists of numbers that are embedded at once, and rows that are put one behind the other."""

    def program(words: Any) -> Any:
        rows = EMBEDDING(torch.tensor(words))
        state = torch.zeros(1, H)
        outputs = []
        for word in words:
            state = CELL(EMBEDDING(torch.tensor([word])), state)
            outputs.append(state)
        memory = torch.cat(outputs, dim=0)
        weights = torch.softmax(memory @ rows[0], dim=0)
        return (
            weights @ memory,
            rows.mean(dim=0),
            len(rows),
            torch.vstack(list(rows)).max(0).values,
        )

    return _case(program, _words(4))


def grouped() -> Case:
    """Dicts that make what they lack, and numbers of how often each word comes."""

    def program(words: Any) -> Any:
        groups = defaultdict(list)
        totals: Any = defaultdict(float)
        for at, word in enumerate(words):
            groups[word % 3].append(vector(word))
            totals[word % 2] += score(vector(word)) + at
        times = Counter(words)
        times[words[0]] += 2
        ((word, most),) = times.most_common(1)
        sums = {key: torch.stack(own).sum(0) for key, own in groups.items()}
        return sums, dict(totals), word, most, times[99], len(times), groups[7] == [], len(groups)

    return _case(program, _words(5))


class Memory:
    """A stack with a limit, as a plain class."""

    limit = 4

    def __init__(self, first: Any, *, scale: float = 1.0) -> None:
        self.items = [first]
        self.scale, self.dropped = scale, 0
        self.push(first * scale)

    def push(self, one: Any) -> None:
        """Put one on top; the lowest falls out where there are too many."""
        self.items.append(one)
        if len(self.items) > self.limit:
            self.items.pop(0)
            self.dropped += 1

    @property
    def top(self) -> Any:
        """The last one."""
        return self.items[-1]


@dataclass
class Step:
    """That computes a field of its own."""

    state: Any
    number: int = 0
    value: float = field(init=False)
    seen: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.value = score(self.state)
        self.seen.append(self.number)


def classes() -> Case:
    def program(words: Any) -> Any:
        memory = Memory(torch.zeros(H), scale=0.5)
        step = Step(vector(words[0]))
        for word in words:
            step = Step(CELL(vector(word), memory.top), step.number + 1)
            if step.value > -0.2:
                memory.push(step.state)
        return memory.top, memory.dropped, len(memory.items), step.value, step.seen

    return _case(program, _words(6))


class Edge(NamedTuple):
    """From one word to another."""

    source: int
    target: int
    weight: float = 1.0


@dataclass
class Span:
    """A part of a text."""

    begin: int
    end: int


def named_tuples_as_tuples() -> Case:
    """Named tuples that are taken apart, read by position, compared, and changed in a field."""

    def program(words: Any) -> Any:
        edges = [Edge(a, b) for a, b in zip(words, words[1:] + words[:1], strict=True)]
        state = torch.zeros(H)
        loops = 0
        for source, target, weight in edges:
            state = CELL(vector(source), state) * weight + vector(target)
            if source == target:
                loops += 1
        last = edges[-1]._replace(weight=2.0)
        spans = [Span(one, one % 3) for one in words]
        return (
            *(state, loops, last[0], last[-1], last.weight, last == edges[-1], edges[0] == edges[-1]),
            *(Edge(words[0], words[0]) in edges, spans[0] == Span(words[0], words[0] % 3)),
            *(spans[0] != spans[-1], spans.index(Span(words[-1], words[-1] % 3))),
        )

    return _case(program, _words(7))


def of_the_standard_library() -> Case:
    """What ``functools``, ``itertools``, ``heapq``, ``bisect``, ``operator`` and ``math`` have."""

    def program(words: Any) -> Any:
        states = [vector(word) for word in words]
        folded = functools.reduce(lambda a, b: torch.tanh(JOIN(torch.cat([a, b]))), states)
        from_start = functools.reduce(lambda a, b: a + b % 3, words, 10)
        ranked = [(score(state), at) for at, state in enumerate(states)]
        best = max(ranked, key=operator.itemgetter(0))
        top, low = heapq.nlargest(2, ranked), heapq.nsmallest(2, words, key=lambda word: word % 5)
        both = list(itertools.chain(words, words[:1]))
        keys = sorted(words)
        places = bisect.bisect_left(keys, 5), bisect.bisect_right(keys, words[0])
        numbers = math.tanh(best[0]), math.log2(1 + len(words)), math.sin(best[0]), math.prod(words)
        least = float("inf")
        for value, _ in ranked:
            least = min(least, value)
        return (
            *(folded, from_start, best[1], [at for _, at in top], low, both, places, numbers, least),
            *(list(itertools.accumulate(words)), list(itertools.islice(words, 2)), pow(len(words), 2)),
            *(
                math.isinf(least),
                math.fabs(-2),
                list(itertools.chain.from_iterable([words, both])),
            ),
        )

    return _case(program, _words(8))


def conditions_of_both() -> Case:
    """Plain conditions beside those of tensors, which are true in all samples."""

    def program(words: Any) -> Any:
        half = H // 2
        state = vector(words[0])
        is_large = len(words) > 0 and state.abs().sum() > 0
        if len(words) > 0 and state.abs().max() > 0 and not state.sum() > 1e6:
            state = torch.cat([state[half:], state[:half]])
        seen: set[int] = set()
        if words[0] > 99:
            seen.add(1)
        return (state if is_large else -state), len(seen)

    return _case(program, _words(9))


PROGRAMS = {
    one.__name__: one
    for one in (
        *(counting_closure, kept_by_a_cache, stars, rows_of_lists, grouped, classes),
        *(named_tuples_as_tuples, of_the_standard_library, conditions_of_both),
    )
}
