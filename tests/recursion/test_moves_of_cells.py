"""Cells that no single kernel computes, beside PyTorch: moves of elements, truth values, broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cell_graphs import H, X, assert_close, recursion_of
from graph_runs import torch
from recursion_runs import random_structure, run_plan

from dietcode.recursion.exporting import export_cells
from dietcode.recursion.module import ChildSum
from dietcode.recursion.planning import plan_recursion

F = torch.nn.functional
MAX = 3


def _attention(m: Any, x: Any, h: Any) -> Any:
    scores = (F.linear(h, m.w) @ F.linear(x, m.u)).masked_fill((h == 0).all(1), -1e9)
    return torch.tanh(F.softmax(scores, 0) @ h + F.linear(x, m.u))


def _heads(m: Any, x: Any, h: Any) -> Any:
    query = F.linear(x, m.u).reshape(2, 1, 4)
    keys, values = (F.linear(h, w).reshape(MAX, 2, 4).transpose(0, 1) for w in (m.w, m.w.T))
    return torch.tanh(F.scaled_dot_product_attention(query, keys, values).reshape(H) + m.u @ x)


def _normed_gates(m: Any, x: Any, h: Any) -> Any:
    i, o = F.layer_norm(torch.cat([F.linear(x, m.u), F.linear(h.sum(0), m.w)]), (2 * H,)).chunk(2)
    return torch.sigmoid(i) * torch.tanh(o)


# Of x [6] and the states of all children, h [3, 8], of a module with weights w [8, 8], v [8], u [8, 6].
SUMS: dict[str, Callable[..., Any]] = {
    "attention, absent children masked": _attention,
    "attention with heads": _heads,
    "gates of a norm": _normed_gates,
    "no child, another product": lambda m, x, h: torch.where(
        (h != 0).any(), torch.tanh(F.linear(h.sum(0), m.w)), F.linear(x, m.u)
    ),
    "mean of those that are there": lambda m, x, h: torch.relu(
        F.linear(h.sum(0) / (h.abs().sum(1, keepdim=True) > 0).float().sum(0).clamp(min=1), m.w) + m.u @ x
    ),
    "sums of children before": lambda m, x, h: torch.tanh((h.cumsum(0) * m.w[:MAX]).sum(0) + m.u @ x),
    "children backwards": lambda m, x, h: torch.tanh((h.flip(0) * m.w[:MAX]).sum(0) + m.u @ x),
    "logsumexp": lambda m, x, h: torch.tanh(torch.logsumexp(F.linear(h, m.w), 0) + m.u @ x),
    "the child of the largest score": lambda m, x, h: torch.tanh(
        (F.one_hot((h @ m.v).argmax(), MAX)[:, None] * h).sum(0) + m.u @ x
    ),
    "weights of each, stacked": lambda m, x, h: torch.tanh(
        torch.stack([F.linear(h[k], m.w) * (k + 1) for k in range(MAX)]).amin(0) + m.u @ x
    ),
}
# Of x and the states of two children.
PAIRS: dict[str, Callable[..., Any]] = {
    "chosen by elements": lambda m, x, a, b: torch.where(a <= b - 0.1, F.linear(a, m.w), m.u @ x - b),
    "masks of truth values": lambda m, x, a, b: (
        m.u @ x + a * ((a > 0) & ~(b > 0)).float() - b * ((a == b) | (b != a)).float() + torch.sign(b)
    ),
    "hidden by infinity": lambda m, x, a, b: F.softmax((m.u @ x + a).masked_fill(b > 0.5, -torch.inf), 0),
    "outer product": lambda m, x, a, b: torch.tanh(
        F.linear(torch.outer(a, F.linear(b, m.w) + m.v)[:4].flatten()[:H], m.w) + m.u @ x
    ),
    "bilinear": lambda m, x, a, b: torch.tanh(
        F.bilinear(a, b, m.w.reshape(1, H, H) * m.v.reshape(H, 1, 1), m.v) + m.u @ x
    ),
    "logarithms": lambda m, x, a, b: F.softplus(m.u @ x + a) + F.logsigmoid(b) + F.log_softmax(a - b, 0),
    "waves": lambda m, x, a, b: torch.sin(F.linear(a + b, m.w)) * torch.cos(3 * (m.u @ x)) + 0.1 * m.v,
    "rounded": lambda m, x, a, b: (
        torch.round(4 * (m.u @ x + a)) / 4 + torch.floor(b) - torch.ceil(a) + (3 * a) // 2 - (5 * b) % 2
    ),
    "rows of a table at computed places": lambda m, x, a, b: torch.tanh(
        F.embedding((m.u @ x + a).argmin(), m.w) + F.embedding((7 * torch.sigmoid(x[:2])).long(), m.w).sum(0)
    ),
    "a convolution": lambda m, x, a, b: torch.tanh(
        F.conv1d(torch.stack([a, b])[None], m.w[:3, :6].reshape(3, 2, 3), m.v[:3], 1, 1)[0].sum(0) + m.u @ x
    ),
    "a convolution of groups, with steps": lambda m, x, a, b: torch.tanh(
        F.conv2d(
            torch.stack([a, b]).reshape(1, 4, 2, 2), m.w[:4, :4].reshape(4, 1, 2, 2), None, (1, 2), 1, 1, 4
        ).flatten()[:H]
        + m.u @ x
    ),
    "sums along a row": lambda m, x, a, b: torch.tanh(a + m.v).cumsum(0) + b.flip(0),
    "a turned state": lambda m, x, a, b: torch.tanh(F.linear(a, m.w) + m.u @ x).roll(3) + b.roll(-1, 0),
    "concatenated state": lambda m, x, a, b: torch.cat([torch.tanh(F.linear(a, m.w[:3]) + x[:3]), b[3:] * 2]),
    "parts of the input": lambda m, x, a, b: torch.tanh(
        a * x[0] + b * x[1] + F.pad(x[2:], (1, 3), value=0.5)
    ),
    "inner axes": lambda m, x, a, b: torch.tanh(
        (torch.outer(a, m.v) + torch.outer(m.v, b)).max(0).values
        + F.softmax(torch.outer(a, b), 0)[2]
        + m.u @ x
    ),
    "powers and products": lambda m, x, a, b: torch.tanh(a**3 + (b**2 + 1) ** -0.5 + (m.u @ x)[:4].prod()),
    "a norm of length one": lambda m, x, a, b: F.normalize(F.linear(a, m.w) + m.u @ x + b, dim=0),
}


def _assert_as_eager(recursion: Any, is_dag: bool = False) -> None:
    cells, weights = export_cells(recursion, "cell")
    plan = plan_recursion(cells, 100, 30, {})
    structure = random_structure(4, 24, recursion.children, is_dag)
    x = np.random.default_rng(1).standard_normal((24, X)).astype(np.float32)
    wanted = recursion(structure, x, all_nodes=True)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    assert all(float(one.abs().max()) > 0 for one in wanted)
    assert_close(run_plan(plan, weights, structure, x), [one.numpy() for one in wanted])


@pytest.mark.sampled(keep=5)
@pytest.mark.parametrize("name", SUMS)
def test_cells_of_all_children(name: str) -> None:
    _assert_as_eager(recursion_of(SUMS[name], ChildSum(MAX)), is_dag=True)


@pytest.mark.thorough
@pytest.mark.sampled(keep=9)
@pytest.mark.parametrize("name", PAIRS)
def test_cells_of_two_children(name: str) -> None:
    _assert_as_eager(recursion_of(PAIRS[name]))


def test_states_of_all_shapes() -> None:
    def cell(m: Any, x: Any, h: Any, matrix: Any, total: Any, depth: Any) -> tuple[Any, ...]:
        own = torch.tanh(F.linear(h.sum(0), m.w) + F.linear(x, m.u))
        matrix = torch.outer(own[:4], own) + matrix.sum(0)
        return own, matrix, total.sum(0) + x[0], depth.max(0).values + 1

    _assert_as_eager(recursion_of(cell, ChildSum(2), [(H,), (4, H), (), (1,)]))
