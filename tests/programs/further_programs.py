"""More everyday programs: charts, operators by name, graphs, pointers, modules that decide.

Each function returns a program and its instances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from everyday_programs import WIDTH, WORDS, Case, texts
from torch import Tensor, nn

import dietcode


def chart_parser() -> Case:
    """CKY: a chart of vectors, each the best of all splits by a score."""
    embedding, merge = nn.Embedding(WORDS, WIDTH).eval(), nn.Bilinear(WIDTH, WIDTH, WIDTH).eval()
    score = nn.Linear(WIDTH, 1).eval()

    @dietcode.program
    def parse(words: list[int]) -> tuple[Tensor, list[list[int]]]:
        n = len(words)
        chart: list[list[Any]] = [[None] * n for _ in range(n)]
        splits = [[-1 for _ in range(n)] for _ in range(n)]
        for at, word in enumerate(words):
            chart[at][at] = embedding(torch.tensor(word))
        for size in range(2, n + 1):
            for begin in range(n - size + 1):
                end = begin + size - 1
                best = -1e9
                for split in range(begin, end):
                    own = torch.tanh(merge(chart[begin][split], chart[split + 1][end]))
                    value = score(own).item()
                    if value > best:
                        best = value
                        chart[begin][end], splits[begin][end] = own, split
        return chart[0][n - 1], splits

    return parse, texts(1, 2, 4)


@dataclass
class Operation:
    """An operator with arguments, or a number."""

    op: str
    args: list[Any] = field(default_factory=list)
    value: int = 0


def list_operations() -> Case:
    """Exact and learnt evaluation of nested operators, chosen by texts."""
    digits = nn.Embedding(10, WIDTH).eval()
    smallest, others = nn.RNNCell(WIDTH, WIDTH).eval(), nn.RNNCell(WIDTH, WIDTH).eval()
    start = torch.zeros(WIDTH)

    def evaluate(one: Operation) -> tuple[int, Tensor]:
        if one.op == "NUM":
            return one.value, digits(torch.tensor(one.value))
        found = [evaluate(arg) for arg in one.args]
        values = [value for value, _ in found]
        h = start
        for _, state in found:
            h = smallest(state, h) if one.op == "MIN" else others(state, h)
        if one.op == "MIN":
            return min(values), h
        if one.op == "MAX":
            return max(values), h
        if one.op in ("SM", "SUM"):
            return sum(values) % 10, h
        return sorted(values)[len(values) // 2], h

    @dietcode.program
    def run(one: Operation) -> tuple[int, Tensor]:
        return evaluate(one)

    def numbers(*values: int) -> list[Operation]:
        return [Operation("NUM", value=value) for value in values]

    inner = Operation("MAX", numbers(4, 9, 2))
    return run, [
        Operation("NUM", value=5),
        Operation("SM", [*numbers(3), inner, *numbers(8)]),
        Operation("MED", [Operation("MIN", [inner, *numbers(7)]), *numbers(1, 8)]),
    ]


def neural_modules() -> Case:
    """A tree of names, each of which is a module of its own."""
    parts = nn.ModuleDict({name: nn.Linear(WIDTH, WIDTH) for name in ("find", "relate")}).eval()
    both, answer = nn.Linear(2 * WIDTH, WIDTH).eval(), nn.Linear(WIDTH, 2).eval()

    def run(one: Operation, image: Tensor) -> Tensor:
        if one.op == "find":
            return torch.relu(parts["find"](image))
        if one.op == "and":
            left, right = [run(arg, image) for arg in one.args]
            return torch.tanh(both(torch.cat([left, right])))
        return torch.relu(parts["relate"](run(one.args[0], image)))

    @dietcode.program
    def ask(question: Operation, image: Tensor) -> tuple[Tensor, bool]:
        found = answer(run(question, image))
        return found, bool(found[0] > found[1])

    find = Operation("find")
    questions = [find, Operation("relate", [find]), Operation("and", [find, Operation("relate", [find])])]
    return ask, [(one, torch.randn(WIDTH)) for one in questions]


def gated_graph() -> Case:
    """Messages over adjacency lists, until nothing changes much."""
    message, update = nn.Linear(WIDTH, WIDTH).eval(), nn.GRUCell(WIDTH, WIDTH).eval()
    readout = nn.Linear(WIDTH, 2).eval()

    @dietcode.program
    def settle(graph: tuple[list[Tensor], list[list[int]]]) -> tuple[Tensor, int]:
        states, neighbours = graph
        rounds = 0
        for _ in range(4):
            sent = [message(h) for h in states]
            new = []
            for at, h in enumerate(states):
                if len(neighbours[at]) == 0:
                    new.append(h)
                    continue
                total = torch.stack([sent[other] for other in neighbours[at]]).sum(0)
                new.append(update(total, h))
            rounds += 1
            change = max([(a - b).abs().max().item() for a, b in zip(new, states, strict=True)])
            states = new
            if change < 0.3:
                break
        return readout(sum(states)), rounds

    def graph(count: int, edges: list[list[int]]) -> tuple[Any, ...]:
        return [torch.randn(WIDTH) for _ in range(count)], edges

    return settle, [graph(3, [[1], [0, 2], [1]]), graph(1, [[]]), graph(4, [[3], [0], [], [1, 2, 0]])]


def pointer_network() -> Case:
    """At each step the best of what is left is taken out of a list."""
    embedding, cell = nn.Embedding(WORDS, WIDTH).eval(), nn.GRUCell(WIDTH, WIDTH).eval()
    key, query = nn.Linear(WIDTH, WIDTH).eval(), nn.Linear(WIDTH, WIDTH).eval()

    @dietcode.program
    def order(words: list[int]) -> tuple[list[int], Tensor]:
        left = [(at, embedding(torch.tensor(word))) for at, word in enumerate(words)]
        h, found = torch.zeros(WIDTH), []
        while left:
            q = query(h)
            scores = torch.stack([(key(one) * q).sum() for _, one in left])
            best = scores.argmax().item()
            at, state = left.pop(best)
            found.append(at)
            h = cell(state, h)
        return found[::-1], h

    return order, texts(1, 3, 5)


def beam_free_search() -> Case:
    """The words whose chances add up to a part: nucleus, deterministic; then the last of them."""
    cell, scores = nn.GRUCell(WIDTH, WIDTH).eval(), nn.Linear(WIDTH, WORDS).eval()
    embedding = nn.Embedding(WORDS, WIDTH).eval()

    def nucleus(chances: list[float], part: float) -> list[int]:
        order: list[int] = []
        total = 0.0
        while total < part:
            best = -1
            for at in range(len(chances)):
                if at not in order and (best < 0 or chances[at] > chances[best]):
                    best = at
            order.append(best)
            total += chances[best]
        return order

    @dietcode.program
    def generate(seed: Tensor) -> list[list[int]]:
        h, found = seed, []
        for _ in range(3):
            kept = nucleus(torch.softmax(2 * scores(h), dim=-1).tolist(), 0.5)
            found.append(kept)
            h = cell(embedding(torch.tensor(kept[-1])), h)
        return found

    return generate, [torch.randn(WIDTH) for _ in range(3)]


class Highway(nn.Module):
    """Layers that an instance leaves where a gate says so."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.gate = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        """Return the state, and how many layers it went through."""
        taken = 0
        for layer in self.layers:
            if torch.sigmoid(self.gate(x)) > 0.55:
                return x, taken
            x = torch.tanh(layer(x))
            taken += 1
        return x, taken


def module_with_decisions() -> Case:
    """A module is the program, and its forward decides."""
    return dietcode.program(Highway().eval()), [2 * torch.randn(WIDTH) for _ in range(9)]


def module_called_with_decisions() -> Case:
    """A module whose forward decides is called."""
    highway, last = Highway().eval(), nn.Linear(WIDTH, 2).eval()

    @dietcode.program
    def run(x: Tensor) -> tuple[Tensor, int]:
        h, taken = highway(torch.relu(x))
        return last(h), taken

    return run, [2 * torch.randn(WIDTH) for _ in range(9)]


def several_dtypes() -> Case:
    """Masks, whole numbers of an instance, and a threshold."""
    embedding, cell = nn.Embedding(WORDS, WIDTH).eval(), nn.RNNCell(WIDTH, WIDTH).eval()

    @dietcode.program
    def run(words: list[Tensor], mask: Tensor, keep: bool) -> tuple[Tensor, int]:
        h, many = torch.zeros(WIDTH), 0
        for word in words:
            new = cell(embedding(word), h)
            h = torch.where(mask > 0, new, h)
            if keep and (h > 0.2).float().sum() >= 2:
                many += 1
        return h.masked_fill(mask < -0.5, 0.0), many

    def instance(*words: int) -> tuple[Any, ...]:
        return [torch.tensor(one) for one in words], torch.randn(WIDTH), len(words) > 1

    return run, [instance(3), instance(4, 9, 1), instance(2, 2)]


PROGRAMS: dict[str, Callable[[], Case]] = {
    one.__name__: one
    for one in (
        chart_parser,
        list_operations,
        neural_modules,
        gated_graph,
        pointer_network,
        beam_free_search,
        several_dtypes,
        module_with_decisions,
        module_called_with_decisions,
    )
}
