"""Recursive autoencoder (Socher et al. 2011): the adjacent pair with the least reconstruction error is merged, greedily."""
import random
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

import dietcode

D, VOCAB = 12, 25


class TreeNode:
    __slots__ = ("left", "right", "p", "count", "error", "word")

    def __init__(self, p, word=None, left=None, right=None, error=0.0):
        self.p, self.word, self.left, self.right, self.error = p, word, left, right, error
        self.count = 1 if left is None else left.count + right.count

    def __str__(self):
        return str(self.word) if self.left is None else f"({self.left} {self.right})"

    def leaves(self):
        if self.left is None:
            yield self
        else:
            yield from self.left.leaves()
            yield from self.right.leaves()

    def internal(self):
        if self.left is not None:
            yield self
            for child in (self.left, self.right):
                yield from child.internal()


class RAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, D)
        self.encoder = nn.Linear(2 * D, D)
        self.decoder = nn.Linear(D, 2 * D)
        self.label = nn.Linear(D, 2)

    def encode(self, a, b):
        p = torch.tanh(self.encoder(torch.cat([a.p, b.p])))
        return p / p.norm()

    def reconstruction_error(self, p, a, b):
        a_, b_ = torch.tanh(self.decoder(p)).split(D)
        total = a.count + b.count
        loss = a.count / total * F.mse_loss(a_, a.p, reduction="sum") + b.count / total * F.mse_loss(b_, b.p, reduction="sum")
        return loss.item()

    def build(self, words):
        nodes = [TreeNode(self.embedding(torch.tensor(w)), word=w) for w in words]
        while len(nodes) > 1:
            best, best_error, best_p = None, sys.float_info.max, None
            for i, (a, b) in enumerate(zip(nodes, nodes[1:])):
                p = self.encode(a, b)
                error = self.reconstruction_error(p, a, b)
                if error < best_error:
                    best, best_error, best_p = i, error, p
            nodes[best:best + 2] = [TreeNode(best_p, left=nodes[best], right=nodes[best + 1], error=best_error)]
        return nodes[0]

    def unfold(self, node, vector):
        """The leaves as the decoder has them."""
        if node.left is None:
            return [vector]
        a, b = torch.tanh(self.decoder(vector)).chunk(2)
        return self.unfold(node.left, a) + self.unfold(node.right, b)


torch.manual_seed(0)
rae = RAE().eval()


@dietcode.program
def encode(words):
    root = rae.build(words)
    labels = [rae.label(n.p).softmax(0) for n in root.internal()]
    unfolded = rae.unfold(root, root.p)
    errors = [(u - leaf.p).pow(2).sum() for u, leaf in zip(unfolded, root.leaves())]
    worst = max(range(len(errors)), key=errors.__getitem__)
    return str(root), root.p, labels, sum(n.error for n in root.internal()), worst


@dietcode.program
def tree_of(words):
    return rae.build(words)


def sentences(seed, lengths):
    r = random.Random(seed)
    return [[r.randrange(VOCAB) for _ in range(n)] for n in lengths]


PROGRAMS = [
    (encode, lambda: sentences(0, [1, 2, 3, 5, 6]), lambda: sentences(1, [4, 9])),
    (tree_of, lambda: sentences(2, [1, 2, 4]), lambda: sentences(3, [3, 6, 0])),
]
