"""Adaptive depth: PonderNet-style halting, layer skipping by a policy, early exits in a context manager."""
import contextlib
import logging
import warnings

import torch
import torch.nn as nn

import dietcode

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())
D = 16


class Pondering(nn.Module):
    """Keeps its state on itself while it ponders."""

    def __init__(self, limit=6):
        super().__init__()
        self.rnn = nn.GRUCell(D, D)
        self.lambda_layer = nn.Linear(D, 1)
        self.out = nn.Linear(D, 3)
        self.limit = limit
        self.hidden = None
        self.total_steps = 0

    def forward(self, x):
        self.hidden = x.new_zeros(D)
        p_continue, expected = 1.0, 0.0
        outputs = []
        for n in range(1, self.limit + 1):
            self.hidden = self.rnn(x, self.hidden)
            lam = torch.sigmoid(4 * self.lambda_layer(self.hidden)).item() if n < self.limit else 1.0
            expected += n * p_continue * lam
            p_continue *= 1 - lam
            self.total_steps += 1
            outputs.append(self.out(self.hidden))
            if p_continue < 0.1:
                break
        logger.info("pondered %d steps", n)
        return outputs[-1], n, expected


class SkipNet(nn.Module):
    def __init__(self, depth=5):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, D)) for _ in range(depth))
        self.policies = nn.ModuleList(nn.Linear(D, 1) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(depth))

    def forward(self, x):
        executed = []
        for i, (block, policy, norm) in enumerate(zip(self.blocks, self.policies, self.norms)):
            if policy(x) <= 0:
                continue
            x = norm(x + block(x))
            executed.append(i)
        else:
            executed.append("end")
        return x, executed


class Exit(Exception):
    def __init__(self, result, layer):
        super().__init__(f"left at layer {layer}")
        self.result, self.layer = result, layer


class Budget:
    def __init__(self, units):
        self.units, self.spent = units, 0

    def __enter__(self):
        return self

    def spend(self, units=1):
        self.spent += units
        if self.spent > self.units:
            raise TimeoutError(f"spent {self.spent} of {self.units}")

    def __exit__(self, kind, error, trace):
        self.closed = True
        return kind is TimeoutError


class Classifier(nn.Module):
    def __init__(self, layers=4, classes=3):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(D, D) for _ in range(layers)])
        self.heads = nn.ModuleList([nn.Linear(D, classes) for _ in range(layers)])

    def forward(self, x, confidence=0.55):
        for depth, (layer, head) in enumerate(zip(self.layers, self.heads), start=1):
            x = x + torch.tanh(layer(x))
            probs = (2 * head(x)).softmax(dim=-1)
            if probs.max() > confidence:
                raise Exit(probs, depth)
        return probs


torch.manual_seed(5)
pondering, skipping, classifier = Pondering().eval(), SkipNet().eval(), Classifier().eval()


@contextlib.contextmanager
def exits(log):
    log.append("begin")
    try:
        yield log
    except Exit as e:
        log.append(("exit", e.layer, e.result))
    finally:
        log.append("end")


@dietcode.program
def classify(x):
    with exits([]) as log:
        log.append(("through", classifier(x)))
    return log


@dietcode.program
def within_budget(xs, units=8):
    states = []
    with Budget(units) as budget:
        for x in xs:
            for layer in classifier.layers:
                budget.spend()
                x = torch.relu(layer(x))
                if x.sum() < 1.0:
                    break
            states.append(x)
    with warnings.catch_warnings(), contextlib.suppress(IndexError):
        warnings.simplefilter("ignore")
        return states[1], budget.spent, budget.closed
    return None, budget.spent, budget.closed


def rows(seed, n, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(D, generator=g) for _ in range(n)]


def lists(seed, lengths):
    g = torch.Generator().manual_seed(seed)
    return [[torch.randn(D, generator=g) for _ in range(n)] for n in lengths]


PROGRAMS = [
    (dietcode.program(pondering), lambda: rows(0, 8), lambda: rows(1, 6, 2.0)),
    (dietcode.program(skipping), lambda: rows(2, 8), lambda: rows(3, 6, 2.0)),
    (classify, lambda: rows(4, 8, 0.5), lambda: rows(5, 6)),
    (within_budget, lambda: lists(6, [1, 2, 3, 4]), lambda: [*lists(7, [0, 6]), (lists(8, [2])[0], 1)]),
]
