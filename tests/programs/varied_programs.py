"""Programs of many kinds, as people write them: the module for one instance, and a few instances of each.

Each function returns a program and its instances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import dietcode

WIDTH, WORDS = 8, 11
Case = tuple[dietcode.Program, list[Any]]


def _words(*lengths: int) -> list[list[int]]:
    return [[(7 * at + 3 * length) % WORDS for at in range(length)] for length in lengths]


@dataclass
class Node:
    """A node of a tree; one without children has a word."""

    word: int
    left: Node | None = None
    right: Node | None = None


def _tree(depth: int, word: int = 1) -> Node:
    if depth == 0:
        return Node(word % WORDS)
    return Node(0, _tree(depth - 1, 2 * word), _tree(max(0, depth - 2), 2 * word + 1))


def mv_rnn() -> Case:
    """A vector and a matrix for each node."""
    vectors = nn.Embedding(WORDS, WIDTH).eval()
    matrices = nn.Parameter(torch.randn(WORDS, WIDTH, WIDTH) / 4)
    join, mix = nn.Linear(2 * WIDTH, WIDTH).eval(), nn.Linear(2 * WIDTH, WIDTH, bias=False).eval()

    def node(tree: Node) -> tuple[Tensor, Tensor]:
        if tree.left is None:
            return vectors(torch.tensor(tree.word)), matrices[tree.word]
        (a, a_matrix), (b, b_matrix) = dietcode.concurrent(node(tree.left), node(tree.right))
        vector = torch.tanh(join(torch.cat([b_matrix @ a, a_matrix @ b])))
        return vector, mix.weight @ torch.cat([a_matrix, b_matrix])

    @dietcode.program
    def encode(tree: Node) -> Tensor:
        vector, _ = node(tree)
        return vector

    return encode, [_tree(depth) for depth in (0, 1, 2, 4)]


def nested_rnn() -> Case:
    """An RNN over sentences, whose inputs are the states of an RNN over words."""
    embedding = nn.Embedding(WORDS, WIDTH).eval()
    inner, outer = nn.GRUCell(WIDTH, WIDTH).eval(), nn.GRUCell(WIDTH, WIDTH).eval()
    start = torch.zeros(WIDTH)

    def sentence(words: list[int]) -> Tensor:
        h = start
        for word in words:
            h = inner(embedding(torch.tensor(word)), h)
        return h

    @dietcode.program
    def document(sentences: list[list[int]]) -> Tensor:
        h = start
        for found in dietcode.map(sentence, sentences):
            h = outer(found, h)
        return h

    return document, [_words(2, 3), _words(1), _words(4, 1, 2)]


def until_it_settles() -> Case:
    """A fixed point: a loop until a step is small."""
    step = nn.Linear(WIDTH, WIDTH).eval()
    with torch.no_grad():
        step.weight.mul_(0.5)

    @dietcode.program
    def settle(x: Tensor) -> tuple[Tensor, int]:
        h, rounds = x, 0
        change = 1.0
        while change > 1e-2 and rounds < 50:
            new = torch.tanh(step(h) + x)
            change = (new - h).abs().max().item()
            h = new
            rounds += 1
        return h, rounds

    return settle, [torch.randn(WIDTH) * scale for scale in (0.1, 1.0, 3.0)]


@dataclass
class Member:
    """A node with any number of children and a weight."""

    word: int
    members: list[Member] = field(default_factory=list)


def sorted_children() -> Case:
    """Children in the order of their scores, by insertion."""
    embedding, score = nn.Embedding(WORDS, WIDTH).eval(), nn.Linear(WIDTH, 1).eval()
    cell = nn.GRUCell(WIDTH, WIDTH).eval()

    def node(member: Member) -> tuple[float, Tensor]:
        ordered: list[tuple[float, Tensor]] = []
        for own, state in dietcode.map(node, member.members):
            ordered.append((own, state))
            at = len(ordered) - 1
            while at > 0 and ordered[at - 1][0] > ordered[at][0]:
                ordered[at - 1], ordered[at] = ordered[at], ordered[at - 1]
                at -= 1
        h = embedding(torch.tensor(member.word))
        for _, state in ordered:
            h = cell(state, h)
        return float(score(h)), h

    @dietcode.program
    def encode(member: Member) -> Tensor:
        return node(member)[1]

    small = Member(3, [Member(4), Member(1), Member(9)])
    return encode, [small, Member(2), Member(7, [small, Member(5), Member(6, [Member(8), Member(10)])])]


def stack_of_tuples() -> Case:
    """Shift and reduce with a stack of (state, cell, size)."""
    embedding, cell = nn.Embedding(WORDS, WIDTH).eval(), nn.LSTMCell(WIDTH, WIDTH).eval()
    decide = nn.Linear(2 * WIDTH, 2).eval()
    zero = torch.zeros(WIDTH)

    @dietcode.program
    def parse(words: list[int]) -> tuple[Tensor, int, list[int]]:
        stack: list[tuple[Tensor, Tensor, int]] = []
        actions: list[int] = []
        at = 0
        while at < len(words) or len(stack) > 1:
            action = 0
            if len(stack) > 1:
                action = int(decide(torch.cat([stack[-1][0], stack[-2][0]])).argmax())
                if at == len(words):
                    action = 1
            actions.append(action)
            if action == 0:
                h, c = cell(embedding(torch.tensor(words[at])), (zero, zero))
                stack.append((h, c, 1))
                at += 1
            else:
                right, right_c, many = stack.pop()
                left, left_c, more = stack.pop()
                h, c = cell(left, (right, right_c + left_c))
                stack.append((h, c, many + more))
        state, _, size = stack[0]
        return state, size, actions

    return parse, _words(1, 4, 7)


def nested_lists() -> Case:
    """Recursion over lists of lists; how deep each goes is said beside it."""
    embedding, join = nn.Embedding(WORDS, WIDTH).eval(), nn.Linear(2 * WIDTH, WIDTH).eval()
    start = torch.zeros(WIDTH)

    def level(items: list[Any], depth: int) -> Tensor:
        h = start
        for one in items:
            found = embedding(torch.tensor(one)) if depth == 0 else level(one, depth - 1)
            h = torch.tanh(join(torch.cat([h, found])))
        return h

    @dietcode.program
    def encode(items: list[Any], depth: int) -> Tensor:
        return level(items, depth)

    return encode, [([1, 2, 3], 0), ([[1], [2, 3]], 1), ([[[4]], [[5, 6], [7]]], 2)]


def edges_of_a_graph() -> Case:
    """Rounds of messages along edges, added up at their ends."""
    message, update = nn.Linear(WIDTH, WIDTH).eval(), nn.GRUCell(WIDTH, WIDTH).eval()
    zero = torch.zeros(WIDTH)

    @dietcode.program
    def passed(nodes: list[Tensor], edges: list[tuple[int, int]]) -> list[Tensor]:
        states = list(nodes)
        for _ in range(2):
            sums = [zero for _ in states]
            for source, target in edges:
                sums[target] = sums[target] + torch.relu(message(states[source]))
            states = [update(own, state) for own, state in zip(sums, states, strict=True)]
        return states

    nodes = [torch.randn(WIDTH) for _ in range(4)]
    return passed, [(nodes, [(0, 1), (1, 2), (2, 0), (3, 2)]), (nodes[:2], [(0, 1)]), (nodes[:1], [])]


def teacher_forcing() -> Case:
    """The likelihood of a text under an LSTM over characters."""
    embedding, cell = nn.Embedding(WORDS, WIDTH).eval(), nn.LSTMCell(WIDTH, WIDTH).eval()
    scores = nn.Linear(WIDTH, WORDS).eval()
    zero = torch.zeros(WIDTH)

    @dietcode.program
    def likelihood(text: list[int]) -> Tensor:
        state = (zero, zero)
        total = torch.zeros(())
        for given, wanted in zip(text[:-1], text[1:], strict=True):  # noqa: RUF007  (no itertools)
            state = cell(embedding(torch.tensor(given)), state)
            total = total + torch.log_softmax(scores(state[0]), dim=-1)[wanted]
        return total / (len(text) - 1)

    return likelihood, _words(2, 3, 6)


def attention_over_what_was_seen() -> Case:
    """A decoder that attends to all states before it, one by one, with a running maximum."""
    embedding, cell = nn.Embedding(WORDS, WIDTH).eval(), nn.RNNCell(2 * WIDTH, WIDTH).eval()
    query = nn.Linear(WIDTH, WIDTH).eval()
    start = torch.zeros(WIDTH)

    def attend(state: Tensor, seen: list[Tensor]) -> Tensor:
        q = query(state)
        top, total, mixed = torch.full((), -1e30), torch.zeros(()), start
        for one in seen:
            score = (q * one).sum()
            new = torch.maximum(top, score)
            scale, own = torch.exp(top - new), torch.exp(score - new)
            top, total, mixed = new, total * scale + own, mixed * scale + own * one
        return mixed / total

    @dietcode.program
    def decode(words: list[int]) -> list[Tensor]:
        state, seen = start, [start]
        for word in words:
            context = attend(state, seen)
            state = cell(torch.cat([embedding(torch.tensor(word)), context]), state)
            seen.append(state)
        return seen[1:]

    return decode, _words(1, 3, 5)


def mixture_of_experts() -> Case:
    """An expert for each step, chosen by the largest score."""
    gate = nn.Linear(WIDTH, 3).eval()
    first, second = nn.Linear(WIDTH, WIDTH).eval(), nn.RNNCell(WIDTH, WIDTH).eval()

    @dietcode.program
    def mixed(x: Tensor) -> tuple[Tensor, list[int]]:
        chosen = []
        for _ in range(4):
            scores = gate(x)
            best = int(scores.argmax())
            weight = torch.softmax(scores, dim=-1)[best]
            chosen.append(best)
            if best == 0:
                x = x + weight * torch.relu(first(x))
            elif best == 1:
                x = x + weight * second(x, x)
            else:
                x = x.flip(0) * weight
        return x, chosen

    return mixed, [2 * torch.randn(WIDTH) for _ in range(12)]


PROGRAMS: dict[str, Callable[[], Case]] = {
    one.__name__: one
    for one in (
        mv_rnn,
        nested_rnn,
        until_it_settles,
        sorted_children,
        stack_of_tuples,
        nested_lists,
        edges_of_a_graph,
        teacher_forcing,
        attention_over_what_was_seen,
        mixture_of_experts,
    )
}
