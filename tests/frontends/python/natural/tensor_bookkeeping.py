"""Bookkeeping around tensors: aliases, views, in-place changes, identity, copies, masks, numpy in and out, generators that are resumed."""
import copy
import io
import pickle
import types
import weakref
from collections import Counter, defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import dietcode

D = 6
torch.manual_seed(0)
lin, gate, cell = nn.Linear(D, D).eval(), nn.Linear(D, 1).eval(), nn.GRUCell(D, D).eval()
bn = nn.BatchNorm1d(D).eval()
table = nn.Embedding(9, D)
bias = torch.linspace(-1, 1, D)


@dietcode.program
def aliases(xs):
    """`acc` is in a list and a dict while it changes; earlier results have been computed from it."""
    acc = torch.zeros(D)
    history, same, snapshots = [acc], {"acc": acc}, []
    for x in xs:
        y = torch.tanh(lin(x) + acc)
        acc += y
        snapshots.append(acc.clone())
        if gate(acc) > 0.3:
            acc *= 0.5
            acc[0] = 1.0
    kept = lin(acc)
    acc.zero_()
    return kept, history[0], same["acc"] is acc, snapshots, acc


@dietcode.program
def views(x):
    h = torch.relu(lin(x))
    first, rest = h[:2], h[2:]
    rows = h.view(2, 3)
    before = h.sum()
    first += 1
    after = h.sum()
    rows[1].mul_(2)
    rest[-1] = -1.0
    u = h.unbind()
    h.clamp_(max=1.5)
    flipped = rows.t().contiguous()
    rows[0, 0] = 9.0
    return h, first, before, after, torch.stack(u), flipped, float(after - before)


@dietcode.program
def instance_changed(x, y):
    z = x + y
    x += 1
    w = x + y
    y.copy_(x)
    y[y < 0] = 0
    return z, w, x, y, lin(y)


@dietcode.program
def masks(xs, limit=2):
    n = len(xs)
    keys = torch.stack([lin(x) for x in xs])
    used = torch.zeros(n, dtype=torch.bool)
    counts = torch.zeros(n, dtype=torch.long)
    order = []
    query = xs[0]
    while not bool(used.all()) and len(order) < 2 * n:
        scores = (keys @ query).masked_fill(used, -1e9)
        i = int(scores.argmax())
        counts[i] += 1
        order.append(i)
        if counts[i] >= limit or i % 2:
            used[i] = True
        query = torch.where(used.any(), xs[i], query) + bias
    return order, counts, used, counts.sum().item(), torch.nonzero(used).flatten().tolist()


@dietcode.program
def identity(xs):
    states = [torch.sigmoid(lin(x)) for x in xs]
    seen = {id(s): k for k, s in enumerate(states)}
    best = max(states, key=lambda s: float(s.sum()))
    refs = [weakref.ref(s) for s in states]
    chosen = [s is best for s in states]
    groups = defaultdict(list)
    for s in [*states, best]:
        groups[s].append(seen[id(s)])
    kinds = Counter(type(s).__name__ for s in states)
    return chosen, sorted(groups.values()), kinds, all(r() is s for r, s in zip(refs, states)), isinstance(best, torch.Tensor), torch.is_tensor(best)


@dietcode.program
def copies(x):
    h = lin(x)
    both = {"h": h, "again": [h, h]}
    deep, shallow = copy.deepcopy(both), copy.copy(both)
    deep["h"].add_(1)
    buffer = io.BytesIO()
    torch.save(h, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer)
    again = pickle.loads(pickle.dumps(h))
    h.mul_(2)
    return deep, shallow, loaded, again, deep["again"][0] is deep["h"]


@dietcode.program
def numpy_shared(x):
    h = torch.tanh(lin(x))
    a = h.numpy()
    a[0] = 5.0
    b = np.asarray(h)
    c = torch.from_numpy(a * 2).float()
    h[1] = -5.0
    rounded = np.round(h.detach().cpu().numpy().astype(np.float64), 3)
    return h, a, b.shape, lin(c), float(rounded.sum()), [f"{v:+.2f}" for v in h.tolist()]


