"""Cells that take all children in one tensor, and what zeros make of a cell, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cell_graphs import Function, H, X, assert_close, recursion_of, run_rows, tables_of
from graph_runs import run_graph, torch

from dietcode.recursion.exporting import export_cells
from dietcode.recursion.module import ChildSum
from dietcode.recursion.planning import forms_of
from dietcode.recursion.unrolling import unrolled

F = torch.nn.functional
MAX = 3
# Of a module with weights w [8, 8], v [8], u [8, 6], and x [6], h [3, 8].
SUMS: dict[str, Callable[..., Any]] = {
    "the sum": lambda m, x, h: torch.tanh(h.sum(0)) + F.linear(x, m.u),
    "products of each": lambda m, x, h: (torch.sigmoid(F.linear(h, m.w, m.v) + F.linear(x, m.u)) * h).sum(0),
    "attention over children": lambda m, x, h: (F.softmax(h @ m.v, 0).unsqueeze(1) * h).sum(0),
    "the largest and the mean": lambda m, x, h: (
        h.max(0).values - h.mean(0, keepdim=True).squeeze(0) + h.amin()
    ),
    "by position": lambda m, x, h: h[0] * 2 - h[1:].sum(0) + F.layer_norm(h, (H,))[2],
    "all together": lambda m, x, h: F.linear(h.reshape(-1)[:H], m.w) + h.T.reshape(H, MAX).sum(1) + h.std(0),
    "weights of each": lambda m, x, h: (h * m.w[:MAX] + m.v[:MAX].unsqueeze(1)).prod(0) + (h @ m.w).sum(0),
    "softmax of each": lambda m, x, h: F.softmax(h, 1).sum(0) + h.sum() + (h - h.sum(0, keepdim=True)).sum(0),
}


def _both(m: Any, x: Any, h: Any, *_: Any) -> tuple[Any, ...]:
    return tuple(function(m, x, h) for function in SUMS.values())


def test_children_by_themselves() -> None:
    recursion = recursion_of(_both, ChildSum(MAX), [(H,)] * len(SUMS))
    cells, weights = export_cells(recursion, "cell")
    graph = unrolled(cells.cell, 1, MAX, len(SUMS))
    assert len(graph.inputs) == 1 + MAX * len(SUMS)
    random = np.random.default_rng(5)
    x, h = (random.standard_normal(shape).astype(np.float32) for shape in ((X,), (MAX, H)))
    zeros = np.zeros((MAX, H), np.float32)
    states = [h, *(zeros for _ in range(len(SUMS) - 1))]
    children = [state[child] for child in range(MAX) for state in states]
    inputs = dict(zip(graph.inputs, [x, *children], strict=True))
    found = run_graph(graph, {name: weights[name] for name in graph.weights}, inputs)
    with torch.no_grad():
        wanted = recursion.cell(torch.tensor(x), *map(torch.tensor, states))
    for name, own, right in zip(SUMS, found, wanted, strict=True):
        assert_close([own], [right.numpy()], name)


def test_a_leaf_is_the_cell_with_zeros() -> None:
    def cell(m: Function, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        gates = F.linear(x, m.u, m.v) + F.linear(h.sum(0), m.w)
        kept = (torch.sigmoid(F.linear(h, m.w, m.v)) * c).sum(0)
        return torch.tanh(gates) + torch.exp(h.sum(0)) * m.v, torch.cat([gates[:4], gates[4:] * 2]) + kept

    recursion = recursion_of(cell, ChildSum(2), [(H,), (H,)])
    cells, weights = export_cells(recursion, "cell")
    forms = forms_of(cells, 60, 50)
    operators = [node.operator for node in forms.leaf.nodes]
    assert "linear" not in operators and "take" not in operators  # the product of inputs was hoisted
    assert forms.before is not None
    hoisted = run_rows(forms.before, weights, recursion, 4)
    given = dict(zip(forms.before.outputs, hoisted, strict=True))
    tables = tables_of(recursion, 20)
    own = {name: weights[name] for name in forms.leaf.weights}
    zero = np.zeros(4, np.int32)
    inputs = {name: given.get(name, tables.get(name, zero)) for name in forms.leaf.inputs}
    found = run_graph(forms.leaf, own, inputs)
    order = np.random.default_rng(4).integers(0, 20, 4)
    none = torch.zeros(2, H)
    with torch.no_grad():
        rows = [recursion.cell(torch.tensor(tables["x"][one]), none, none) for one in order]
    assert_close(found, [torch.stack(one).numpy() for one in zip(*rows, strict=True)])
