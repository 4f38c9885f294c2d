"""Dynamic routing between capsules (Sabour et al. 2017), slot attention until it settles, and k-means with numpy."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import dietcode

IN, OUT, D = 6, 3, 4


def squash(s, dim=-1):
    sq_norm = (s ** 2).sum(dim=dim, keepdim=True)
    return sq_norm / (1 + sq_norm) * s / (sq_norm.sqrt() + 1e-8)


class Capsules(nn.Module):
    def __init__(self):
        super().__init__()
        self.W = nn.Parameter(0.5 * torch.randn(OUT, D, IN))

    def forward(self, inputs, max_iterations=5, tol=0.02):
        u_hat = torch.stack([self.W @ u for u in inputs])            # [n, OUT, D]
        b = torch.zeros(len(inputs), OUT)
        previous = None
        for iteration in range(max_iterations):
            c = F.softmax(b, dim=1)
            s = (c.unsqueeze(2) * u_hat).sum(dim=0)
            v = squash(s)
            b = b + (u_hat * v).sum(-1)
            if previous is not None and (v - previous).abs().max().item() < tol:
                break
            previous = v
        lengths = v.norm(dim=-1)
        winner = lengths.argmax()
        mask = torch.zeros(OUT)
        mask[winner] = 1.0
        return (v * mask[:, None]).flatten(), lengths, iteration


class SlotAttention(nn.Module):
    def __init__(self, slots=3):
        super().__init__()
        self.mu = nn.Parameter(torch.randn(slots, IN))
        self.to_q, self.to_k, self.to_v = (nn.Linear(IN, IN, bias=False) for _ in "qkv")
        self.gru = nn.GRUCell(IN, IN)
        self.norm = nn.LayerNorm(IN)

    def forward(self, inputs, iters=3):
        k, v = self.to_k(inputs), self.to_v(inputs)
        slots = self.mu
        for _ in range(iters):
            previous = slots
            attn = (self.to_q(self.norm(slots)) @ k.T * IN ** -0.5).softmax(dim=0) + 1e-8
            attn /= attn.sum(dim=-1, keepdim=True)
            slots = self.gru(attn @ v, previous)
        assignment = attn.argmax(0)
        return slots, assignment, torch.bincount(assignment, minlength=len(slots))


torch.manual_seed(0)
capsules, slots, embed = Capsules().eval(), SlotAttention().eval(), nn.Linear(IN, 2).eval()


@dietcode.program
def clusters(points, k=2, rounds=10):
    X = np.stack([embed(p).numpy() for p in points])
    centers = X[np.linspace(0, len(X) - 1, k).astype(int)].copy()
    labels = None
    for round_ in range(rounds):
        distances = ((X[:, None] - centers[None]) ** 2).sum(-1)
        new = distances.argmin(axis=1)
        if labels is not None and (new == labels).all():
            break
        labels = new
        for j in range(k):
            if (labels == j).any():
                centers[j] = X[labels == j].mean(0)
    return {"labels": labels, "centers": torch.from_numpy(centers), "inertia": float(distances.min(1).sum()), "rounds": round_}


def points(seed, sizes):
    g = torch.Generator().manual_seed(seed)
    return [list(torch.randn(n, IN, generator=g)) for n in sizes]


def tensors(seed, sizes):
    return [torch.stack(p) for p in points(seed, sizes)]


PROGRAMS = [
    (dietcode.program(capsules), lambda: points(0, [2, 3, 5, 3]), lambda: [*points(1, [1, 8]), (points(2, [4])[0], 1)]),
    (dietcode.program(slots), lambda: tensors(3, [3, 4, 4]), lambda: [*tensors(4, [1, 9]), (tensors(5, [4])[0], 5)]),
    (clusters, lambda: points(6, [2, 4, 6]), lambda: [*points(7, [3, 12]), (points(8, [9])[0], 3), []]),
]
