"""Child-sum and N-ary Tree-LSTMs (Tai et al. 2015) over dependency trees in nested dicts, with sentiment."""
import random

import torch
from torch import nn

import dietcode

IN, MEM, VOCAB = 12, 16, 30


class Tree(object):
    def __init__(self, idx):
        self.parent = None
        self.num_children = 0
        self.children = list()
        self.idx = idx
        self.state = None

    def add_child(self, child):
        child.parent = self
        self.num_children += 1
        self.children.append(child)

    def __len__(self):
        if getattr(self, "_size", None):
            return self._size
        count = 1
        for i in range(self.num_children):
            count += len(self.children[i])
        self._size = count
        return self._size

    def depth(self):
        return 1 + max((c.depth() for c in self.children), default=0)


class ChildSumTreeLSTM(nn.Module):
    def __init__(self, in_dim, mem_dim):
        super().__init__()
        self.mem_dim = mem_dim
        self.emb = nn.Embedding(VOCAB, in_dim)
        self.ioux = nn.Linear(in_dim, 3 * mem_dim)
        self.iouh = nn.Linear(mem_dim, 3 * mem_dim)
        self.fx = nn.Linear(in_dim, mem_dim)
        self.fh = nn.Linear(mem_dim, mem_dim)

    def node_forward(self, inputs, child_c, child_h):
        child_h_sum = torch.sum(child_h, dim=0, keepdim=True)
        iou = self.ioux(inputs) + self.iouh(child_h_sum)
        i, o, u = torch.split(iou, iou.size(1) // 3, dim=1)
        i, o, u = torch.sigmoid(i), torch.sigmoid(o), torch.tanh(u)
        f = torch.sigmoid(self.fh(child_h) + self.fx(inputs).repeat(len(child_h), 1))
        fc = torch.mul(f, child_c)
        c = torch.mul(i, u) + torch.sum(fc, dim=0, keepdim=True)
        h = torch.mul(o, torch.tanh(c))
        return c, h

    def forward(self, tree):
        for child in tree.children:
            self.forward(child)
        inputs = self.emb(torch.tensor([tree.idx]))
        if tree.num_children == 0:
            child_c = inputs.detach().new(1, self.mem_dim).fill_(0.)
            child_h = inputs.detach().new(1, self.mem_dim).fill_(0.)
        else:
            child_c, child_h = zip(*map(lambda x: x.state, tree.children))
            child_c, child_h = torch.cat(child_c, dim=0), torch.cat(child_h, dim=0)
        tree.state = self.node_forward(inputs, child_c, child_h)
        return tree.state


class NaryCell(nn.Module):
    """At most N children; each has its own U, missing ones are left out."""

    def __init__(self, n, in_dim, mem_dim):
        super().__init__()
        self.mem_dim = mem_dim
        self.W = nn.Linear(in_dim, 4 * mem_dim)
        self.U_iou = nn.ModuleList(nn.Linear(mem_dim, 3 * mem_dim, bias=False) for _ in range(n))
        self.U_f = nn.ModuleList(nn.ModuleList(nn.Linear(mem_dim, mem_dim, bias=False) for _ in range(n)) for _ in range(n))

    def forward(self, x, children):
        *iou, f_x = self.W(x).split(self.mem_dim)
        iou = torch.cat(iou)
        for k, (h, _) in enumerate(children):
            iou = iou + self.U_iou[k](h)
        i, o, u = iou.chunk(3)
        c = i.sigmoid() * u.tanh()
        for k, (_, c_k) in enumerate(children):
            f = f_x
            for l, (h_l, _) in enumerate(children):
                f = f + self.U_f[k][l](h_l)
            c = c + torch.sigmoid(f) * c_k
        return o.sigmoid() * torch.tanh(c), c


torch.manual_seed(0)
child_sum = ChildSumTreeLSTM(IN, MEM).eval()
classifier = nn.Sequential(nn.Linear(MEM, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3), nn.LogSoftmax(dim=-1)).eval()
nary, words = NaryCell(3, IN, MEM).eval(), nn.Embedding(VOCAB, IN)


@dietcode.program
def sentiment(tree):
    c, h = child_sum(tree)
    scores = classifier(h.squeeze(0))
    return scores, int(scores.argmax()), len(tree), tree.depth()


@dietcode.program
def constituency(node):
    def visit(node):
        if isinstance(node, int):
            return nary(words(torch.tensor(node)), [])
        label, *children = node
        return nary(words.weight[label], [visit(child) for child in children])

    h, c = visit(node)
    return h


def random_tree(r, n):
    nodes = [Tree(r.randrange(VOCAB)) for _ in range(n)]
    for k in range(1, n):
        nodes[r.randrange(k)].add_child(nodes[k])
    return nodes[0]


def trees(seed, sizes):
    r = random.Random(seed)
    return [random_tree(r, n) for n in sizes]


def nested(seed, depths):
    r = random.Random(seed)

    def make(depth):
        if depth == 0 or r.random() < 0.2:
            return r.randrange(VOCAB)
        return [r.randrange(VOCAB), *(make(depth - 1) for _ in range(r.randint(1, 3)))]

    return [make(d) for d in depths]


PROGRAMS = [
    (sentiment, lambda: trees(0, [1, 2, 4, 7, 9]), lambda: trees(5, [3, 12, 1])),
    (constituency, lambda: nested(0, [0, 1, 2, 3, 3, 2]), lambda: nested(9, [4, 2])),
]
