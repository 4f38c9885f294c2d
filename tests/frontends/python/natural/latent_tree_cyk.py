"""Latent-tree chart parsing: CYK over cells (Maillard et al. 2017), inside scores, and the best tree read out."""
import random
from collections import defaultdict
from itertools import product

import numpy as np
import torch
import torch.nn as nn

import dietcode

D, VOCAB = 10, 20


class ChartParser(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(VOCAB, 2 * D)
        self.compose = nn.Linear(2 * D, 5 * D)
        self.energy = nn.Parameter(torch.randn(D))

    def cell(self, left, right):
        (hl, cl), (hr, cr) = left, right
        i, fl, fr, o, u = self.compose(torch.cat([hl, hr])).chunk(5)
        c = fl.sigmoid() * cl + fr.sigmoid() * cr + i.sigmoid() * u.tanh()
        return o.sigmoid() * c.tanh(), c

    def soft(self, words, temperature=0.5):
        n = len(words)
        chart = {}
        for i, w in enumerate(words):
            chart[i, i + 1] = tuple(self.word(torch.tensor(w)).chunk(2))
        for width in range(2, n + 1):
            for i in range(n - width + 1):
                j = i + width
                constituents = [self.cell(chart[i, k], chart[k, j]) for k in range(i + 1, j)]
                if len(constituents) == 1:
                    chart[i, j] = constituents[0]
                    continue
                hs = torch.stack([h for h, _ in constituents])
                cs = torch.stack([c for _, c in constituents])
                weights = torch.softmax((hs @ self.energy) / temperature, dim=0)
                chart[i, j] = (weights @ hs, weights @ cs)
        return chart[0, n][0], len(chart)

    def hard(self, words):
        n = len(words)
        chart = [[None] * (n + 1) for _ in range(n + 1)]
        score = np.full((n + 1, n + 1), -np.inf)
        back = np.zeros((n + 1, n + 1), dtype=int)
        for i in range(n):
            chart[i][i + 1] = self.word.weight[words[i]].split(D)
            score[i, i + 1] = 0
        for width in range(2, n + 1):
            for i in range(n - width + 1):
                j = i + width
                for k in range(i + 1, j):
                    h, c = self.cell(chart[i][k], chart[k][j])
                    s = score[i, k] + score[k, j] + torch.dot(h, self.energy).item()
                    if s > score[i, j]:
                        score[i, j], back[i, j], chart[i][j] = s, k, (h, c)
        def tree(i, j):
            return words[i] if j == i + 1 else (tree(i, back[i, j]), tree(back[i, j], j))
        return tree(0, n), chart[0][n][0], score[0, n]


class PCFG(nn.Module):
    """Neural PCFG: rule scores from embeddings; the inside algorithm in log space with a sparse chart."""

    def __init__(self, symbols=3):
        super().__init__()
        self.symbols = symbols
        self.nt = nn.Parameter(torch.randn(symbols, D))
        self.rule = nn.Linear(D, symbols * symbols)
        self.emit = nn.Linear(D, VOCAB)

    def forward(self, words):
        rules = torch.log_softmax(self.rule(self.nt), dim=1).view(self.symbols, self.symbols, self.symbols)
        emissions = torch.log_softmax(self.emit(self.nt), dim=1)
        n = len(words)
        inside = defaultdict(list)
        for i, w in enumerate(words):
            inside[i, i + 1].append(emissions[:, w])
        for width in range(2, n + 1):
            for i, k in product(range(n - width + 1), range(1, width)):
                left, right = inside[i, i + k], inside[i + k, i + width]
                l, r = (torch.logsumexp(torch.stack(x), dim=0) for x in (left, right))
                pairs = rules + l[None, :, None] + r[None, None, :]
                inside[i, i + width].append(pairs.flatten(1).logsumexp(dim=-1))
        root = torch.stack(inside[0, n]).logsumexp(0)
        return root, root.argmax().item()


torch.manual_seed(0)
parser, pcfg = ChartParser().eval(), PCFG().eval()


def sentences(seed, lengths):
    r = random.Random(seed)
    return [[r.randrange(VOCAB) for _ in range(n)] for n in lengths]


PROGRAMS = [
    (dietcode.program(parser.soft), lambda: sentences(0, [1, 2, 3, 5]), lambda: sentences(1, [4, 6])),
    (dietcode.program(parser.hard), lambda: sentences(2, [1, 2, 3, 5]), lambda: sentences(3, [4, 6, 0])),
    (dietcode.program(pcfg), lambda: sentences(4, [1, 2, 3, 4]), lambda: sentences(5, [5, 0])),
]
