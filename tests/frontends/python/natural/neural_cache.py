"""A language model with a continuous cache (Grave et al. 2017), a deque as memory, cache hits by similarity, and an LRU of states."""
from collections import OrderedDict, deque

import torch
import torch.nn as nn

import dietcode

V, H = 15, 14


class LRU(OrderedDict):
    def __init__(self, capacity):
        super().__init__()
        self.capacity, self.hits, self.misses = capacity, 0, 0

    def lookup(self, key, compute):
        try:
            self.move_to_end(key)
        except KeyError:
            self.misses += 1
            self[key] = compute()
            if len(self) > self.capacity:
                self.popitem(last=False)
        else:
            self.hits += 1
        return self[key]


class CacheLM(nn.Module):
    def __init__(self, theta=0.6, lam=0.3):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(V, H), nn.LSTMCell(H, H), nn.Linear(H, V)
        self.theta, self.lam = theta, lam

    def forward(self, tokens, window=4):
        h, c = torch.zeros(H), torch.zeros(H)
        cache = deque(maxlen=window)
        nll, predictions = [], []
        for token, target in zip(tokens, tokens[1:]):
            h, c = self.rnn(self.emb(torch.tensor(token)), (h, c))
            p = torch.softmax(2 * self.out(h), dim=-1)
            if cache:
                keys = torch.stack([k for k, _ in cache])
                weights = torch.softmax(self.theta * keys @ h, dim=0)
                p_cache = torch.zeros(V)
                for w, (_, word) in zip(weights, cache):
                    p_cache[word] += w
                p = (1 - self.lam) * p + self.lam * p_cache
            predictions.append(p.argmax().item())
            nll.append(-p[target].log())
            cache.append((h, target))
        if not nll:
            return None
        return torch.stack(nll).mean().exp().item(), predictions, [w for _, w in cache]


class EpisodicMemory(nn.Module):
    """A slot is overwritten where something similar is stored; read is by nearest key."""

    def __init__(self, slots=4):
        super().__init__()
        self.key, self.value = nn.Linear(H, 6), nn.Linear(H, H)
        self.slots = slots

    def forward(self, items):
        keys, values = torch.zeros(self.slots, 6), torch.zeros(self.slots, H)
        used, age = [False] * self.slots, [0] * self.slots
        log = []
        for t, x in enumerate(items):
            k = nn.functional.normalize(self.key(x), dim=0)
            similarity = keys @ k
            best = int(similarity.argmax())
            if used[best] and similarity[best] > 0.6:
                values[best] = 0.5 * (values[best] + self.value(x))
                slot = best
            else:
                slot = used.index(False) if not all(used) else min(range(self.slots), key=age.__getitem__)
                keys[slot], values[slot] = k, self.value(x)
                used[slot] = True
            age[slot] = t + 1
            log.append(slot)
        return values[torch.tensor(used)], log


torch.manual_seed(3)
lm, episodic = CacheLM().eval(), EpisodicMemory().eval()


@dietcode.program
def prefixes(queries):
    """States of prefixes are reused by later queries."""
    states = LRU(capacity=6)

    def state(prefix):
        if not prefix:
            return torch.zeros(H), torch.zeros(H)
        return states.lookup(prefix, lambda: lm.rnn(lm.emb(torch.tensor(prefix[-1])), state(prefix[:-1])))

    answers = [int(lm.out(state(tuple(q))[0]).argmax()) for q in queries]
    return answers, states.hits, states.misses, list(states)


def tokens(seed, lengths):
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(0, V, (n,), generator=g).tolist() for n in lengths]


def items(seed, lengths):
    g = torch.Generator().manual_seed(seed)
    return [list(torch.randn(n, H, generator=g)) for n in lengths]


PROGRAMS = [
    (dietcode.program(lm), lambda: tokens(0, [2, 3, 6, 8]), lambda: [*tokens(1, [5, 12, 1, 0]), (tokens(2, [7])[0], 1)]),
    (dietcode.program(episodic), lambda: items(3, [1, 3, 6]), lambda: items(4, [5, 9, 0])),
    (prefixes, lambda: [[[1, 2, 3], [1, 2, 4]], [[5]], [[1, 1], [1, 1], [2]]], lambda: [[], [[3, 4, 5, 6, 7, 8, 9], [3, 4], [9]], [[]]]),
]
