"""Cells of odd sizes, several states, gates over children: what they become computes what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_runs import torch
from recursion_runs import random_structure, run_plan
from test_taken_apart import Parts

from dietcode.errors import ModelError
from dietcode.recursion.exporting import export_cells
from dietcode.recursion.module import ChildSum, Recursion
from dietcode.recursion.planning import plan_recursion, schedules_of

nn, F = torch.nn, torch.nn.functional
A, B, C = 7, 13, 19  # extents that no vector divides
WORDS, NODES = 11, 37


def _max_of_children(m: Any, x: Any, h: Any) -> Any:
    return torch.tanh(m.w(x) + m.u(h.amax(0)))


def _mean_and_max(m: Any, x: Any, h: Any) -> Any:
    return F.gelu(m.w(torch.cat([x, h.mean(0), h.max(dim=0).values])))


def _gated_sum(m: Any, x: Any, h: Any) -> Any:
    return torch.tanh(m.w(x) + (torch.sigmoid(m.g(h) + m.v(x)) * m.u(h)).sum(0))


def _scaled_attention(m: Any, x: Any, h: Any) -> Any:
    scores = (m.k(h) @ m.q(x)) / A**0.5
    return m.n(x + torch.softmax(scores, 0) @ m.v(h))


def _two_heads(m: Any, x: Any, h: Any) -> Any:
    keys, values = m.k(h).reshape(-1, 2, A), m.v(h).reshape(-1, 2, A)
    weights = torch.softmax((keys * m.q(x).reshape(2, A)).sum(-1), 0)
    return torch.tanh(m.o((weights.unsqueeze(-1) * values).sum(0).reshape(2 * A)))


def _three_states(m: Any, x: Any, a: Any, b: Any, n: Any, c: Any, d: Any, k: Any) -> Any:
    both = torch.tanh(m.w(torch.cat([x, a, c])))
    gate = torch.sigmoid(m.g(both))
    return gate * m.u(a) + (1 - gate) * c, torch.relu(m.v(both) + b - d), n + k + 1


def _tensor_network(m: Any, x: Any, a: Any, b: Any) -> Any:
    both = torch.cat([a, b])
    return torch.tanh((both @ m.t.reshape(2 * A, A * 2 * A)).reshape(A, 2 * A) @ both + m.w(both) + m.e(x))


def _low_rank_matrices(m: Any, a: Any, p: Any, b: Any, q: Any) -> Any:
    vector = torch.tanh(m.w(torch.cat([q @ a, p @ b])))
    matrix = (m.l(p) + m.r(q)) * 0.5
    return vector, matrix


def _highway(m: Any, x: Any, a: Any, b: Any) -> Any:
    t = torch.sigmoid(m.g(torch.cat([x, a, b])))
    return t * F.silu(m.w(a) + m.u(b)) + (1 - t) * torch.maximum(a, b)


def _normed_lstm(m: Any, x: Any, h: Any, c: Any) -> Any:
    i, o, u = m.n(m.w(x) + m.u(h.sum(0))).chunk(3)
    f = torch.sigmoid(m.f(x) + m.g(h))
    cell = torch.sigmoid(i) * torch.tanh(u) + (f * c).sum(0)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def _minimal_gru(m: Any, x: Any, h: Any) -> Any:
    f = torch.sigmoid(m.f(torch.cat([x, h])))
    return (1 - f) * h + f * torch.tanh(m.w(torch.cat([x, f * h])))


def _squared(m: Any, x: Any, a: Any, b: Any, c: Any) -> Any:
    return F.normalize(m.w(a) * m.u(b) + m.v(c) ** 2 + m.e(x), dim=-1)


def _counted(m: Any, h: Any, n: Any) -> Any:
    total = n.sum(0) + 1
    return torch.tanh(m.w(h.sum(0) / total)), total


def _experts(m: Any, x: Any, a: Any, b: Any) -> Any:
    weights = torch.softmax(m.g(a + b), -1)
    return weights[0] * torch.tanh(m.w(a)) + weights[1] * torch.tanh(m.u(b)) + weights[2] * m.e(x)


def _wide(m: Any, x: Any, a: Any, b: Any) -> Any:
    return a + b + m.d(F.leaky_relu(m.w(torch.cat([a, b])), 0.1)) * m.e(x)


def _rows_below(m: Any, x: Any, h: Any) -> Any:
    """A word's row above those of the children; leaves have rows of zeros there."""
    rows = torch.cat([m.e(x)[None], h])
    weights = torch.softmax(m.g(rows), 0)
    return torch.tanh((weights * m.w(m.n(rows))).sum(0))


