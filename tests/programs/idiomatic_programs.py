"""Programs in Python's idioms: classes, dicts of constants, keys of sorting, functions within functions.

Each function returns a program, its samples, and further instances that no sample is.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dietcode

WIDTH, WORDS = 8, 11
IDS, UNKNOWN = {"the": 1, "cat": 2, "sat": 3}, 10
NAMES = [f"t{k}" for k in range(WORDS)]
SCALES = {"tanh": (1.0, 0), "relu": (2.0, 1)}
Case = tuple[dietcode.Program, list[Any], list[Any]]
_random = random.Random(5)


def _linear(given: int = WIDTH, wanted: int = WIDTH) -> nn.Linear:
    return nn.Linear(given, wanted).eval()


def _row(scale: float = 1.0) -> Tensor:
    return scale * torch.randn(WIDTH)


def _rows(*counts: int) -> list[list[Tensor]]:
    return [[_row() for _ in range(count)] for count in counts]


@dataclass
class Word:
    """A word; `encode` is of each class its own."""

    word: int

    def encode(self, parts: Parts) -> Tensor:
        """Return the vector of a word."""
        return parts.embedding(torch.tensor(self.word))


@dataclass
class Not:
    """What turns its child."""

    child: Any

    def encode(self, parts: Parts) -> Tensor:
        """Return the vector of a turned child."""
        return torch.tanh(parts.turn(self.child.encode(parts)))


@dataclass
class Both:
    """Two, joined by an operator."""

    left: Any
    right: Any
    op: str = "+"

    def encode(self, parts: Parts) -> Tensor:
        """Return the vector of both."""
        pair = torch.cat([self.left.encode(parts), self.right.encode(parts)])
        return torch.tanh(parts.join(pair)) if self.op == "+" else torch.relu(parts.join(pair))


class Parts(nn.Module):
    """What expressions are computed by."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.turn = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.join = nn.Linear(2 * WIDTH, WIDTH)


def _expression(depth: int) -> Any:
    chance = _random.random()
    if depth == 0 or chance < 0.2:
        return Word(_random.randrange(WORDS))
    if chance < 0.5:
        return Not(_expression(depth - 1))
    return Both(_expression(depth - 1), _expression(depth - 1), _random.choice("+*"))


def _expressions() -> tuple[list[Any], list[Any]]:
    one, turned = Word(1), Not(Word(2))
    samples = [
        one,
        turned,
        Not(turned),
        *(Both(left, right, op) for left in (one, turned) for right in (one, turned) for op in "+*"),
        *(Not(Both(one, one)), Both(Both(one, one), Both(one, one)), Both(Both(one, one), one)),
    ]
    return samples, [_expression(4) for _ in range(8)]


def variants_by_isinstance() -> Case:
    """Which class an object is of."""
    parts = Parts().eval()

    def node(tree: Any) -> Tensor:
        if isinstance(tree, Word):
            return parts.embedding(torch.tensor(tree.word))
        if isinstance(tree, Not):
            return torch.tanh(parts.turn(node(tree.child)))
        pair = torch.cat([node(tree.left), node(tree.right)])
        return torch.tanh(parts.join(pair)) if tree.op == "+" else torch.relu(parts.join(pair))

    return dietcode.program(node), *_expressions()


def variants_by_methods() -> Case:
    """A method of each class."""
    parts = Parts().eval()

    @dietcode.program
    def run(tree: Any) -> Tensor:
        return tree.encode(parts)

    return run, *_expressions()


def variants_by_match() -> Case:
    """Patterns of classes, with guards and names."""
    parts = Parts().eval()

    def node(tree: Any) -> Tensor:
        match tree:
            case Word(word=0 | 1):
                return torch.zeros(WIDTH)
            case Word(word):
                return parts.embedding(torch.tensor(word))
            case Not(Not(inner)):
                return node(inner)
            case Not(child):
                return torch.tanh(parts.turn(node(child)))
            case Both(left, right, op) if op == "+":
                return torch.tanh(parts.join(torch.cat([node(left), node(right)])))
            case Both(left=left):
                return torch.relu(node(left))
            case _:
                raise ValueError("no expression")

    return dietcode.program(node), *_expressions()


