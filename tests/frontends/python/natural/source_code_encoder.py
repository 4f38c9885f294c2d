"""Encodes Python source: an ast.NodeVisitor, code2vec-like paths between leaves, and identifiers split into subtokens."""
import ast
import itertools
import keyword
import re
import zlib

import torch
import torch.nn as nn

import dietcode

D, BUCKETS = 12, 64
NODE_TYPES = {c.__name__: i for i, c in enumerate(sorted((c for c in vars(ast).values() if isinstance(c, type) and issubclass(c, ast.AST)), key=lambda c: c.__name__))}


def subtokens(identifier):
    return [t.lower() for t in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", identifier)] or ["_"]


def bucket(token):
    return zlib.crc32(token.encode()) % BUCKETS


class CodeEncoder(nn.Module, ast.NodeVisitor):
    def __init__(self):
        super().__init__()
        self.types, self.tokens = nn.Embedding(len(NODE_TYPES), D), nn.Embedding(BUCKETS, D)
        self.child = nn.GRUCell(D, D)
        self.combine = nn.Linear(2 * D, D)
        self.number = nn.Linear(2, D)

    def identifier(self, name):
        return sum(self.tokens(torch.tensor(bucket(t))) for t in subtokens(name))

    def type_vector(self, node):
        return self.types(torch.tensor(NODE_TYPES[type(node).__name__]))

    def generic_visit(self, node):
        h = self.type_vector(node)
        for name, value in ast.iter_fields(node):
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, ast.AST):
                    h = self.child(self.visit(item), h)
                elif isinstance(item, str):
                    h = self.child(self.identifier(item), h)
        return h

    def visit_Constant(self, node):
        v = node.value
        if isinstance(v, bool) or v is None or v is ...:
            leaf = self.tokens(torch.tensor(bucket(repr(v))))
        elif isinstance(v, (int, float)):
            leaf = self.number(torch.tensor([float(v), 1.0]))
        else:
            leaf = self.identifier(str(v))
        return torch.tanh(self.combine(torch.cat([self.type_vector(node), leaf])))

    def visit_Name(self, node):
        return torch.tanh(self.combine(torch.cat([self.types.weight[NODE_TYPES["Name"]], self.identifier(node.id)])))

    visit_Load = visit_Store = lambda self, node: self.type_vector(node)

    def forward(self, source):
        try:
            tree = ast.parse(source)
        except SyntaxError as e:
            return f"line {e.lineno}: no Python"
        return self.visit(tree)


class PathEncoder(nn.Module):
    def __init__(self, limit=10):
        super().__init__()
        self.types, self.tokens = nn.Embedding(len(NODE_TYPES), D), nn.Embedding(BUCKETS, D)
        self.rnn = nn.LSTMCell(D, D)
        self.fc = nn.Linear(3 * D, D, bias=False)
        self.attention = nn.Parameter(torch.randn(D))
        self.limit = limit

    @staticmethod
    def leaves(tree):
        def walk(node, path):
            path = path + [node]
            children = list(ast.iter_child_nodes(node))
            if not children:
                return
            for child in children:
                if isinstance(child, (ast.Name, ast.arg)):
                    yield getattr(child, "id", None) or child.arg, path + [child]
                else:
                    yield from walk(child, path)
        return walk(tree, [])

    def forward(self, source):
        contexts, named = [], []
        for (a, left), (b, right) in itertools.islice(itertools.combinations(self.leaves(ast.parse(source)), 2), self.limit):
            common = sum(1 for x, y in itertools.takewhile(lambda xy: xy[0] is xy[1], zip(left, right)))
            path = left[:common - 1:-1] + right[common - 1:]
            state = None
            for node in path:
                state = self.rnn(self.types(torch.tensor(NODE_TYPES[type(node).__name__])), state)
            ends = [sum(self.tokens(torch.tensor(bucket(t))) for t in subtokens(name)) for name in (a, b)]
            contexts.append(torch.tanh(self.fc(torch.cat([ends[0], state[0], ends[1]]))))
            named.append((a, len(path), b))
        if not contexts:
            return None
        contexts = torch.stack(contexts)
        weights = torch.softmax(contexts @ self.attention, 0)
        return weights @ contexts, named[weights.argmax()]


torch.manual_seed(0)
encoder, paths = CodeEncoder().eval(), PathEncoder().eval()
SNIPPETS = [
    "x = 1",
    "def addOne(value):\n    return value + 1.5",
    "for i in range(n):\n    total += items[i] if items[i] > 0 else None",
    "class HTTPServer:\n    port: int = 80\n    def handle(self, request): ...",
    "a = b",
    "print('hello world', sep='')",
    "lambda x, y: (x, -y)",
    "while True:\n    if not queue: break\n    node = queue.pop(0)\n    visit(node, depth + 1)",
    "",
    "def f(:",
    "from os import path as p\nassert p.join(a, b) != ''",
]
PROGRAMS = [
    (dietcode.program(encoder), lambda: SNIPPETS[:6], lambda: SNIPPETS[4:]),
    (dietcode.program(paths), lambda: SNIPPETS[:6], lambda: SNIPPETS[6:]),
]