def _delta_rule(m: Any, x: Any, s: Any) -> Any:
    key = F.normalize(m.k(x), dim=-1)
    return s + torch.outer(torch.sigmoid(m.g(x)) * (m.v(x) - s @ key), key)


def _gates_of_heads(m: Any, x: Any, h: Any, c: Any) -> Any:
    i, f, o, u = (m.w(x)[None] + m.u(h)).reshape(-1, 4, 3, A).unbind(1)
    share = torch.softmax(i.mean(-1), 0)
    cell = (torch.sigmoid(f) * c).sum(0) + (share[..., None] * torch.tanh(u)).sum(0)
    return (torch.sigmoid(o).mean(0) * torch.tanh(cell)).reshape(3 * A), cell


def _linear(rows: int, columns: int, bias: bool = True) -> Any:
    return nn.Linear(rows, columns, bias=bias)


# The cell, its layers, children, states, x, and a leaf of its own with none for the cell itself.
CELLS: dict[str, tuple[Any, Callable[[], dict[str, Any]], Any, list[Any], Any, Any]] = {
    "max of children": (
        _max_of_children,
        lambda: {"w": _linear(A, C), "u": _linear(C, C)},
        *(ChildSum(4), [(C,)], (A,), None),
    ),
    "mean and max of children": (
        _mean_and_max,
        lambda: {"w": _linear(A + 2 * B, B)},
        *(ChildSum(3), [(B,)], (A,), None),
    ),
    "a gated sum": (
        _gated_sum,
        lambda: {"w": _linear(A, B), "g": _linear(B, B), "v": _linear(A, B), "u": _linear(B, B, False)},
        *(ChildSum(5), [(B,)], (A,), None),
    ),
    "attention by products": (
        _scaled_attention,
        lambda: {"k": _linear(C, A), "q": _linear(C, A), "v": _linear(C, C), "n": nn.LayerNorm(C)},
        *(ChildSum(3), [(C,)], (C,), lambda m, x: torch.tanh(m.v(x))),
    ),
    "attention of two heads": (
        _two_heads,
        lambda: {
            "k": _linear(B, 2 * A),
            "q": _linear(C, 2 * A),
            "v": _linear(B, 2 * A),
            "o": _linear(2 * A, B),
        },
        *(ChildSum(3), [(B,)], (C,), None),
    ),
    "three states, one of them a number": (
        _three_states,
        lambda: {"w": _linear(A + 2 * B, C), "g": _linear(C, B), "u": _linear(B, B), "v": _linear(C, A)},
        *(2, [(B,), (A,), ()], (A,), None),
    ),
    "a tensor of weights": (
        _tensor_network,
        lambda: {
            "t": nn.Parameter(torch.randn(2 * A, A, 2 * A) * 0.1),
            "w": _linear(2 * A, A),
            "e": nn.Embedding(WORDS, A),
        },
        *(2, [(A,)], (), lambda m, x: m.e(x)),
    ),
    "matrices beside vectors": (
        _low_rank_matrices,
        lambda: {
            "w": _linear(2 * A, A),
            "l": _linear(A, A),
            "r": _linear(A, A),
            "s": nn.Parameter(torch.randn(A, A)),
        },
        *(2, [(A,), (A, A)], None, lambda m: (torch.sin(m.s[0]), torch.tanh(m.s))),
    ),
    "a highway": (
        _highway,
        lambda: {"g": _linear(A + 2 * B, B), "w": _linear(B, B), "u": _linear(B, B)},
        *(2, [(B,)], (A,), None),
    ),
    "an LSTM with a norm": (
        _normed_lstm,
        lambda: {
            "n": nn.LayerNorm(3 * B),
            "w": _linear(A, 3 * B),
            "u": _linear(B, 3 * B, False),
            "f": _linear(A, B),
            "g": _linear(B, B),
        },
        *(ChildSum(3), [(B,), (B,)], (A,), None),
    ),
    "a minimal GRU": (
        _minimal_gru,
        lambda: {"f": _linear(A + C, C), "w": _linear(A + C, C)},
        *(1, [(C,)], (A,), None),
    ),
    "three children, one squared": (
        _squared,
        lambda: {"w": _linear(B, B), "u": _linear(B, B), "v": _linear(B, B), "e": nn.Embedding(WORDS, B)},
        *(3, [(B,)], (), lambda m, x: torch.cos(m.e(x))),
    ),
    "nodes counted below": (
        _counted,
        lambda: {"w": _linear(C, C), "b": nn.Parameter(torch.randn(C))},
        *(ChildSum(4), [(C,), ()], None, lambda m: (torch.tanh(m.b), m.b.sum() * 0 + 1)),
    ),
    "experts that are mixed": (
        _experts,
        lambda: {"g": _linear(B, 3), "w": _linear(B, B), "u": _linear(B, B), "e": nn.Embedding(WORDS, B)},
        *(2, [(B,)], (), None),
    ),
    "a word's row above those of children": (
        _rows_below,
        lambda: {"e": nn.Embedding(WORDS, B), "g": _linear(B, 1), "w": _linear(B, B), "n": nn.LayerNorm(B)},
        *(ChildSum(3), [(B,)], (), None),
    ),
    "a delta rule over a matrix": (
        _delta_rule,
        lambda: {"k": _linear(A, B), "v": _linear(A, C), "g": _linear(A, 1)},
        *(1, [(C, B)], (A,), None),
    ),
    "gates of heads": (
        _gates_of_heads,
        lambda: {"w": _linear(B, 12 * A), "u": _linear(3 * A, 12 * A)},
        *(ChildSum(3), [(3 * A,), (3, A)], (B,), None),
    ),
    "a wide layer between": (
        _wide,
        lambda: {"w": _linear(2 * C, 51), "d": _linear(51, C), "e": nn.Embedding(WORDS, C)},
        *(2, [(C,)], (), None),
    ),
}


