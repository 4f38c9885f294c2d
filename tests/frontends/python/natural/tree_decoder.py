"""Top-down decoding of programs (as in abstract syntax networks, Rabinovich et al. 2017): generators make typed trees."""
from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass, field
from typing import Optional

import torch
from torch import Tensor, nn

import dietcode

H = 16
GRAMMAR = {
    "expr": [("add", ["expr", "expr"]), ("neg", ["expr"]), ("var", []), ("num", []), ("let", ["name", "expr", "expr"])],
    "name": [("x", []), ("y", []), ("z", [])],
}
LIMIT = 14


@dataclass
class AST:
    rule: str
    state: Tensor = field(repr=False, compare=False)
    logp: float = 0.0
    children: list[AST] = field(default_factory=list)
    parent: Optional[AST] = field(default=None, repr=False, compare=False)

    def walk(self):
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def total(self) -> float:
        return self.logp + sum(child.total for child in self.children)


class TooLarge(RuntimeError):
    ...


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rules = nn.ModuleDict({kind: nn.Linear(H, len(rules)) for kind, rules in GRAMMAR.items()})
        self.embed = nn.ModuleDict({kind: nn.Embedding(len(rules), H) for kind, rules in GRAMMAR.items()})
        self.vertical, self.horizontal = nn.LSTMCell(2 * H, H), nn.GRUCell(H, H)
        for kind in self.rules:
            nn.init.normal_(self.rules[kind].weight)

    def expand(self, kind, state, context, counter, depth=0):
        number = next(counter)
        if number >= LIMIT:
            raise TooLarge(f"{number} nodes")
        bias = torch.zeros(len(GRAMMAR[kind]))
        if depth > 2:
            bias[:2] = -4.0
        logp = torch.log_softmax(self.rules[kind](state[0]) + bias, dim=-1)
        k = logp.argmax().item()
        name, children = GRAMMAR[kind][k]
        node = AST(name, state[0], logp[k].item())
        sibling = context
        for child_kind in children:
            x = torch.cat([self.embed[kind](torch.tensor(k)), sibling])
            child = self.expand(child_kind, self.vertical(x, state), context, counter, depth + 1)
            child.parent = node
            node.children.append(child)
            sibling = self.horizontal(child.state, sibling)
        return node


torch.manual_seed(11)
decoder = Decoder().eval()


@dietcode.program
def generate(seed: Tensor) -> AST:
    return decoder.expand("expr", (seed, torch.zeros_like(seed)), seed, itertools.count())


@dietcode.program
def source(seed: Tensor) -> str:
    def show(node):
        match node:
            case AST("add", children=[a, b]):
                return f"({show(a)} + {show(b)})"
            case AST("neg", children=[a]):
                return f"-{show(a)}"
            case AST("let", children=[n, v, body]):
                return f"let {show(n)} = {show(v)} in {show(body)}"
            case AST(rule=("x" | "y" | "z") as letter):
                return letter
            case AST(rule, children=[]):
                return rule.upper()

    try:
        tree = decoder.expand("expr", (seed, seed.clone()), seed, itertools.count())
    except TooLarge as error:
        return f"<{error}>"
    depths = {}
    for node in tree.walk():
        depths[id(node)] = 0 if node.parent is None else depths[id(node.parent)] + 1
    return f"{show(tree)} # {len(depths)} nodes, depth {max(depths.values())}, {tree.total:.2f}"


def seeds(seed, n, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(H, generator=g) for _ in range(n)]


PROGRAMS = [
    (generate, lambda: seeds(0, 10), lambda: seeds(1, 8, 2.0)),
    (source, lambda: seeds(2, 10), lambda: seeds(3, 8, 2.0)),
]