@dietcode.program
def questions(x):
    """What is known of a tensor without its value, and with it."""
    h = cell(x, x)
    known = (h.shape, h.size(0), h.dim(), h.ndim, h.dtype, h.device.type, len(h), h.numel(), h.is_floating_point(), h.requires_grad, h.is_contiguous(), h.stride())
    s = h.sum()
    asked = (s.item() > 0, bool(s > 0), int(s * 10), float(s), round(s.item(), 2), f"{s:.2f}", f"{s.item():6.3f}", s > 0 and s < 2, 0 if s else 1)
    compared = (torch.equal(h, h.clone()), torch.allclose(h, x), (h == h).all().item(), h.argmax() == 3, h.eq(x).any().item())
    picked = [v.item() for v in h if v > 0][:2], h[h > 0].shape, h.topk(2).indices.tolist(), range(D)[h.argmin()], "abcdef"[int(h.argmax())]
    return known, asked, compared, picked, divmod(int(h.abs().sum() * 7), 3)


def countdown(start):
    """A coroutine that takes rows and gives states."""
    h, x = start, (yield start)
    while x is not None:
        h = cell(x, h)
        if h.sum() < -1.0:
            return h
        x = yield h


@dietcode.program
def coroutines(xs):
    running = [countdown(torch.zeros(D)), countdown(torch.ones(D))]
    log = []
    for r in running:
        log.append(next(r).sum().item())
    results = {}
    for k, x in enumerate(xs):
        r = running[k % 2]
        if r.gi_frame is None:
            log.append("gone")
            continue
        try:
            log.append(r.send(x).max().item())
        except StopIteration as end:
            results[k] = end.value
    for r in running:
        r.close()
    return log, results, isinstance(running[0], types.GeneratorType)


@dietcode.program
def mixed_dtypes(ids, scale):
    e = table(torch.tensor(ids, dtype=torch.long)) if ids else torch.empty(0, D)
    double = e.double() * scale
    half = e.half().float()
    weights = F.one_hot(torch.tensor([i % 3 for i in ids], dtype=torch.long), 3).float() if ids else torch.zeros(0, 3)
    pooled = weights.t() @ e
    valid = torch.tensor([i > 2 for i in ids], dtype=torch.bool)
    return double.sum(0), half, pooled, e[valid], (valid.sum() / max(1, len(ids))).item(), torch.arange(len(ids)) * 2, bn(e)


@dietcode.program
def gradients(x):
    """A step of descent within a program."""
    with torch.enable_grad():
        z = x.clone().requires_grad_()
        loss = (lin(z) ** 2).sum() + z.abs().sum()
        (g,) = torch.autograd.grad(loss, z)
    with torch.no_grad():
        new = z - 0.1 * g
    return new, loss.detach(), g.norm().item() > 1, torch.is_grad_enabled()


def rows(seed, n, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(D, generator=g) for _ in range(n)]


def lists(seed, lengths):
    g = torch.Generator().manual_seed(seed)
    return [[torch.randn(D, generator=g) for _ in range(n)] for n in lengths]


def pairs(seed, n):
    return list(zip(rows(seed, n), rows(seed + 1, n)))


PROGRAMS = [
    (aliases, lambda: lists(0, [1, 2, 4]), lambda: lists(1, [3, 7, 0])),
    (views, lambda: rows(2, 4), lambda: rows(3, 3, 2.0)),
    (instance_changed, lambda: pairs(4, 4), lambda: pairs(6, 2)),
    (masks, lambda: lists(8, [1, 2, 4]), lambda: [*lists(9, [3, 6, 0]), (lists(10, [4])[0], 1)]),
    (identity, lambda: lists(11, [1, 2, 4]), lambda: lists(12, [3, 0])),
    (copies, lambda: rows(13, 4), lambda: rows(14, 2)),
    (numpy_shared, lambda: rows(15, 4), lambda: rows(16, 2, 3.0)),
    (questions, lambda: rows(17, 6), lambda: rows(18, 4, 2.0)),
    (coroutines, lambda: lists(19, [1, 2, 4]), lambda: lists(20, [3, 9, 0])),
    (mixed_dtypes, lambda: [([1, 2, 3], 2.0), ([4], 0.5), ([8, 8], 1.0)], lambda: [([0, 7, 1, 5], -1.0), ([], 1.0), ([9], 1.0)]),
    (gradients, lambda: rows(21, 4), lambda: rows(22, 2, 3.0)),
]
