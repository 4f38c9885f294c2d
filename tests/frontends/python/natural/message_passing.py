"""Graph neural networks over adjacency lists: gated message passing, attention over neighbours, readout."""
import collections
from typing import Dict, List, NamedTuple, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F

import dietcode

D = 12


class Graph(NamedTuple):
    features: List[torch.Tensor]
    edges: List[Tuple[int, int, str]]


class GraphOutput(NamedTuple):
    readout: torch.Tensor
    nodes: Dict[int, torch.Tensor]
    rounds: int


class GGNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.message = nn.ModuleDict({"child": nn.Linear(D, D), "next": nn.Linear(D, D), "use": nn.Linear(D, D)})
        self.update = nn.GRUCell(D, D)
        self.gate, self.value = nn.Linear(2 * D, 1), nn.Linear(D, D)

    def forward(self, graph, max_rounds=4, tol=0.05):
        incoming = collections.defaultdict(list)
        for src, dst, kind in graph.edges:
            incoming[dst].append((src, kind))
        h = dict(enumerate(graph.features))
        initial = {k: v.clone() for k, v in h.items()}
        for round_ in range(1, max_rounds + 1):
            new = {}
            for node, state in h.items():
                total = torch.zeros(D)
                for src, kind in incoming[node]:
                    total += self.message[kind](h[src])
                new[node] = self.update(total, state)
            delta = max((torch.dist(new[n], h[n]).item() for n in h), default=0.0)
            h = new
            if delta < tol:
                break
        out = torch.zeros(D)
        for n in h:
            out = out + torch.sigmoid(self.gate(torch.cat([h[n], initial[n]]))) * torch.tanh(self.value(h[n]))
        return GraphOutput(out, h, round_)


class GAT(nn.Module):
    def __init__(self, heads=2):
        super().__init__()
        self.proj = nn.ModuleList(nn.Linear(D, D, bias=False) for _ in range(heads))
        self.a_src = nn.ParameterList(nn.Parameter(torch.randn(D) / 3) for _ in range(heads))
        self.a_dst = nn.ParameterList(nn.Parameter(torch.randn(D) / 3) for _ in range(heads))
        self.out = nn.Linear(heads * D, D)

    def forward(self, graph):
        n = len(graph.features)
        neighbours = {i: {i} for i in range(n)}
        for a, b, _ in graph.edges:
            neighbours[a].add(b)
            neighbours[b].add(a)
        heads = []
        for proj, a_src, a_dst in zip(self.proj, self.a_src, self.a_dst):
            z = [proj(x) for x in graph.features]
            rows = []
            for i in range(n):
                js = sorted(neighbours[i])
                e = torch.stack([F.leaky_relu(a_src @ z[i] + a_dst @ z[j], 0.2) for j in js])
                alpha = e.softmax(0)
                rows.append(sum(alpha[k] * z[j] for k, j in enumerate(js)))
            heads.append(rows)
        return [F.elu(self.out(torch.cat(parts))) for parts in zip(*heads)]


torch.manual_seed(2)
ggnn, gat = GGNN().eval(), GAT().eval()
propagate, attend = dietcode.program(ggnn), dietcode.program(gat)


def graphs(seed, sizes):
    g = torch.Generator().manual_seed(seed)
    out = []
    for n in sizes:
        m = 0 if n < 2 else int(torch.randint(1, 2 * n, (), generator=g))
        ends = torch.randint(0, max(n, 1), (m, 3), generator=g).tolist()
        kinds = ("child", "next", "use")
        out.append(Graph([torch.randn(D, generator=g) for _ in range(n)], [(a, b, kinds[c % 3]) for a, b, c in ends]))
    return out


PROGRAMS = [
    (propagate, lambda: graphs(0, [1, 2, 3, 5, 6]), lambda: graphs(1, [4, 8])),
    (attend, lambda: graphs(2, [1, 2, 4, 5]), lambda: graphs(3, [3, 7])),
]
