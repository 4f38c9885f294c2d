"""Deep Sets, a set transformer and prototypes over sets of any size (also none)."""
import torch
import torch.nn as nn
import torch.nn.functional as F

import dietcode

IN, D = 3, 16


class DeepSet(nn.Module):
    def __init__(self, pool="sum"):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(IN, D), nn.ReLU(), nn.Linear(D, D))
        self.rho = nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, 2))
        self.pool = pool

    def forward(self, items):
        if not items:
            return self.rho(torch.zeros(D))
        encoded = [self.phi(x) for x in items]
        pooled = {
            "sum": lambda xs: sum(xs),
            "mean": lambda xs: torch.stack(xs).mean(0),
            "max": lambda xs: torch.stack(xs).amax(dim=0),
            "lse": lambda xs: torch.logsumexp(torch.stack(xs), dim=0),
        }[self.pool](encoded)
        return self.rho(pooled)


class MAB(nn.Module):
    def __init__(self, d, heads=2):
        super().__init__()
        self.d, self.heads = d, heads
        self.fc_q, self.fc_k, self.fc_v, self.fc_o = (nn.Linear(d, d) for _ in range(4))
        self.ln = nn.LayerNorm(d)

    def forward(self, Q, K):
        Q, K, V = self.fc_q(Q), self.fc_k(K), self.fc_v(K)
        dim_split = self.d // self.heads
        Q_, K_, V_ = (torch.stack(x.split(dim_split, -1)) for x in (Q, K, V))
        A = torch.softmax(Q_.bmm(K_.transpose(1, 2)) / dim_split ** 0.5, -1)
        O = torch.cat((Q_ + A.bmm(V_)).unbind(0), -1)
        return self.ln(O + F.relu(self.fc_o(O)))


class SetTransformer(nn.Module):
    def __init__(self, seeds=2):
        super().__init__()
        self.embed = nn.Linear(IN, D)
        self.blocks = nn.ModuleList([MAB(D), MAB(D)])
        self.S = nn.Parameter(torch.randn(seeds, D))
        self.pma = MAB(D)
        self.out = nn.Linear(seeds * D, 3)

    def forward(self, X):
        X = self.embed(X)
        for block in self.blocks:
            X = block(X, X)
        return self.out(self.pma(self.S, X).flatten())


torch.manual_seed(0)
pools = nn.ModuleDict({p: DeepSet(p) for p in ("sum", "mean", "max", "lse")}).eval()
transformer = SetTransformer().eval()


@dietcode.program
def by_pool(pool, items):
    return pools[pool](items)


@dietcode.program
def attended(points):
    """A tensor [n, 3] whose n differs."""
    out = transformer(points)
    order = points.norm(dim=1).sort().indices
    nearest = points[order[: max(1, len(order) // 2)]]
    return out, transformer(nearest), order.tolist()


@dietcode.program
def prototypes(support, query):
    """Few-shot classification (Snell et al. 2017): support is a dict from label to examples."""
    phi = pools["mean"].phi
    means = {}
    for label in sorted(support):
        means[label] = torch.mean(torch.stack([phi(x) for x in support[label]]), dim=0)
    found = []
    for q in query:
        z = phi(q)
        distances = {label: ((z - m) ** 2).sum().item() for label, m in means.items()}
        found.append(min(distances, key=distances.get))
    return found, means


def items(seed, sizes):
    g = torch.Generator().manual_seed(seed)
    kinds = list(pools)
    return [(kinds[k % 4], [torch.randn(IN, generator=g) for _ in range(n)]) for k, n in enumerate(sizes)]


def clouds(seed, sizes):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(n, IN, generator=g) for n in sizes]


def episodes(seed, ways):
    g = torch.Generator().manual_seed(seed)
    return [({f"c{k}": list(torch.randn(1 + k % 3, IN, generator=g) + k) for k in range(w)}, list(torch.randn(3, IN, generator=g) + 1)) for w in ways]


PROGRAMS = [
    (by_pool, lambda: items(0, [1, 2, 3, 4, 2, 0, 5, 1]), lambda: items(1, [0, 9, 7, 6])),
    (attended, lambda: clouds(2, [2, 3, 5, 3]), lambda: clouds(3, [1, 4, 8])),
    (prototypes, lambda: episodes(4, [2, 3, 4]), lambda: [*episodes(5, [1, 5]), ({}, [torch.ones(IN)])]),
]
