"""Cells that papers describe: every schedule of them computes what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cell_graphs import assert_close
from graph_runs import torch
from recursion_runs import random_structure, run_plan
from test_taken_apart import Parts

from dietcode.recursion.exporting import export_cells
from dietcode.recursion.module import ChildSum, Recursion
from dietcode.recursion.planning import plan_recursion, schedules_of

nn, F = torch.nn, torch.nn.functional
H, X, NODES = 33, 7, 37


def _peephole(m: Any, x: Any, h: Any, c: Any) -> Any:
    i, f, u, o = (m.w(x) + m.u(h)).chunk(4)
    cell = torch.sigmoid(f + m.p * c) * c + torch.sigmoid(i + m.q * c) * torch.tanh(u)
    return torch.sigmoid(o + m.r * cell) * torch.tanh(cell), cell


def _gated_by_weights_of_inputs(m: Any, x: Any, h: Any, c: Any) -> Any:
    """A multiplicative LSTM."""
    i, f, o, u = (m.w(x) + m.u(m.p(x) * m.q(h))).chunk(4)
    cell = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def _norms_of_gates(m: Any, x: Any, h: Any, c: Any) -> Any:
    i, f, o, u = (m.p(m.w(x)) + m.q(m.u(h))).chunk(4)
    cell = m.r(torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u))
    return torch.sigmoid(o) * torch.tanh(cell), cell


def _gates_of_children(m: Any, x: Any, left: Any, right: Any) -> Any:
    rows = torch.cat([x, left, right])
    z, a, b = torch.sigmoid(m.w(rows)).split(H)
    return z * torch.tanh(m.u(torch.cat([x, a * left, b * right]))) + (1 - z) * (left + right) / 2


def _graph_gru(m: Any, x: Any, h: Any) -> Any:
    given = m.p(h).sum(0) + m.q(h).mean(0)
    z, r = torch.sigmoid(m.w(torch.cat([given, x]))).chunk(2)
    return (1 - z) * x + z * torch.tanh(m.u(given) + m.r(r * x))


def _masked_attention(m: Any, x: Any, h: Any) -> Any:
    query = m.p(x)
    scores = (m.q(h) * query).sum(-1) / H**0.5
    scores = scores.masked_fill(h.abs().sum(-1) == 0, -1e9)
    return torch.tanh(m.u(torch.softmax(scores, 0) @ m.r(h)))


def _graph_attention(m: Any, x: Any, h: Any) -> Any:
    rows, own = m.u(h), m.w(x)
    scores = torch.softmax(F.leaky_relu(m.p(rows).squeeze(-1) + m.q(own), 0.2), 0)
    return F.elu((scores[:, None] * rows).sum(0) + own)


def _errors_that_add_up(m: Any, a: Any, e: Any, b: Any, d: Any) -> Any:
    """A recursive autoencoder."""
    both = torch.cat([a, b])
    y = torch.tanh(m.w(both))
    y = y / (y.norm() + 1e-6)
    return y, e + d + ((m.u(y) - both) ** 2).sum()


def _matrix_memory(m: Any, x: Any, c: Any, n: Any, most: Any) -> Any:
    """The mLSTM of xLSTM."""
    query, key, value = m.w(x).chunk(3)
    i, f = m.u(x)[0], F.logsigmoid(m.u(x)[1])
    high = torch.maximum(f + most, i)
    enter, keep = torch.exp(i - high), torch.exp(f + most - high)
    return keep * c + enter * torch.outer(value, key), keep * n + enter * (key + query), high


def _stack(m: Any, x: Any, h: Any, s: Any) -> Any:
    h = torch.tanh(m.w(x) + m.u(h) + m.p(s[0]))
    a = torch.softmax(m.q(h), 0)
    push = torch.cat([torch.sigmoid(m.r(h))[None], s[:-1]])
    return h, a[0] * push + a[1] * torch.cat([s[1:], torch.zeros(1, 5)]) + a[2] * s


def _linear(**shapes: tuple[int, int]) -> Callable[[], dict[str, Any]]:
    return lambda: {name: nn.Linear(*shape) for name, shape in shapes.items()}


def _of_lstm(make: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    return lambda: _linear(w=(X, 4 * H), u=(H, 4 * H))() | make()


def _weight() -> Any:
    return nn.Parameter(torch.randn(H) / 2)


# A cell, its layers, its children, states and x.
CELLS: dict[str, tuple[Any, Callable[[], dict[str, Any]], Any, list[Any], Any]] = {
    "an LSTM with peepholes": (
        _peephole,
        _of_lstm(lambda: {name: _weight() for name in "pqr"}),
        *(1, [(H,)] * 2, (X,)),
    ),
    "a multiplicative LSTM": (
        _gated_by_weights_of_inputs,
        _of_lstm(_linear(p=(X, H), q=(H, H))),
        *(1, [(H,)] * 2, (X,)),
    ),
    "an LSTM with norms of gates": (
        _norms_of_gates,
        _of_lstm(lambda: {"p": nn.LayerNorm(4 * H), "q": nn.LayerNorm(4 * H), "r": nn.LayerNorm(H)}),
        *(1, [(H,)] * 2, (X,)),
    ),
    "a tree GRU of two children": (
        _gates_of_children,
        _linear(w=(X + 2 * H, 3 * H), u=(X + 2 * H, H)),
        *(2, [(H,)], (X,)),
    ),
    "a GRU of a graph": (
        _graph_gru,
        _linear(p=(H, H), q=(H, H), w=(2 * H, 2 * H), u=(H, H), r=(H, H)),
        *(ChildSum(5), [(H,)], (H,)),
    ),
    "attention over children that are there": (
        _masked_attention,
        _linear(p=(X, H), q=(H, H), r=(H, H), u=(H, H)),
        *(ChildSum(4), [(H,)], (X,)),
    ),
    "attention of a graph": (
        _graph_attention,
        _linear(u=(H, H), w=(X, H), p=(H, 1), q=(H, 1)),
        *(ChildSum(4), [(H,)], (X,)),
    ),
    "a recursive autoencoder": (
        _errors_that_add_up,
        _linear(w=(2 * H, H), u=(H, 2 * H)),
        *(2, [(H,), ()], None),
    ),
    "a memory that is a matrix": (
        _matrix_memory,
        _linear(w=(X, 15), u=(X, 2)),
        *(1, [(5, 5), (5,), ()], (X,)),
    ),
    "one element, of which rows are sums": (
        lambda m, x, h: torch.tanh(m.w(x) + m.p(h @ m.u(h.reshape(-1)))),
        _linear(w=(X, 1), u=(3, 1), p=(3, 1)),
        *(ChildSum(3), [(1,)], (X,)),
    ),
    "a stack": (
        _stack,
        _linear(w=(X, H), u=(H, H), p=(5, H), q=(H, 3), r=(H, 5)),
        *(1, [(H,), (6, 5)], (X,)),
    ),
}


@pytest.mark.sampled(keep=6)
@pytest.mark.parametrize("name", CELLS)
def test_every_schedule_is_as_eager(name: str) -> None:
    function, layers, children, states, x = CELLS[name]
    torch.manual_seed(1)
    recursion = Recursion(Parts(function, **layers()).eval(), children=children, states=states, x=x)
    cells, weights = export_cells(recursion, "cell")
    structure = random_structure(3, NODES, recursion.children, is_dag=recursion.is_sum)
    own = None
    if x is not None:
        own = np.random.default_rng(3).standard_normal((NODES, *x)).astype(np.float32)
    wanted = recursion(structure, own, all_nodes=True)
    rights = [one.detach().numpy() for one in (wanted if isinstance(wanted, tuple) else (wanted,))]
    for schedule in schedules_of(cells, 64, 32):
        found = run_plan(plan_recursion(cells, 64, 32, {}, schedule=schedule), weights, structure, own)
        assert_close(found[: len(rights)], rights, schedule.label)
