"""More programs as people write them who know PyTorch: plain classes, methods, lists of any length.

Each function returns a program and its instances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import dietcode

WIDTH, WORDS = 8, 11
Case = tuple[dietcode.Program, list[Any]]


def texts(*lengths: int) -> list[list[int]]:
    return [[(5 * at + 2 * length) % WORDS for at in range(length)] for length in lengths]


def attention_decoder() -> Case:
    """Encoder states are stacked; each step of the decoder attends to them, and stops at a symbol."""
    embedding, encoder = nn.Embedding(WORDS, WIDTH).eval(), nn.GRUCell(WIDTH, WIDTH).eval()
    decoder, query = nn.GRUCell(2 * WIDTH, WIDTH).eval(), nn.Linear(WIDTH, WIDTH).eval()
    scores = nn.Linear(WIDTH, WORDS).eval()
    start = torch.zeros(WIDTH)

    @dietcode.program
    def translate(words: list[int]) -> tuple[list[int], Tensor]:
        h, states = start, []
        for word in words:
            h = encoder(embedding(torch.tensor(word)), h)
            states.append(h)
        memory = torch.stack(states)
        said = [0]
        while True:
            weights = torch.softmax(memory @ query(h), dim=0)
            context = weights @ memory
            h = decoder(torch.cat([embedding(torch.tensor(said[-1])), context]), h)
            word = int(scores(h).argmax())
            said.append(word)
            if word == 3 or len(said) > 5:
                break
        return said, h

    return translate, texts(2, 3, 6)


def set_pooling() -> Case:
    """Mean, largest and sum of the points of a set."""
    point, whole = nn.Linear(3, WIDTH).eval(), nn.Linear(3 * WIDTH, 4).eval()

    @dietcode.program
    def describe(points: list[Tensor]) -> Tensor:
        features = [torch.relu(point(one)) for one in points]
        every = torch.stack(features)
        total = sum(features)
        return whole(torch.cat([every.mean(dim=0), every.max(dim=0).values, total]))

    return describe, [[torch.randn(3) for _ in range(count)] for count in (1, 2, 7)]


class Phrase(NamedTuple):
    """A phrase of two, or a word."""

    left: Phrase | None
    right: Phrase | None
    word: int


def named_tuples() -> Case:
    """Trees of named tuples."""
    embedding, join = nn.Embedding(WORDS, WIDTH).eval(), nn.Linear(2 * WIDTH, WIDTH).eval()

    def node(phrase: Phrase) -> Tensor:
        if phrase.left is None or phrase.right is None:
            return embedding(torch.tensor(phrase.word))
        return torch.tanh(join(torch.cat([node(phrase.left), node(phrase.right)])))

    @dietcode.program
    def encode(phrase: Phrase) -> Tensor:
        return node(phrase)

    one, two = Phrase(None, None, 4), Phrase(None, None, 9)
    return encode, [one, Phrase(one, two, 0), Phrase(Phrase(two, one, 0), one, 0)]


@dataclass
class Branch:
    """A node with children."""

    word: int
    children: list[Branch] = field(default_factory=list)


def _branches(depth: int, word: int = 1) -> Branch:
    return Branch(word % WORDS, [_branches(depth - 1, 3 * word + at) for at in range(depth)])


class ChildSum(nn.Module):
    """A child-sum TreeLSTM whose methods call each other."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.gates, self.gates_h = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.forget, self.forget_h = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.zero = nn.Parameter(torch.zeros(WIDTH))

    def kept(self, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
        """Return what a child's cell gives."""
        return torch.sigmoid(self.forget(x) + self.forget_h(h)) * c

    def node(self, tree: Branch) -> tuple[Tensor, Tensor]:
        """Return h and c of a node."""
        x = self.embedding(torch.tensor(tree.word))
        total, cells = self.zero, self.zero
        for child in tree.children:
            h, c = self.node(child)
            total = total + h
            cells = cells + self.kept(x, h, c)
        i, o, u = (self.gates(x) + self.gates_h(total)).chunk(3)
        c = torch.sigmoid(i) * torch.tanh(u) + cells
        return torch.sigmoid(o) * torch.tanh(c), c

    def encode(self, tree: Branch) -> Tensor:
        """Return h of the root."""
        return self.node(tree)[0]


def method_of_a_module() -> Case:
    """The program is a method."""
    return dietcode.program(ChildSum().eval().encode), [_branches(depth) for depth in (0, 1, 3)]


class Speller:
    """A plain class that has weights."""

    def __init__(self, most: int = 4) -> None:
        self.cell, self.scores = nn.GRUCell(WIDTH, WIDTH).eval(), nn.Linear(WIDTH, WORDS).eval()
        self.embedding = nn.Embedding(WORDS, WIDTH).eval()
        self.most = most

    @dietcode.program
    def spell(self, seed: Tensor) -> list[int]:
        """Return letters until one comes twice, or is the last one."""
        letters: list[int] = []
        h = seed
        while len(letters) < self.most:
            letter = int(torch.argmax(self.scores(h)))
            if letter in letters or letter == WORDS - 1:
                return letters
            letters.append(letter)
            h = self.cell(self.embedding(torch.tensor(letter)), h)
        return letters


def method_that_is_marked() -> Case:
    """A marked method, called on an object."""
    return Speller().spell, [3 * torch.randn(WIDTH) for _ in range(5)]


def accumulator() -> Case:
    """Recursion that appends to a list that it is given, and counts in another."""
    embedding, cell = nn.Embedding(WORDS, WIDTH).eval(), nn.RNNCell(WIDTH, WIDTH).eval()
    start = torch.zeros(WIDTH)

    def walk(tree: Branch, h: Tensor, found: list[Tensor], counts: list[int]) -> Tensor:
        h = cell(embedding(torch.tensor(tree.word)), h)
        counts[0] += 1
        if not tree.children:
            found.append(h)
            counts[1] += 1
            return h
        for child in tree.children:
            h = walk(child, h, found, counts)
        return h

    @dietcode.program
    def leaves(tree: Branch) -> tuple[list[Tensor], list[int]]:
        found: list[Tensor] = []
        counts = [0] * 2
        walk(tree, start, found, counts)
        return found, counts

    return leaves, [_branches(depth) for depth in (0, 2, 3)]


def mutual_recursion() -> Case:
    """Two functions that call each other, of odd and of even depth."""
    embedding = nn.Embedding(WORDS, WIDTH).eval()
    one, other = nn.RNNCell(WIDTH, WIDTH).eval(), nn.RNNCell(WIDTH, WIDTH).eval()
    start = torch.zeros(WIDTH)

    def even(tree: Branch) -> Tensor:
        h = start
        for child in tree.children:
            h = torch.maximum(h, odd(child))
        return one(embedding(torch.tensor(tree.word)), h)

    def odd(tree: Branch) -> Tensor:
        h = start
        for child in tree.children:
            h = h + even(child)
        return other(embedding(torch.tensor(tree.word)), h)

    @dietcode.program
    def encode(tree: Branch) -> Tensor:
        return even(tree)

    return encode, [_branches(depth) for depth in (0, 1, 3)]


def adaptive_computation_time() -> Case:
    """Steps until the halting probabilities reach one; the state is their mean."""
    cell, halt = nn.GRUCell(WIDTH, WIDTH).eval(), nn.Linear(WIDTH, 1).eval()

    def ponder(x: Tensor, h: Tensor, most: int = 6, epsilon: float = 0.1) -> tuple[Tensor, float]:
        total, steps = 0.0, 0
        mixed = torch.zeros_like(h)
        while True:
            h = cell(x, h)
            steps += 1
            p = torch.sigmoid(halt(h)).squeeze()
            if total + p.item() >= 1 - epsilon or steps == most:
                rest = 1 - total
                return mixed + rest * h, steps + rest
            mixed = mixed + p * h
            total += p.item()

    @dietcode.program
    def run(xs: list[Tensor]) -> tuple[Tensor, float]:
        h, cost = torch.zeros(WIDTH), 0.0
        for x in xs:
            h, own = ponder(x, h, epsilon=0.05)
            cost += own
        return h, cost

    return run, [[2 * torch.randn(WIDTH) for _ in range(count)] for count in (1, 2, 4)]


def skip_rnn() -> Case:
    """A gate says whether a step updates the state."""
    cell, gate = nn.RNNCell(WIDTH, WIDTH).eval(), nn.Linear(WIDTH, 1).eval()

    @dietcode.program
    def run(xs: list[Tensor]) -> tuple[Tensor, list[bool]]:
        h, taken = torch.zeros(WIDTH), []
        for at, x in enumerate(xs):
            if at > 0 and not 0.45 < torch.sigmoid(gate(x + h)).item() < 0.9:
                taken.append(False)
                continue
            h = cell(x, h)
            taken.append(True)
        return h, taken

    return run, [[2 * torch.randn(WIDTH) for _ in range(count)] for count in (1, 5, 8)]


class ZoneoutLSTM(nn.Module):
    """An LSTM step that keeps parts of its state when it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.rate = nn.LSTMCell(WIDTH, WIDTH), 0.1

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the next state."""
        h, c = self.cell(x, state)
        if self.training:
            mask = torch.rand(WIDTH) < self.rate
            h = torch.where(mask, state[0], h)
        else:
            h = self.rate * state[0] + (1 - self.rate) * h
        return h, c


def hierarchical_documents() -> Case:
    """An LSTM over the words of each sentence, one over the sentences; each has a class."""
    embedding = nn.Embedding(WORDS, WIDTH).eval()
    low, high = ZoneoutLSTM().eval(), ZoneoutLSTM().eval()
    classes = nn.Linear(2 * WIDTH, 3).eval()
    zero = torch.zeros(WIDTH)

    def run(cell: nn.Module, xs: list[Tensor]) -> list[Tensor]:
        state, found = (zero, zero), []
        for x in xs:
            state = cell(x, state)
            found.append(state[0])
        return found

    @dietcode.program
    def read(document: list[list[int]]) -> tuple[list[Tensor], int]:
        heads = [run(low, [embedding(torch.tensor(word)) for word in words])[-1] for words in document]
        over = run(high, heads)
        labels = [classes(torch.cat([a, b])).log_softmax(-1) for a, b in zip(heads, over, strict=True)]
        return labels, sum([len(words) for words in document])

    return read, [texts(2, 3), texts(1), texts(4, 1, 2)]


def sequence_to_sequence() -> Case:
    """The loss of a target under a GRU decoder that is given the right words."""
    source, target = nn.Embedding(WORDS, WIDTH).eval(), nn.Embedding(WORDS, WIDTH).eval()
    encoder, decoder = nn.GRUCell(WIDTH, WIDTH).eval(), nn.GRUCell(WIDTH, WIDTH).eval()
    out = nn.Linear(WIDTH, WORDS).eval()

    @dietcode.program
    def loss(pair: tuple[list[int], list[int]]) -> Tensor:
        given, wanted = pair
        h = torch.zeros(WIDTH)
        for word in given:
            h = encoder(source(torch.tensor(word)), h)
        total, last = torch.tensor(0.0), 0
        for word in wanted:
            h = decoder(target(torch.tensor(last)), h)
            total += -torch.log_softmax(out(h), 0)[word]
            last = word
        return total / max(1, len(wanted))

    pairs = list(zip(texts(2, 5, 1), texts(3, 1, 6), strict=True))
    return loss, pairs


PROGRAMS: dict[str, Callable[[], Case]] = {
    one.__name__: one
    for one in (
        attention_decoder,
        set_pooling,
        named_tuples,
        method_of_a_module,
        method_that_is_marked,
        accumulator,
        mutual_recursion,
        adaptive_computation_time,
        skip_rnn,
        hierarchical_documents,
        sequence_to_sequence,
    )
}
