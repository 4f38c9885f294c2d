"""A particle filter with neural proposal and likelihood, and simulated annealing over a network's energy; numpy generators by seed."""
import math
import random

import numpy as np
import torch
import torch.nn as nn

import dietcode

S, O = 6, 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.move = nn.Sequential(nn.Linear(S, 16), nn.Tanh(), nn.Linear(16, S))
        self.emit = nn.Linear(S, O)
        self.energy_net = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 1))

    def log_likelihood(self, particle, y):
        return -0.5 * ((self.emit(particle) - y) ** 2).sum()

    def energy(self, spins):
        return self.energy_net(torch.tensor(spins, dtype=torch.float32)).item()


torch.manual_seed(0)
model = Model().eval()


def systematic(weights, rng):
    n = len(weights)
    positions = (np.arange(n) + rng.random()) / n
    return np.minimum(np.searchsorted(np.cumsum(weights), positions), n - 1)


@dietcode.program
def track(observations, seed, n=5):
    rng = np.random.default_rng(seed)
    particles = [torch.from_numpy(rng.standard_normal(S).astype("float32")) for _ in range(n)]
    logw, resampled, evidence = np.zeros(n), 0, 0.0
    for y in observations:
        noise = 0.1 * rng.standard_normal((n, S)).astype(np.float32)
        particles = [p + model.move(p) + torch.as_tensor(e) for p, e in zip(particles, noise)]
        logw += np.array([model.log_likelihood(p, y).item() for p in particles])
        peak = logw.max()
        w = np.exp(logw - peak)
        evidence += peak + math.log(w.mean())
        w /= w.sum()
        logw = np.log(w + 1e-12) + math.log(n)
        if 1 / (w ** 2).sum() < n / 2:
            particles = [particles[i].clone() for i in systematic(w, rng)]
            logw[:] = 0
            resampled += 1
    w = np.exp(logw - logw.max())
    w /= w.sum()
    mean = sum(float(a) * p for a, p in zip(w, particles))
    return mean, resampled, evidence


@dietcode.program
def anneal(start, seed, steps=15):
    """Flips that raise the energy are taken by chance, as `random.Random` has it."""
    rng, spins = random.Random(seed), list(start)
    current = best = model.energy(spins)
    best_spins, accepted, T = spins[:], 0, 1.0
    for _ in range(steps):
        at = rng.randrange(len(spins))
        spins[at] = -spins[at]
        new = model.energy(spins)
        if new < current or rng.random() < math.exp((current - new) / T):
            current = new
            accepted += 1
            if current < best:
                best, best_spins = current, list(spins)
        else:
            spins[at] *= -1
        T *= 0.9
    return "".join("+" if s > 0 else "-" for s in best_spins), best, accepted


def series(seed, lengths):
    g = torch.Generator().manual_seed(seed)
    return [([torch.randn(O, generator=g) for _ in range(n)], 10 * seed + k) for k, n in enumerate(lengths)]


def starts(seed, n):
    r = random.Random(seed)
    return [([r.choice((-1, 1)) for _ in range(8)], r.randrange(100)) for _ in range(n)]


PROGRAMS = [
    (track, lambda: series(0, [1, 2, 4]), lambda: [*series(1, [6, 0]), (*series(2, [3])[0], 8)]),
    (anneal, lambda: starts(3, 5), lambda: [*starts(4, 3), (*starts(5, 1)[0], 40), (*starts(6, 1)[0], 0)]),
]
