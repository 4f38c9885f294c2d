"""Programs that call programs, threads, asyncio, map and concurrent of dietcode, and code that is made at run time."""
import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import torch
from torch import nn

import dietcode

D = 8
torch.manual_seed(0)
embedding, cell, merge = nn.Embedding(10, D).eval(), nn.GRUCell(D, D).eval(), nn.Linear(2 * D, D).eval()
score = nn.Linear(D, 1).eval()
local = threading.local()


@dietcode.program
def encode(words):
    h = torch.zeros(D)
    for w in words:
        h = cell(embedding(torch.tensor(w)), h)
        if score(h).item() > 0.6:
            break
    return h


@dietcode.program
def document(sentences):
    """Calls a program as a function."""
    states = [encode(s) for s in sentences]
    best = max(range(len(states)), key=lambda k: score(states[k]).item())
    h = states[best]
    for s in states:
        h = torch.tanh(merge(torch.cat([h, s])))
    return h, best


@dietcode.program
def side_by_side(tree):
    def node(t):
        if isinstance(t, int):
            return embedding(torch.tensor(t)), 1
        if not t:
            raise ValueError("empty")
        if len(t) == 2:
            (a, m), (b, n) = dietcode.concurrent(node(t[0]), node(t[1]))
            h = torch.tanh(merge(torch.cat([a, b])))
            return (h if score(h) > 0 else -h), m + n
        parts = dietcode.map(node, t)
        return max((h for h, _ in parts), key=lambda h: h.sum().item()), sum(n for _, n in parts)

    try:
        return node(tree)
    except ValueError as error:
        return str(error), 0


@dietcode.program
def in_threads(sentences):
    lock, counts = threading.Lock(), []

    first = torch.tanh(merge(torch.cat([embedding.weight[len(sentences)], torch.ones(D)])))

    def work(words):
        with torch.no_grad():
            h = first * 0.5
            for w in words:
                h = cell(embedding(torch.tensor(w)), h)
            with lock:
                counts.append(len(words))
            return h, score(h).item()

    with ThreadPoolExecutor(max_workers=2) as pool:
        found = list(pool.map(work, sentences))
    return [s for _, s in found], sum(h for h, _ in found), sorted(counts)


@dietcode.program
def in_asyncio(sentences):
    async def read(words):
        h = torch.zeros(D)
        for w in words:
            h = cell(embedding(torch.tensor(w)), h)
            await asyncio.sleep(0)
        return h

    async def all_of_them():
        return await asyncio.gather(*(read(s) for s in sentences))

    states = asyncio.run(all_of_them())
    return [int(s.argmax()) for s in states], states


@dietcode.program
def made_at_run_time(rule, x):
    """A rule such as "h * 2 + x if score(h) > 0 else x"."""
    namespace = {"torch": torch, "score": score, "cell": cell, "half": lambda h: h / 2}
    step = eval(f"lambda h, x: {rule}", namespace)
    exec("def repeat(f, h, x, n):\n    for _ in range(n):\n        h = f(h, x)\n    return h", namespace)
    config = SimpleNamespace(**{"n": 3})
    State = type("State", (), {"__init__": lambda self, h: setattr(self, "h", h), "norm": property(lambda self: self.h.norm().item())})
    state = State(namespace["repeat"](step, torch.zeros(D), x, config.n))
    if not hasattr(local, "calls"):
        local.calls = 0
    local.calls += 1
    return state, state.norm, getattr(state, "missing", None)


SENTENCES = [[[1, 2, 3], [4]], [[5]], [[6, 7], [8, 9, 1], [2]], [[3] * 6, [], [4, 4]], [], [[0, 10]]]
TREES = [1, [1, 2], [[1, 2], 3], [[1, [2, 3]], [4, 5]], [1, 2, 3], [[1, 2], [3, 4, 5], 6, [7, 8]], [], [[1, []], 2], [9]]
RULES = ["cell(x, h)", "h * 2 + x if score(h) > 0 else x", "half(h) + torch.tanh(x)", "h @ x", "h[", "torch.where(h > x, h, x)"]


def rules(seed, chosen):
    g = torch.Generator().manual_seed(seed)
    return [(r, torch.randn(D, generator=g)) for r in chosen]


PROGRAMS = [
    (encode, lambda: [s for d in SENTENCES[:4] for s in d], lambda: [[9, 8, 7, 6, 5], [10]]),
    (document, lambda: SENTENCES[:4], lambda: SENTENCES),
    (side_by_side, lambda: TREES[:5], lambda: TREES),
    (in_threads, lambda: SENTENCES[:3], lambda: SENTENCES),
    (in_asyncio, lambda: SENTENCES[:3], lambda: SENTENCES),
    (made_at_run_time, lambda: rules(0, RULES[:3]), lambda: rules(1, RULES)),
]
