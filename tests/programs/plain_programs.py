"""Programs with members of Enums, lists that are cut and spliced, and layers in training mode.

Each function returns a program and its instances.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import torch
from everyday_programs import WIDTH, WORDS, Case
from torch import Tensor, nn

import dietcode


def _rows(count: int, seed: int = 0) -> list[Tensor]:
    return list(torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed)))


def _linear() -> nn.Linear:
    return nn.Linear(WIDTH, WIDTH).eval()


class Kind(enum.Enum):
    """What a node of an expression is."""

    LEAF = 1
    UNARY = 2
    BINARY = 3


class Mode(str, enum.Enum):  # noqa: UP042 - as older programs write it
    """A text as well."""

    ADD = "add"
    MULTIPLY = "multiply"


class Level(enum.IntEnum):
    """A number as well."""

    LOW = 1
    HIGH = 3


@dataclass
class Expression:
    """A node with its kind."""

    kind: Kind
    value: int = 0
    args: list[Any] = field(default_factory=list)


def _expression(depth: int) -> Expression:
    if not depth:
        return Expression(Kind.LEAF, 3)
    if depth % 2:
        return Expression(Kind.UNARY, depth, [_expression(depth - 1)])
    return Expression(Kind.BINARY, depth, [_expression(depth - 1), _expression(depth - 2)])


def kinds_of_nodes() -> Case:
    """A tree whose nodes say what they are by a member of an Enum."""
    words, one, two = nn.Embedding(WORDS, WIDTH).eval(), _linear(), nn.Linear(2 * WIDTH, WIDTH).eval()

    def node(tree: Expression) -> Tensor:
        if tree.kind is Kind.LEAF:
            return words(torch.tensor(tree.value))
        if tree.kind == Kind.UNARY:
            return torch.tanh(one(node(tree.args[0])))
        return torch.tanh(two(torch.cat([node(tree.args[0]), node(tree.args[1])])))

    @dietcode.program
    def encode(tree: Expression) -> Tensor:
        return node(tree)

    return encode, [_expression(depth) for depth in (0, 1, 2, 4)], [_expression(5)]


def layers_by_member() -> Case:
    """Modules and numbers in dicts whose keys are members of an Enum."""
    layers = {Kind.LEAF: _linear(), Kind.UNARY: _linear(), Kind.BINARY: _linear()}
    weights = {Kind.LEAF: 1.0, Kind.UNARY: 0.5, Kind.BINARY: 2.0}

    @dietcode.program
    def run(x: Tensor, kinds: list[Kind]) -> Tensor:
        for kind in kinds:
            x = torch.tanh(layers[kind](x)) * weights[kind]
        return x

    given = [[Kind.LEAF], [Kind.UNARY, Kind.BINARY], [Kind.LEAF, Kind.LEAF]]
    return run, list(zip(_rows(3), given, strict=True)), [(_rows(1, 3)[0], [Kind.BINARY] * 3)]


def members_compared() -> Case:
    """Members by match, ``in``, ``is``, and beside the texts and numbers that they are."""
    first, second = _linear(), _linear()

    @dietcode.program
    def run(x: Tensor, kind: Kind, mode: Mode, level: Level) -> tuple[Tensor, bool]:
        match kind:
            case Kind.LEAF:
                y = -first(x)
            case Kind.UNARY:
                y = second(x) / 2
            case _:
                y = torch.tanh(x)
        if kind in (Kind.LEAF, Kind.BINARY):
            y = y + 1
        if mode == "add":
            y = y + x
        elif mode is Mode.MULTIPLY:
            y = y * x
        if level >= Level.HIGH:
            y = y * level
        return y, kind is not Kind.BINARY

    levels = (Level.LOW, Level.HIGH, Level.HIGH, Level.LOW, Level.LOW, Level.HIGH)
    samples = list(zip(_rows(6), [*Kind, *Kind], [*Mode, *Mode, *Mode], levels, strict=True))
    rest = [(_rows(1, 5)[0], kind, mode, level) for kind in Kind for mode in Mode for level in Level]
    return run, samples, rest


def spliced_lists() -> Case:
    """Slices that are written to and deleted, of tensors and of numbers, with ends anywhere."""
    layer = _linear()

    @dietcode.program
    def run(xs: list[Tensor], low: int, high: int, many: int) -> tuple[Tensor, list[int]]:
        xs, ids = list(xs), list(range(len(xs)))
        xs[low:high] = [layer(xs[0]) for _ in range(many)]
        ids[low:high] = [100 + k for k in range(many)]
        ids[:1] = []
        del ids[-1]
        del xs[3:]
        return xs[0] - xs[-1], ids

    samples = [
        (_rows(5, 1), 1, 3, 1),
        (_rows(4, 2), 0, 4, 2),
        (_rows(3, 3), -1, 7, 3),
        (_rows(3, 4), 2, 1, 2),
    ]
    ends = [(-4, -2, 3), (5, 2, 1), (9, 12, 2), (-9, 1, 1), (0, 0, 4), (3, -1, 0)]
    return run, samples, [(_rows(6, k), *one) for k, one in enumerate(ends)]


def inserted_tensors() -> Case:
    """Tensors and numbers inserted anywhere, and a list that is turned."""
    layer = _linear()

    @dietcode.program
    def run(xs: list[Tensor], places: list[int]) -> tuple[Tensor, list[int]]:
        out, numbers = [xs[0]], [0]
        for k, place in enumerate(places):
            out.insert(place, layer(out[-1]))
            numbers.insert(place, k + 1)
        out.reverse()
        return out[0] - out[-1], numbers

    return (
        run,
        [(_rows(1), [0]), (_rows(1, 2), [1, 0, 5])],
        [(_rows(1, 3), [-1, 2, -7, 1]), (_rows(1, 4), [])],
    )


def layers_in_training() -> Case:
    """Layers that nobody has put into evaluation mode, where that makes no difference."""
    words, cell, norm = nn.Embedding(WORDS, WIDTH), nn.GRUCell(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
    layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))

    @dietcode.program
    def run(text: list[int]) -> Tensor:
        h = torch.zeros(WIDTH)
        for word in text:
            h = norm(layers(cell(words(torch.tensor(word)), h)))
        return h

    return run, [[1, 2], [3]], [[4, 5, 6]]


def best_path() -> Case:
    """Viterbi: for each step where the best path comes from, read backwards at positions that are values."""
    emission, moves = nn.Linear(WIDTH, 4).eval(), nn.Parameter(torch.randn(4, 4))

    @dietcode.program
    def run(xs: list[Tensor]) -> tuple[list[int], Tensor]:
        score, back = emission(xs[0]), []
        for x in xs[1:]:
            total = score.unsqueeze(1) + moves
            back.append(total.argmax(0))
            score = total.max(0).values + emission(x)
        best = [score.argmax().item()]
        for positions in reversed(back):
            best.append(positions[best[-1]].item())
        best.reverse()
        return best, score.max()

    return run, [_rows(1), _rows(3, 2)], [_rows(5, 4)]


def least_score() -> Case:
    """Layers until a score is above a weight, whose number and list the program reads as those of values."""
    words, layer, least = nn.Embedding(WORDS, WIDTH).eval(), _linear(), nn.Parameter(torch.tensor(0.3))
    shares = nn.Parameter(torch.tensor([0.5, -2.0]))

    @dietcode.program
    def run(text: list[int]) -> tuple[Tensor, int]:
        h, steps = torch.zeros(WIDTH), 0
        for word in text:
            h = torch.tanh(layer(h) + words(torch.tensor(word)))
            steps += 1
            if h.max().item() > least.item() and h[0].item() > shares.tolist()[1]:
                break
        return h, steps

    return run, [[1, 2], [3], [4, 5, 6]], [[7, 8, 9, 1]]


PROGRAMS = {
    one.__name__: one
    for one in (
        *(kinds_of_nodes, layers_by_member, members_compared),
        *(best_path, least_score),
        *(spliced_lists, inserted_tensors, layers_in_training),
    )
}
