"""Cells whose states are parts of larger values, inputs, children, constants, or one value twice."""

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
D, WORDS, NODES = 8, 11, 37


def _encoded(m: Any, word: Any, h: Any) -> Any:
    """A layer of a transformer over a word's row and those of the children."""
    rows = torch.cat([m.e(word)[None], h])
    queries, keys, values = (w(rows).reshape(-1, 2, D // 2).transpose(0, 1) for w in (m.q, m.k, m.w))
    mixed = torch.softmax(queries @ keys.transpose(1, 2) / 2, -1) @ values
    rows = m.n(rows + m.o(mixed.transpose(0, 1).reshape(-1, D)))
    return rows + m.d(F.gelu(m.u(rows)))


def _products(m: Any, a: Any) -> Any:
    return m.w(a) + m.p


def _overlapping(m: Any, x: Any, a: Any, c: Any, b: Any, d: Any) -> Any:
    wide = torch.tanh(m.u(x + a + b))
    return wide[2 : 2 + D], wide[4 : 4 + D]


# A cell, its children, states and x.
CELLS: dict[str, tuple[Callable[..., Any], Any, list[Any], Any]] = {
    "the first row of a layer over words": (lambda m, x, h: _encoded(m, x, h)[0], ChildSum(2), [(D,)], ()),
    "the last row of a layer over words": (lambda m, x, h: _encoded(m, x, h)[-1], ChildSum(3), [(D,)], ()),
    "a matrix and one of its rows": (
        lambda m, x, a, c, b, d: (_products(m, a), _products(m, a)[2]),
        *(2, [(3, D), (D,)], (D,)),
    ),
    "a norm of x that is repeated": (
        lambda m, x, h: torch.cat([(m.n(x) * 0.5).expand(2, D), h])[0],
        *(ChildSum(3), [(D,)], (D,)),
    ),
    "a product of x that is turned": (
        lambda m, x, a, b: torch.tanh(m.u(x).reshape(2, D).T @ torch.stack([a[:2], b[:2]]))[:, 1],
        *(2, [(D,)], (D,)),
    ),
    "a half": (lambda m, x, a, b: torch.tanh(m.u(a + b + x)).chunk(2)[1], 2, [(D,)], (D,)),
    "slices that share elements": (_overlapping, 2, [(D,), (D,)], (D,)),
    "a row of the children": (lambda m, x, h: torch.tanh(m.w(h) + m.o(x))[1], ChildSum(2), [(D,)], (D,)),
    "x itself": (lambda m, x, a, b: x, 2, [(D,)], (D,)),
    "a word's row": (lambda m, x, a, b: m.e(x), 2, [(D,)], ()),
    "a child as it is": (lambda m, x, a, b: b, 2, [(D,)], (D,)),
    "children that change places": (lambda m, x, a, c, b, d: (c, a), 2, [(D,), (D,)], (D,)),
    "one value twice": (lambda m, x, a, c: (m.w(x + a).tanh(),) * 2, 1, [(D,), (D,)], (D,)),
    "a row of weights": (lambda m, x, a, b: m.p[1], 2, [(D,)], (D,)),
    "a number of weights beside values": (
        lambda m, x, a, n: (torch.tanh(m.w(a) + x), m.p[0, 0]),
        *(1, [(D,), ()], (D,)),
    ),
    "what nothing reads": (lambda m, x, a, b: (m.w(a), torch.tanh(x + m.o(b)))[1], 2, [(D,)], (D,)),
}
LEAVES: dict[str, Callable[..., Any]] = {
    "x itself": lambda m, x: x,
    "a half": lambda m, x: torch.tanh(m.u(x))[D:],
    "a row": lambda m, x: torch.softmax(torch.stack([m.w(x), x]), 0)[1],
    "weights": lambda m, x: m.p[0],
    "zeros": lambda m, x: torch.zeros(D),
}


def _layers() -> dict[str, Any]:
    torch.manual_seed(2)
    square = {name: nn.Linear(D, D) for name in "qkow"}
    wide = {"u": nn.Linear(D, 2 * D), "d": nn.Linear(2 * D, D), "n": nn.LayerNorm(D)}
    return square | wide | {"e": nn.Embedding(WORDS, D), "p": nn.Parameter(torch.randn(3, D))}


def _assert_as_eager(recursion: Recursion) -> None:
    cells, weights = export_cells(recursion, "cell")
    structure = random_structure(3, NODES, recursion.children)
    random = np.random.default_rng(3)
    x: Any = random.integers(0, WORDS, NODES)
    if recursion.x:
        x = random.standard_normal((NODES, *recursion.x)).astype(np.float32)
    wanted = recursion(structure, x, all_nodes=True)
    rights = [one.detach().numpy() for one in (wanted if isinstance(wanted, tuple) else (wanted,))]
    for schedule in schedules_of(cells, 64, 32):
        found = run_plan(plan_recursion(cells, 64, 32, {}, schedule=schedule), weights, structure, x)
        assert_close(found[: len(rights)], rights)


@pytest.mark.sampled(keep=8)
@pytest.mark.parametrize("name", CELLS)
def test_states_are_parts_of_values(name: str) -> None:
    function, children, states, x = CELLS[name]
    cell = Parts(function, **_layers()).eval()
    _assert_as_eager(Recursion(cell, children=children, states=states, x=x))


@pytest.mark.parametrize("name", LEAVES)
def test_leaves_are_parts_of_values(name: str) -> None:
    layers = _layers()
    cell = Parts(lambda m, x, a, b: torch.tanh(m.u(x + a - b)).chunk(2)[1], **layers).eval()
    leaf = Parts(LEAVES[name], **layers).eval()
    _assert_as_eager(Recursion(cell, leaf=leaf, children=2, states=[(D,)], x=(D,)))
