"""Neural ODEs with adaptive steps (Dormand-Prince as in torchdiffeq, here Bogacki-Shampine), ODE-RNN over irregular times, DEQ by Anderson."""
import bisect
import math
from typing import NamedTuple

import torch
import torch.nn as nn

import dietcode

D = 8


class Stats(NamedTuple):
    accepted: int
    rejected: int
    evaluations: int


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(D + 1, 16), nn.Tanh(), nn.Linear(16, D))
        self.nfe = 0

    def forward(self, t, y):
        self.nfe += 1
        return self.net(torch.cat([y, torch.tensor([t])]))


class StepTooSmall(ArithmeticError):
    pass


def odeint(func, y, t0, t1, rtol=0.02, atol=0.02, h=0.5, max_steps=60):
    t, accepted, rejected, evaluations = t0, 0, 0, 1
    k1 = func(t, y)
    while t < t1:
        h = min(h, t1 - t)
        if h < 1e-6 and t1 - t > 1e-6:
            raise StepTooSmall(f"at {t:.3f}")
        k2 = func(t + h / 2, y + h / 2 * k1)
        k3 = func(t + 3 * h / 4, y + 3 * h / 4 * k2)
        new = y + h * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
        k4 = func(t + h, new)
        evaluations += 3
        error = h * (-5 / 72 * k1 + 1 / 12 * k2 + 1 / 9 * k3 - 1 / 8 * k4)
        tolerance = atol + rtol * torch.maximum(y.abs(), new.abs())
        ratio = (error / tolerance).pow(2).mean().sqrt().item()
        if ratio <= 1:
            t, y, k1 = t + h, new, k4
            accepted += 1
        else:
            rejected += 1
        h *= min(5.0, max(0.2, 0.9 * (1 / ratio) ** (1 / 3))) if ratio > 0 else 5.0
        if accepted + rejected >= max_steps:
            raise StepTooSmall(f"{max_steps} steps")
    return y, Stats(accepted, rejected, evaluations)


class ODERNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.func, self.cell, self.out = ODEFunc(), nn.GRUCell(3, D), nn.Linear(D, 1)

    def forward(self, events, queries=()):
        """Events are (time, value) in any order; answers queries by the state at the last event before."""
        h, now, total = torch.zeros(D), 0.0, Stats(0, 0, 0)
        times, states = [], []
        for time, value in sorted(events, key=lambda e: e[0]):
            if time > now:
                h, stats = odeint(self.func, h, now, time)
                total = Stats(*map(sum, zip(total, stats)))
            h = self.cell(value, h)
            now = time
            times.append(time)
            states.append(h)
        answers = []
        for q in queries:
            at = bisect.bisect_right(times, q) - 1
            if at < 0:
                answers.append(math.nan)
            else:
                answers.append(self.out(states[at]).item())
        return h, total, answers


class DEQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.W, self.U = nn.Linear(D, D), nn.Linear(D, D, bias=False)
        with torch.no_grad():
            self.W.weight *= 0.7

    def forward(self, x, m=3, tol=1e-3, max_iter=25):
        inject = self.U(x)
        f = lambda z: torch.tanh(self.W(z) + inject)
        X, FX = [torch.zeros(D)], []
        FX.append(f(X[0]))
        X.append(FX[0])
        FX.append(f(X[1]))
        for k in range(2, max_iter):
            n = min(k, m)
            G = torch.stack([fx - z for fx, z in zip(FX[-n:], X[-n:])])
            H = torch.zeros(n + 1, n + 1)
            H[0, 1:] = H[1:, 0] = 1
            H[1:, 1:] = G @ G.T + 1e-4 * torch.eye(n)
            y = torch.zeros(n + 1, 1)
            y[0] = 1
            alpha = torch.linalg.solve(H, y)[1:, 0]
            X.append(alpha @ torch.stack(FX[-n:]))
            FX.append(f(X[-1]))
            residual = (FX[-1] - X[-1]).norm().item() / (1e-5 + FX[-1].norm().item())
            if residual < tol:
                break
        return X[-1], k < max_iter - 1


torch.manual_seed(0)
ode_rnn, deq = ODERNN().eval(), DEQ().eval()


@dietcode.program
def trajectory(y0, span=(0.0, 2.0), scale=1.0):
    func = (lambda t, y: scale * ode_rnn.func(t, y)) if scale != 1.0 else ode_rnn.func
    y, stats = odeint(func, y0, *span)
    return y, stats, stats.accepted > stats.rejected


def rows(seed, n, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(D, generator=g) for _ in range(n)]


def events(seed, lengths):
    g = torch.Generator().manual_seed(seed)
    return [([(round(3 * torch.rand((), generator=g).item(), 3), torch.randn(3, generator=g)) for _ in range(n)], (0.5, 1.5, 5.0)) for n in lengths]


PROGRAMS = [
    (trajectory, lambda: rows(0, 5, 2.0), lambda: [*rows(1, 2), *((y, (0.0, 1.0), 9.0) for y in rows(2, 2)), (rows(3, 1)[0], (1.0, 0.0)), (rows(4, 1)[0], (0.0, 2.0), 1e6)]),
    (dietcode.program(ode_rnn), lambda: events(5, [1, 2, 4]), lambda: events(6, [3, 7, 0])),
    (dietcode.program(deq), lambda: rows(7, 5), lambda: rows(8, 4, 3.0)),
]
