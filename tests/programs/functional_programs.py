"""Programs with functions as values, operators of classes, iterators and texts that are taken apart.

Each gives a program, samples and further instances.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

import dietcode

H, VOCAB = 8, 12
with torch.random.fork_rng(devices=[]):
    torch.manual_seed(5)  # samples have to go through every line
    EMBEDDING, CELL = nn.Embedding(VOCAB, H).eval(), nn.GRUCell(H, H).eval()
    SCORE, LOGITS = nn.Linear(H, 1).eval(), nn.Linear(H, VOCAB).eval()
    ACTIONS, DRAFT = nn.Linear(H, 4).eval(), nn.Linear(H, VOCAB).eval()
CONFIG = {"most": 5, "temperature": 0.7, "last": 0}
Case = tuple[Any, ...]


def _rows(*scales: float, seed: int = 3) -> list[Any]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(H, generator=draw) * scale for scale in scales]


def _words(*lengths: int, seed: int = 0) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(1, VOCAB) for _ in range(length)] for length in lengths]


def vector(word: int) -> Any:
    return EMBEDDING(torch.tensor(word))


def squared(x: Any) -> Any:
    return torch.relu(x) ** 2


# ---- Functions that are values ----


def table_of_functions() -> Case:
    layer = nn.Linear(H, H).eval()

    def program(x: Any, steps: str) -> Any:
        bias = x.mean()

        def shifted(one: Any) -> Any:
            return one + bias

        def turned(one: Any) -> Any:
            return -one

        table = {"a": torch.tanh, "b": squared, "c": shifted, "d": turned, "e": lambda v: layer(v) * 2 + bias}
        for step in steps:
            x = table[step](x)
        several = [shifted, torch.sigmoid, turned, partial(torch.clamp, min=-0.1, max=0.1)]
        best = max(range(len(several)), key=lambda k: several[k](x).sum().item())
        last = torch.tanh if len(steps) > 1 else torch.relu
        return last(several[best](x)), best

    texts = ("ab", "cd", "e", "", "a", "dd", "abcde", "ca")
    pairs = list(zip(_rows(1, 2, 1, 3, 1, 4, 1, 2), texts, strict=True))
    return dietcode.program(program), pairs[:6], pairs[6:]


def schedules() -> Case:
    def linear(start: float, end: float, count: int) -> Callable[[int], float]:
        return lambda at: start + (end - start) * at / count

    def cosine(count: int) -> Callable[[int], float]:
        def value(at: int) -> float:
            return 0.5 * (1 + math.cos(math.pi * at / count))

        return value

    def program(x: Any, count: int) -> Any:
        temperature = linear(1.0, 0.1, count) if count % 2 else cosine(count)
        for at in range(count):
            x = torch.tanh(x * temperature(at) + vector(at % VOCAB))
        return x, [temperature(at) for at in range(count)]

    pairs = list(zip(_rows(1, 2, 1, 3), (3, 4, 1, 9), strict=True))
    return dietcode.program(program), pairs[:2], pairs[2:]


class UnsureError(Exception):
    pass


def tried_again() -> Case:
    def tried(function: Callable[[int], Any], times: int, otherwise: Callable[[], Any]) -> Any:
        for k in range(times):
            try:
                return function(k)
            except UnsureError:
                continue
        return otherwise()

    def program(x: Any, times: int) -> Any:
        found: list[int] = []

        def once(k: int) -> Any:
            score = torch.sigmoid(SCORE(x * (k + 1))).item()
            found.append(k)
            if score < 0.55:
                raise UnsureError
            return x * score

        return tried(once, times, lambda: x * 0), found

    pairs = list(zip(_rows(1, 2, 1, 0.1, 5, 9, 9, 3), (3, 2, 1, 4, 3, 2, 1, 5), strict=True))
    return dietcode.program(program), pairs[:6], pairs[6:]


def hooks_and_options() -> Case:
    def text_of(words: list[int], *, most: int, temperature: float, last: int) -> list[int]:
        state, found = torch.tanh(sum((vector(one) for one in words), torch.zeros(H))), []
        while len(found) < most:
            word = (LOGITS(state) / temperature).argmax().item()
            found.append(word)
            if word == last:
                break
            state = torch.tanh(state * 0.5 + vector(word))
        return found

    short = partial(text_of, **{**CONFIG, "most": 3})

    def program(words: list[int]) -> Any:
        counts: collections.Counter[str] = collections.Counter()
        hooks: list[Callable[[int, Any], None]] = []

        def on_step(hook: Callable[[int, Any], None]) -> None:
            hooks.append(hook)

        least = 0.2
        on_step(lambda word, _: counts.update(["odd" if word % 2 else "even"]))
        on_step(lambda _, state: counts.update(["large"]) if state.max().item() > least else None)
        state = torch.zeros(H)
        for word in words:
            state = torch.tanh(state + vector(word))
            for hook in hooks:
                hook(word, state)
        whole = text_of(words, **{**CONFIG})
        return state, sorted(counts.items()), whole, short(words), short(words, temperature=2.0)

    return dietcode.program(program), _words(3, 2), _words(1, 5, 4, seed=2)


class StackMachine:
    def __init__(self, last: Callable[[Any], Any]) -> None:
        self.items: list[Any] = []
        self.last = last

    def push(self, word: int) -> None:
        self.items.append(vector(word))

    def add(self, _: int) -> None:
        try:
            right, left = self.items.pop(), self.items.pop()
        except IndexError:
            raise UnsureError("too few") from None
        self.items.append(torch.tanh(left + right))

    def result(self, steps: list[tuple[str, int]]) -> Any:
        table = {"push": self.push, "add": self.add}
        for name, word in steps:
            if name not in table:
                raise UnsureError(f"no {name}")
            table[name](word)
        return self.last(self.items[-1])


ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}


def methods_as_values() -> Case:
    def program(steps: list[tuple[str, int]]) -> Any:
        last = ACTIVATIONS["tanh" if len(steps) > 1 else "relu"]
        machine = StackMachine(last if len(steps) > 3 else lambda one: one * 2)
        try:
            return machine.result(steps), last(vector(len(steps)))
        except UnsureError as error:
            return None, str(error)

    pushes, add = [("push", one) for one in range(5)], ("add", 0)
    samples = [[*pushes[:3], add], pushes[:1], [add], [("jump", 0)], [*pushes, add, add]]
    return dietcode.program(program), samples, [pushes[1:3], [pushes[0], add], [*pushes[:4], add, add, add]]


# ---- Operators of classes ----


@dataclass
class Named:
    row: Any
    name: str = "v"

    @classmethod
    def of(cls, word: int) -> Named:
        return cls(vector(word), f"e{word}")

    def __add__(self, other: Named) -> Named:
        return Named(torch.tanh(self.row + other.row), self.name + other.name)

    def __mul__(self, factor: float) -> Named:
        return Named(self.row * factor, self.name)

    def __rmul__(self, factor: float) -> Named:
        return Named(self.row * factor, f"{factor}{self.name}")

    def __neg__(self) -> Named:
        return Named(-self.row, "-" + self.name)


class Distinct:
    def __init__(self, most: int) -> None:
        self.items: list[int] = []
        self.most = most

    def __call__(self, one: int) -> None:
        if one not in self:
            self.items.append(one)
        if len(self) > self.most:
            self.items.pop(0)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, at: int) -> int:
        return self.items[at]

    def __iter__(self) -> Iterator[int]:
        return iter(self.items)

    def __contains__(self, one: int) -> bool:
        return one in self.items


def operators_of_classes() -> Case:
    def program(words: list[int]) -> Any:
        whole = Named.of(words[0])
        for word in words[1:]:
            whole = whole + Named.of(word) * 0.5
        whole += 2 * Named.of(words[-1])
        whole = -whole
        kept, window = Distinct(3), collections.deque(maxlen=2)  # type: ignore[var-annotated]
        for word in words:
            kept(word)
            window.append(vector(word))
        state = sum(window) / len(window)
        for word in kept:
            state = torch.tanh(state + vector(word))
        return whole.row, whole.name, state, len(kept), kept[-1], [one * 2 for one in kept]

    return dietcode.program(program), _words(5, 3, 1), _words(2, 6, 4, seed=2)


# ---- Iterators, and texts that are taken apart ----


class SyntaxProblemError(Exception):
    pass


@dataclass
class Number:
    value: int


@dataclass
class Binary:
    word: str
    left: Any
    right: Any


def calculator() -> Case:
    def words_of(text: str) -> list[str]:
        found, at = [], 0
        while at < len(text):
            one = text[at]
            if one.isdigit():
                end = at
                while end < len(text) and text[end].isdigit():
                    end += 1
                found.append(text[at:end])
                at = end
            elif one in "+*()":
                found.append(one)
                at += 1
            else:
                raise SyntaxProblemError(f"{one} at {at}")
        return [*found, "end"]

    def program(text: str) -> Any:
        words = iter(words_of(text))
        word = next(words)

        def advanced() -> str:
            nonlocal word
            before = word
            word = next(words, "end")
            return before

        def atom() -> Any:
            own = advanced()
            if own == "(":
                inner = added()
                if advanced() != ")":
                    raise SyntaxProblemError("no )")
                return inner
            if not own.isdigit():
                raise SyntaxProblemError("no number")
            return Number(int(own))

        def multiplied() -> Any:
            left = atom()
            while word == "*":
                advanced()
                left = Binary("*", left, atom())
            return left

        def added() -> Any:
            left = multiplied()
            while word == "+":
                advanced()
                left = Binary("+", left, multiplied())
            return left

        def value(node: Any) -> Any:
            match node:
                case Number(number):
                    return vector(number)
                case Binary("+", left, right):
                    return torch.tanh(value(left) + value(right))
                case Binary(word="*", left=left, right=right):
                    return value(left) * value(right)

        try:
            whole = added()
        except SyntaxProblemError as problem:
            return str(problem), None
        return text.replace("*", "x"), value(whole)

    return dietcode.program(program), ["1+2*3", "(4+5)*2", "(1", "+"], ["7", "((1))", "2*(3+4)*5", "10+1"]


def tokens_one_by_one() -> Case:
    def pairs(words: list[int]) -> Iterator[tuple[int, int]]:
        for at in range(0, len(words), 2):
            yield words[at], at

    def taken(words: Iterator[int], most: int) -> list[int]:
        found = []
        for word in words:
            found.append(word)
            if len(found) == most:
                break
        return found

    def program(words: list[int]) -> Any:
        stream, numbers = iter(words), itertools.count(3)
        begun, rest = taken(stream, 2), [one + 1 for one in stream]
        two = [next(numbers), next(numbers)]
        both = pairs(words)
        first, others = next(both, None), list(both)
        squares, state = (one * one for one in words), torch.zeros(H)
        for one in squares:
            if one > 9:
                break
            state = state + vector(one)
        left = sum(squares)
        with contextlib.suppress(StopIteration):
            next(stream)
            left += 100
        for at in itertools.count():
            if at > len(words):
                break
        return begun, rest, two, at, first, others, left, state

    return dietcode.program(program), [[2, 5, 0], [1, 3, 4, 0], [4]], [[0], [7, 0, 3], [1, 2], []]


def words_in_groups() -> Case:
    def program(words: list[int]) -> Any:
        states = [torch.tanh(vector(one)) for one in words]
        scores = [SCORE(one).item() for one in states]
        head = list(itertools.takewhile(lambda one: one > -0.2, scores))
        tail = list(itertools.dropwhile(lambda one: one > 0, scores))
        most, whole = list(itertools.accumulate(scores, max)), list(itertools.accumulate(scores))
        groups = [(key, len(list(own))) for key, own in itertools.groupby(sorted(one % 3 for one in words))]
        places = [(i, j) for i, j in itertools.product(range(len(words)), repeat=2) if i < j]
        chosen = list(itertools.combinations(words, 2)), list(itertools.permutations(words[:3], 2))
        known: dict[str, dict[str, list[int]]] = {}
        for one in words:
            known.setdefault("ab"[one % 2], {}).setdefault(f"{one % 3}", []).append(one)
        order = [name for name, own in sorted(known.items()) for _ in own]
        steps = [words[at : at + len(order)] for at in range(0, len(words), len(order))]
        less = [*map(lambda one, other: one - other, words, words[1:]), *range(len(order))]
        return head, tail, most, whole, groups, places, chosen, known, order, steps, less

    return dietcode.program(program), _words(4, 5), _words(1, 2, 7, seed=2)


# ---- Decoding and search ----


def closures_that_count() -> Case:
    """Functions that are values and keep a count; which one runs depends on a number or on a tensor."""

    def program(words: list[int]) -> Any:
        def counting(scale: float) -> Any:
            calls = 0

            def step(state: Any, word: int) -> Any:
                nonlocal calls
                calls += 1
                return torch.tanh(CELL(vector(word), state) * scale), calls

            return step

        fast, slow = counting(2.0), counting(0.5)
        state, other = (torch.zeros(H),) * 2
        notes: list[Any] = []
        for word in words:
            is_fast = SCORE(state) > 0 if word % 2 else word > 4
            state, count = (fast if is_fast else slow)(state, word)
            own = (SCORE(other) if word % 3 else None) or 1
            notes.append((count, not is_fast, bool(is_fast), (word,) * 2, float(own) > 0))
            other = other + state
        best = max(range(len(words)), key=words.__getitem__)
        notes.extend(reversed(words))
        notes += (word + 1 for word in words)
        inner, outer = CELL, SCORE
        return state, notes, best, outer(inner(vector(words[best]), other))

    return dietcode.program(program), _words(3, 1, 5, 4, 6, 2), _words(4, 2, seed=5)


def drafted_text() -> Case:
    def step(state: Any, word: int) -> Any:
        return CELL(vector(word).unsqueeze(0), state.unsqueeze(0)).squeeze(0)

    def program(words: list[int]) -> Any:
        state = torch.zeros(H)
        for word in words:
            state = step(state, word)
        found, counts = list(words), {"kept": 0, "other": 0}
        while len(found) < 10:
            draft, ahead, last = [], state, found[-1]
            for _ in range(3):
                ahead = step(ahead, last)
                last = int((DRAFT(ahead) if len(found) % 2 else LOGITS(ahead)).argmax())
                draft.append(last)
            for word in draft:
                state = step(state, found[-1])
                best = LOGITS(state).argmax().item()
                if best != word:
                    found.append(best)
                    counts["other"] += 1
                    break
                found.append(word)
                counts["kept"] += 1
            else:
                found.append(LOGITS(state).argmax().item())
        return found, counts

    return dietcode.program(program), _words(2, 3, 1, 4), _words(1, 3, seed=3)


@dataclass
class Tried:
    state: Any
    prior: float
    below: dict[int, Tried] = field(default_factory=dict)
    visits: int = 0
    total: float = 0.0


def visits_of_a_tree() -> Case:
    def bound(above: Tried, own: Tried) -> float:
        value = own.total / own.visits if own.visits else 0.0
        return value + 1.4 * own.prior * math.sqrt(above.visits) / (1 + own.visits)

    def program(x: Any, rounds: int) -> Any:
        root = Tried(x, 1.0)
        for _ in range(rounds):
            node, path = root, [root]
            while node.below:
                _, node = max(node.below.items(), key=lambda pair: bound(path[-1], pair[1]))
                path.append(node)
            for action, prior in enumerate(torch.softmax(ACTIONS(node.state), -1).tolist()):
                node.below[action] = Tried(torch.tanh(node.state + vector(action)), prior)
            value = torch.tanh(SCORE(node.state)).item()
            for one in reversed(path):
                one.visits += 1
                one.total += value
                value = -value
        best = max(root.below, key=lambda action: root.below[action].visits)
        return best, [one.visits for one in root.below.values()]

    pairs = list(zip(_rows(1, 2, 3), (4, 6, 5), strict=True))
    return dietcode.program(program), pairs[:2], pairs[2:]


PROGRAMS = {
    own.__name__: own
    for own in (
        table_of_functions,
        schedules,
        tried_again,
        hooks_and_options,
        methods_as_values,
        operators_of_classes,
        calculator,
        tokens_one_by_one,
        words_in_groups,
        closures_that_count,
        drafted_text,
        visits_of_a_tree,
    )
}