def nested_tuples() -> Case:
    """A module's own recursion over tuples and numbers."""

    class TreeNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.join = nn.Embedding(WORDS, WIDTH), nn.Bilinear(WIDTH, WIDTH, WIDTH)
            self.norm = nn.LayerNorm(WIDTH)

        def forward(self, tree: Any, depth: int = 0) -> Tensor:
            if depth > 50:
                raise ValueError(f"too deep: {depth}")
            if isinstance(tree, int):
                return self.embedding(torch.tensor(tree))
            left, right = tree
            return self.norm(self.join(self(left, depth + 1), self(right, depth + 1)))

    def tree(depth: int) -> Any:
        if depth == 0 or _random.random() < 0.2:
            return _random.randrange(WORDS)
        return tree(depth - 1), tree(depth - 1)

    net = TreeNet().eval()

    @dietcode.program
    def run(whole: Any) -> Tensor:
        return net(whole)

    return run, [1, (1, 2), ((1, 2), 3)], [tree(5) for _ in range(4)]


def words_by_dict() -> Case:
    """A vocabulary is a dict of the file."""
    embedding, cell = nn.Embedding(WORDS, WIDTH).eval(), nn.GRUCell(WIDTH, WIDTH).eval()

    @dietcode.program
    def run(words: list[str]) -> tuple[Tensor, int]:
        h, known = torch.zeros(WIDTH), 0
        for word in words:
            h = cell(embedding(torch.tensor(IDS.get(word, UNKNOWN))), h)
            known += word in IDS
        return h, known

    further = [[_random.choice([*IDS, "dog", ""]) for _ in range(count)] for count in (1, 4, 6)]
    return run, [["the", "cat"], ["sat"], ["foo", "the"]], further


def layers_by_name() -> Case:
    """A layer, a scale and whether there is one are looked up by text."""
    acts = nn.ModuleDict({"tanh": nn.Tanh(), "relu": nn.ReLU()}).eval()
    layer = _linear()

    @dietcode.program
    def run(names: list[str], x: Tensor) -> Tensor:
        for name in names:
            if name not in acts:
                continue
            scale, more = SCALES[name]
            x = acts[name](layer(x)) * scale + more
        return x

    further = [([_random.choice(["tanh", "relu", "x"]) for _ in range(4)], _row()) for _ in range(4)]
    return run, [(["tanh", "no"], _row()), (["relu"], _row())], further


def a_key_that_is_missing() -> Case:
    """Numbers that are equal are one key; without one, the instance fails."""
    table = {1: 2, "a": 3.5, None: -1}
    layer = _linear()

    @dietcode.program
    def run(key: Any, x: Tensor) -> Tensor:
        return layer(x) * table[key]

    keys = [2, "b", 1, 1.0, True, None, 1.5]
    return run, [(1, _row()), ("a", _row())], [(key, _row()) for key in keys]


