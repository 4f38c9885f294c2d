"""Mixture of experts per token: top-1 switch routing with capacity, top-2 gating, and a tree of routers."""
from collections import Counter
from typing import List, Optional

import torch
from torch import nn
import torch.nn.functional as F

import dietcode

D, E = 16, 4


class Expert(nn.Module):
    def __init__(self, d, mult):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, mult * d), nn.GELU(), nn.Linear(mult * d, d))

    def forward(self, x):
        return self.net(x)


class SwitchLayer(nn.Module):
    def __init__(self, d=D, n_experts=E, capacity_factor=1.5):
        super().__init__()
        self.router = nn.Linear(d, n_experts)
        self.experts = nn.ModuleList([Expert(d, 1 + k % 2) for k in range(n_experts)])
        self.capacity_factor = capacity_factor
        self.norm = nn.LayerNorm(d)
        self.last_counts: Optional[Counter] = None

    def forward(self, tokens: List[torch.Tensor]):
        capacity = int(self.capacity_factor * len(tokens) / len(self.experts)) + 1
        counts = Counter()
        out, dropped = [], []
        for i, x in enumerate(tokens):
            probs = F.softmax(self.router(x), dim=-1)
            k = probs.argmax().item()
            counts[k] += 1
            if counts[k] > capacity:
                dropped.append(i)
                out.append(x)
                continue
            y = probs[k] * self.experts[k](self.norm(x))
            out.append(x + y)
        return out, counts, dropped


class Top2Layer(nn.Module):
    def __init__(self, d=D, n_experts=E):
        super().__init__()
        self.gate = nn.Linear(d, n_experts, bias=False)
        self.experts = nn.ModuleDict({f"expert_{k}": nn.Linear(d, d) for k in range(n_experts)})

    def forward(self, x):
        values, indices = self.gate(x).topk(2)
        weights = values.softmax(-1)
        result = torch.zeros_like(x)
        for w, k in zip(weights, indices.tolist()):
            result += w * torch.relu(self.experts[f"expert_{k}"](x))
        return result, tuple(indices.tolist())


torch.manual_seed(0)
switch1, switch2, top2 = SwitchLayer().eval(), SwitchLayer(capacity_factor=1.0).eval(), Top2Layer().eval()
leaves = nn.ModuleList(nn.Linear(D, D) for _ in range(4)).eval()
routers = nn.ModuleList(nn.Linear(D, 1) for _ in range(3)).eval()


@dietcode.program
def switch(tokens):
    x, first, dropped1 = switch1(tokens)
    x, second, dropped2 = switch2(x)
    total = first + second
    mean = torch.stack(x).mean(0) if x else None
    return {"mean": mean, "load": [total[k] for k in range(E)], "dropped": (dropped1, dropped2)}


@dietcode.program
def two_of_them(tokens):
    chosen = set()
    for _ in range(2):
        pairs = [top2(x) for x in tokens]
        tokens = [y + x for (y, _), x in zip(pairs, tokens)]
        chosen |= {c for _, c in pairs}
    return tokens, sorted(chosen)


@dietcode.program
def routed_tree(x: torch.Tensor, threshold: float = 0.0):
    node, path = 0, ""
    while node < len(routers):
        goes_right = bool(routers[node](x) > threshold)
        path += "LR"[goes_right]
        node = 2 * node + 1 + goes_right
    return leaves[node - len(routers)](x), path


def tokens(seed, lengths):
    g = torch.Generator().manual_seed(seed)
    return [[torch.randn(D, generator=g) for _ in range(n)] for n in lengths]


PROGRAMS = [
    (switch, lambda: tokens(0, [1, 2, 4, 6, 9]), lambda: tokens(1, [3, 12, 0])),
    (two_of_them, lambda: tokens(2, [1, 2, 4, 6]), lambda: tokens(3, [3, 10, 0])),
    (routed_tree, lambda: tokens(4, [10])[0], lambda: [*tokens(5, [5])[0], *((x, 0.3) for x in tokens(6, [4])[0])]),
]
