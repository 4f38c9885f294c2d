"""Neural module networks (Andreas et al. 2016): a layout in brackets is parsed and chooses modules; match statements."""
from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Iterator

import torch
from torch import Tensor, nn

import dietcode

D, REGIONS = 12, 5
WORDS = ["circle", "square", "red", "green", "left", "right", "above"]


class Op(enum.Enum):
    FIND = "find"
    RELATE = "relate"
    AND = "and"
    NOT = "not"
    EXISTS = "exists"
    COUNT = "count"
    COMPARE = "more"


@dataclass
class Layout:
    op: Op
    args: list[Layout | str]

    @classmethod
    def parse(cls, text: str) -> Layout:
        tokens = re.findall(r"[()]|[^\s()]+", text)

        def read(it: Iterator[str]) -> Layout | str:
            token = next(it)
            if token != "(":
                return token
            op, args = Op(next(it)), []
            while True:
                try:
                    args.append(read(it))
                except EndOfList:
                    return cls(op, args)

        def checked(it):
            for token in it:
                yield token

        class Reader:
            def __init__(self, items):
                self.items, self.at = items, 0

            def __iter__(self):
                return self

            def __next__(self):
                if self.at >= len(self.items):
                    raise SyntaxError(f"unexpected end of {text!r}")
                self.at += 1
                if self.items[self.at - 1] == ")":
                    raise EndOfList
                return self.items[self.at - 1]

        return read(Reader(list(checked(tokens))))


class EndOfList(Exception):
    pass


class Modules(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(len(WORDS), D)
        self.find = nn.Sequential(nn.Linear(D, D), nn.Tanh())
        self.relate = nn.ModuleDict({w: nn.Linear(REGIONS, REGIONS) for w in ("left", "right", "above")})
        self.exists = nn.Linear(REGIONS, 2)
        self.count = nn.Linear(REGIONS, REGIONS + 1)

    def attend(self, node: Layout, image: Tensor) -> Tensor:
        match node:
            case Layout(Op.FIND, [word]):
                query = self.words(torch.tensor(WORDS.index(word)))
                return torch.sigmoid(self.find(image) @ query)
            case Layout(Op.RELATE, [where, inner]) if where in self.relate:
                return torch.sigmoid(self.relate[where](self.attend(inner, image)))
            case Layout(Op.AND, [first, *rest]):
                attention = self.attend(first, image)
                for other in rest:
                    attention = torch.minimum(attention, self.attend(other, image))
                return attention
            case Layout(Op.NOT, [inner]):
                return 1 - self.attend(inner, image)
            case Layout(op, args):
                raise TypeError(f"{op.name.lower()} of {len(args)} gives no attention")
            case str(word):
                raise TypeError(f"{word} is no layout")

    def answer(self, node: Layout, image: Tensor) -> str:
        match node.op:
            case Op.EXISTS:
                return ("no", "yes")[int(self.exists(self.attend(*node.args, image)).argmax())]
            case Op.COUNT:
                return str(self.count(self.attend(*node.args, image)).argmax().item())
            case Op.COMPARE:
                left, right = (self.attend(a, image).sum() for a in node.args)
                return "yes" if left > right else "no"
            case _:
                best = self.attend(node, image).max(0)
                return f"region {best.indices} ({best.values:.2f})"


torch.manual_seed(4)
modules = Modules().eval()


@dietcode.program
def answer(question: str, image: Tensor) -> str:
    return modules.answer(Layout.parse(question), image)


QUESTIONS = [
    "(exists (and (find red) (relate left (find circle))))",
    "(count (find square))",
    "(more (find red) (not (find green)))",
    "(relate above (relate right (find green)))",
    "(exists (not (and (find red) (find circle) (find square))))",
    "(find circle)",
    "(exists (exists (find red)))",
    "(count (relate red (find circle)))",
    "(count (and (relate left (find circle)) (not (relate above (find square)))))",
    "(find blue)",
    "(exists (find red",
    "(paint red)",
]


def instances(seed, questions):
    g = torch.Generator().manual_seed(seed)
    return [(q, torch.randn(REGIONS, D, generator=g)) for q in questions]


PROGRAMS = [(answer, lambda: instances(0, QUESTIONS[:7]), lambda: instances(1, QUESTIONS))]