def experts() -> Case:
    """A module of a list that a computed number chooses; texts of a list that it names."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
            self.gate, self.names = nn.Linear(WIDTH, 3), ["a", "b", "c"]

        def forward(self, x: Tensor, steps: int) -> tuple[Tensor, list[str]]:
            used = []
            for _ in range(steps):
                best = int(torch.argmax(self.gate(x)))
                used.append(self.names[best])
                x = x + torch.relu(self.experts[best](x))
            return x, used

    further = [(_row(3), count) for count in (0, 1, 5)]
    return dietcode.program(Experts().eval()), [(_row(3), 3) for _ in range(10)], further


def layers_by_number() -> Case:
    """Layers by the number of a loop, which a number of the instance ends."""
    layers = nn.ModuleList([_linear() for _ in range(3)]).eval()

    @dietcode.program
    def run(x: Tensor, most: int) -> Tensor:
        for k in range(len(layers)):
            if k >= most:
                break
            x = torch.tanh(layers[k](x))
        return x

    return run, [(_row(), most) for most in range(4)], [(_row(), most) for most in (1, 3, 2)]


def any_and_all() -> Case:
    """What stops at the first one, over values that are computed one by one."""
    gate, step = _linear(WIDTH, 1), _linear()

    @dietcode.program
    def run(xs: list[Tensor]) -> tuple[list[Tensor], int, bool]:
        rounds = 0
        while any(gate(x).item() > 0 for x in xs) and rounds < 4:
            xs = [torch.tanh(step(x)) - 0.1 for x in xs]
            rounds += 1
        return xs, rounds, all(gate(x).item() <= 0 for x in xs)

    return (
        run,
        [[_row(2) for _ in range(n)] for n in (1, 2, 4)],
        [[_row(2) for _ in range(n)] for n in (3, 5)],
    )


def beams_by_key() -> Case:
    """Hypotheses in the order of a key."""
    embedding, cell = nn.Embedding(WORDS, WIDTH).eval(), nn.GRUCell(WIDTH, WIDTH).eval()
    scores = _linear(WIDTH, WORDS)

    @dietcode.program
    def search(seed: Tensor) -> tuple[list[int], float]:
        beams = [(0.0, [0], seed)]
        for _ in range(3):
            found = []
            for score, words, h in beams:
                if words[-1] == WORDS - 1:
                    found.append((score, words, h))
                    continue
                new = cell(embedding(torch.tensor(words[-1])), h)
                chances = torch.log_softmax(scores(new), -1).tolist()
                for word in range(WORDS):
                    found.append((score + chances[word], [*words, word], new))
            beams = sorted(found, key=lambda one: one[0], reverse=True)[:3]
        return beams[0][1], beams[0][0]

    return search, [_row(2) for _ in range(3)], [_row(2) for _ in range(4)]


def orders() -> Case:
    """Tuples in order, sorting in place, the best by a key, numbers of all kinds."""
    score = _linear(WIDTH, 1)

    @dietcode.program
    def run(xs: list[Tensor]) -> Any:
        values = [score(x).item() for x in xs]
        pairs = [(value, k) for k, value in enumerate(values)]
        pairs.sort(reverse=True)
        best = max(range(len(values)), key=lambda k: values[k])
        least = min(xs, key=lambda x: x[0].item())
        return [k for _, k in pairs], max(pairs)[1], xs[best], least, sorted(values), sum(values, 1.0)

    return run, _rows(1, 3), _rows(2, 5, 8)


def functions_within() -> Case:
    """A recursion within the program, which reads its variables; a lambda with a name; a list that counts."""
    embedding, cell = nn.Embedding(WORDS, WIDTH).eval(), nn.GRUCell(WIDTH, WIDTH).eval()

    @dietcode.program
    def run(tree: Any, scale: float) -> tuple[Tensor, int]:
        count = [0]
        scaled = lambda x: x * scale  # noqa: E731

        def node(one: Any, depth: int = 0) -> Tensor:
            count[0] += 1
            if isinstance(one, int):
                return scaled(embedding(torch.tensor(one)))
            h = torch.zeros(WIDTH)
            for child in one:
                h = cell(node(child, depth + 1), h)
            return h

        return node(tree), count[0]

    def tree(depth: int) -> Any:
        if depth == 0 or _random.random() < 0.3:
            return _random.randrange(WORDS)
        return [tree(depth - 1) for _ in range(_random.randrange(1, 3))]

    return run, [(1, 1.0), ([1, [2, 3]], 2.0)], [(tree(4), 0.5) for _ in range(4)]


def usual_attention() -> Case:
    """Attention as it is written: a row times a stack that is turned."""
    query, key, value = _linear(), _linear(), _linear()

    @dietcode.program
    def run(xs: list[Tensor]) -> Tensor:
        keys, values = torch.stack([key(x) for x in xs]), torch.stack([value(x) for x in xs])
        found = []
        for x in xs:
            found.append(F.softmax(query(x) @ keys.T / math.sqrt(WIDTH), dim=-1) @ values)
        return torch.stack(found).mean(0)

    return run, _rows(1, 3), _rows(2, 5)


def early_exit_by_class() -> Case:
    """The largest score and where it is, at once."""
    layers = nn.ModuleList([_linear() for _ in range(3)]).eval()
    heads = nn.ModuleList([_linear(WIDTH, 3) for _ in range(3)]).eval()

    @dietcode.program
    def run(x: Tensor) -> tuple[int, int, Tensor]:
        for k, (layer, head) in enumerate(zip(layers, heads, strict=True)):
            x = F.gelu(layer(x))
            shares = F.softmax(head(x), dim=-1)
            sure, kind = shares.max(dim=-1)
            if sure > 0.45:
                return int(kind), k, shares
        return -1, len(layers), shares

    return run, [_row(3) for _ in range(16)], [_row(3) for _ in range(10)]


def words_of_a_tensor() -> Case:
    """Whole numbers come as a tensor of any length; batch axes of one; a vector with a one."""
    embedding, cell = nn.Embedding(WORDS, WIDTH).eval(), nn.LSTMCell(WIDTH, WIDTH).eval()
    first, out = _linear(WORDS, WIDTH), _linear(WIDTH, WORDS)

    @dietcode.program
    def run(ids: Tensor) -> tuple[Tensor, int, list[int]]:
        h, c = first(F.one_hot(ids[0], WORDS).float()).unsqueeze(0), torch.zeros(1, WIDTH)
        for one in ids[1:].tolist():
            h, c = cell(embedding(torch.tensor([one])), (h, c))
        return out(h).squeeze(0).log_softmax(dim=-1), ids.shape[0], ids.tolist()

    return (
        run,
        [torch.tensor([1, 2]), torch.tensor([3, 0, 7])],
        [torch.tensor([4, 5, 6, 7]), torch.tensor([2])],
    )


def numbers_beside_tensors() -> Case:
    """Ints, floats and bools of an instance in tensor code, and as tensors."""

    @dietcode.program
    def run(x: Tensor, n: int, part: float, flag: bool) -> Any:
        made = torch.tensor([part, 1.0, float(n)])
        total: Any = 0
        for k in range(n):
            total += k * part
            if flag and k == 2:
                total = int(total) // 2
            x = x * total + (k if flag else 0.5)
        return (
            torch.tensor(n).float() * x,
            made.sum(),
            x * flag + n / 2,
            total,
            round(3 * part),
            math.floor(part),
        )

    given = [(_row(), 2, 0.3, True), (_row(), 5, 0.7, False), (_row(), 4, 2, True), (_row(), 1, 0.1, False)]
    return run, given, [(_row(), 3, 1.25, True), (_row(), 0, -2.5, False)]


def plain_python() -> Case:
    """Statements and operators around one block."""
    layer = _linear()

    @dietcode.program
    def run(x: Tensor, tag: str, n: int, items: list[int]) -> Any:
        with torch.no_grad():
            y = layer(x)
        for k in range(n):
            if k * k > 20:
                break
        else:
            n += 1
        first, *rest = items
        rest += [n >> 1, n & 3, n | 8, n ^ 5, ~n, 1 << 4]
        rest.remove(n | 8)
        kind = "none" if not tag else "some"
        flat = [one * other for one in items for other in range(one) if other % 2]
        a, pair = -0.0 if n > 4 else 0.0, (n, 2)
        pairs = tuple(one for one in items[::2]), items[-1:0:-1], list(map(abs, items)), divmod(n, 3)
        return (
            y,
            first,
            rest,
            kind,
            flat,
            a,
            pairs,
            rest.index(16),
            list(pair),
            [*pairs[0], 3],
            bool(tag),
        )

    given = [(_row(), "a", 3, [1, 2, 3]), (_row(), "", 7, [4, -3]), (_row(), "b", 5, [2])]
    return run, given, [(_row(), "", 2, [5, 1, 6, 2, 3]), (_row(), "c", 9, [1])]


@dataclass
class Tree:
    """A node with a label."""

    label: int
    kids: list[Tree] = field(default_factory=list)

    def is_leaf(self) -> bool:
        """Return whether it has no children."""
        return not self.kids


def letters_of_words() -> Case:
    """Methods that decide; texts of a list by a computed number; two names of ends."""
    embedding, cell = nn.Embedding(WORDS, WIDTH).eval(), nn.GRUCell(WIDTH, WIDTH).eval()
    out = _linear(WIDTH, WORDS)

    def node(tree: Tree) -> Tensor:
        h = embedding(torch.tensor(tree.label))
        if not tree.is_leaf():
            for one in map(node, tree.kids):
                h = cell(one, h)
        return h

    @dietcode.program
    def run(tree: Tree) -> tuple[list[str], str]:
        h, found, why = node(tree), [], "running"
        while why == "running":
            best = out(h).argmax().item()
            h = cell(embedding(torch.tensor(best)), h)
            if best == 3:
                why = "end"
            elif len(found) >= 4:
                why = "length"
            else:
                found.append(NAMES[best])
        return found, why

    def tree(depth: int) -> Tree:
        kids = [tree(depth - 1) for _ in range(_random.randrange(4))] if depth else []
        return Tree(_random.randrange(WORDS), kids)

    samples = [Tree(1), Tree(2, [Tree(3), Tree(4)]), *(Tree(k, [Tree(k)]) for k in range(8))]
    return run, samples, [tree(2) for _ in range(6)]


PROGRAMS: dict[str, Callable[[], Case]] = {
    one.__name__: one
    for one in (
        variants_by_isinstance,
        variants_by_methods,
        variants_by_match,
        nested_tuples,
        words_by_dict,
        layers_by_name,
        a_key_that_is_missing,
        experts,
        layers_by_number,
        any_and_all,
        beams_by_key,
        orders,
        functions_within,
        usual_attention,
        early_exit_by_class,
        words_of_a_tensor,
        numbers_beside_tensors,
        plain_python,
        letters_of_words,
    )
}