SHORT = (
    "a gated sum",
    "attention of two heads",
    "three states, one of them a number",
    "a highway",
    "nodes counted below",
    "a word's row above those of children",
)


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one in SHORT else pytest.mark.long) for one in CELLS]
)
def test_cells_of_odd_sizes(name: str) -> None:
    torch.manual_seed(5)
    function, make, children, states, x_shape, leaf = CELLS[name]
    layers = make()
    cell = Parts(function, **layers).eval()
    own_leaf = None if leaf is None else Parts(leaf, **layers).eval()
    recursion = Recursion(cell, children=children, states=states, x=x_shape, leaf=own_leaf)
    cells, weights = export_cells(recursion, "cell")
    plans = [plan_recursion(cells, 200, 64, {}, schedule=one) for one in schedules_of(cells, 200, 64)]
    for seed, is_dag in ((1, False), (2, True)):
        structure = random_structure(seed, NODES, recursion.children, is_dag=is_dag)
        random = np.random.default_rng(seed)
        x = None if x_shape is None else random.integers(0, WORDS, NODES)
        if x_shape:
            x = random.standard_normal((NODES, *x_shape)).astype(np.float32)
        wanted = recursion(structure, x, all_nodes=True)
        for plan in plans:
            found = run_plan(plan, weights, structure, x)
            rights = wanted if len(states) > 1 else [wanted]
            assert len(found) >= len(rights)  # a refactored one keeps products, too
            for own, right in zip(found, rights, strict=False):
                scale = max(1.0, float(right.abs().max()))
                np.testing.assert_allclose(own, right.numpy(), rtol=0, atol=2e-5 * scale)


def test_arithmetic_of_a_node_s_number_is_refused() -> None:
    cell = Parts(lambda m, x, h: torch.tanh(m.e(x % 4) + h), e=nn.Embedding(4, B)).eval()
    cells, _ = export_cells(Recursion(cell, children=1, states=[(B,)], x=()), "cell")
    with pytest.raises(ModelError, match=r"remainder of int32.*position of tables alone; look up a weight"):
        plan_recursion(cells, 200, 64, {})
