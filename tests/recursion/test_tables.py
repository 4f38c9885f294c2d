"""What depends on words alone becomes tables: fewer products, the same states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from recursion_runs import random_structure, run_plan
from test_taken_apart import Parts

from dietcode.recursion import tables
from dietcode.recursion.exporting import export_cells
from dietcode.recursion.module import ChildSum, Recursion
from dietcode.recursion.planning import plan_recursion

torch: Any = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional
H, WORDS = 12, 7


def _layers() -> dict[str, Any]:
    torch.manual_seed(4)
    layers = {"w": nn.Linear(H, H), "u": nn.Linear(H, H), "e": nn.Embedding(WORDS, H), "n": nn.LayerNorm(H)}
    return layers | {"few": nn.Embedding(3, H), "m": nn.Embedding(WORDS, H * H), "one": nn.Linear(1, H)}


def _of(cell: Callable[..., Any], leaf: Any, children: Any = 2, x: Any = (), states: Any = ((H,),)) -> Any:
    made = [None if one is None else Parts(one, **_layers()).eval() for one in (cell, leaf)]
    return Recursion(made[0], leaf=made[1], children=children, states=list(states), x=x)


# A recursion, and the multiplications of a row that leaf, first and cell have; None where there is no first.
CASES: dict[str, tuple[Callable[[], Any], int, int | None, int]] = {
    "words": (
        lambda: _of(lambda m, x, a, b: torch.relu(m.w(a) + m.u(b)), lambda m, x: m.e(x)),
        *(0, 0, 2 * H * H),
    ),
    "a leaf that computes": (
        lambda: _of(
            lambda m, x, a, b: m.n(m.w(a) * m.u(b)), lambda m, x: F.softmax(torch.tanh(m.w(m.e(x))), -1)
        ),
        *(0, 0, 2 * H * H),
    ),
    "the cell as leaf, words at all nodes": (
        lambda: _of(lambda m, x, h: torch.tanh(m.w(m.e(x)) + m.u(h.sum(0))), None, ChildSum(3)),
        *(0, 0, H * H),
    ),
    "a mean of children": (
        lambda: _of(lambda m, x, h: torch.tanh(m.u(h.mean(0))) + 1, lambda m, x: m.e(x), ChildSum(2)),
        *(0, 0, H * H),
    ),
    "products of what the cell computes": (
        lambda: _of(lambda m, x, a, b: torch.tanh(m.w(torch.relu(m.u(a) * b))), lambda m, x: m.e(x)),
        *(0, H * H, 2 * H * H),
    ),
    "leaves that are all the same": (
        lambda: _of(lambda m, a, b: torch.relu(m.w(a) + m.u(b)), lambda m: torch.tanh(m.w.bias), 2, None),
        *(0, 0, 2 * H * H),
    ),
    "words and what all leaves have": (
        lambda: _of(
            lambda m, x, h, c: (torch.tanh(m.w(h.sum(0)) + c.sum(0)), m.u(c).sum(0)),
            lambda m, x: (m.e(x), m.w.bias * 1.0),
            *(ChildSum(2), (), ((H,), (H,))),
        ),
        *(0, 0, 3 * H * H),
    ),
    "tables of 7 and of 3 words": (
        lambda: _of(
            lambda m, x, h, c: (torch.tanh(m.w(h.sum(0)) + c.sum(0)), m.u(c).sum(0)),
            lambda m, x: (m.e(x), m.few(x)),
            *(ChildSum(2), (), ((H,), (H,))),
        ),
        *(0, 0, 3 * H * H),
    ),
    "matrices": (
        lambda: _of(
            lambda m, x, a, b: torch.tanh(m.w.weight @ a + b @ m.u.weight),
            lambda m, x: m.m(x).reshape(H, H),
            *(2, (), ((H, H),)),
        ),
        *(0, 0, 2 * H**3),
    ),
    "inputs that are numbers": (
        lambda: _of(lambda m, x, h: torch.tanh(m.w(x) + m.u(h)), None, 1, (H,)),
        *(0, None, H * H),
    ),
}


@pytest.mark.sampled(keep=5)
@pytest.mark.parametrize("name", CASES)
def test_products_of_words_are_looked_up(name: str) -> None:
    make, leaf, first, cell = CASES[name]
    recursion = make()
    cells, weights = export_cells(recursion, "cell")
    plan = plan_recursion(cells, 200, 64, {})
    left = plan.facts["multiply_adds"]
    assert (left["leaf"], left.get("first"), left["cell"]) == (leaf, first, cell)
    for seed in (1, 2):
        structure = random_structure(seed, 40, recursion.children, is_dag=seed == 2)
        random = np.random.default_rng(seed)
        x = None if recursion.x is None else random.integers(0, 3, 40)
        if recursion.x:
            x = random.standard_normal((40, H)).astype(np.float32)
        wanted = recursion(structure, x, all_nodes=True)
        found = run_plan(plan, weights, structure, x)
        for own, right in zip(found, wanted if len(found) > 1 else [wanted], strict=True):
            np.testing.assert_allclose(
                own, right.numpy(), rtol=0, atol=1e-5 * max(1, float(right.abs().max()))
            )


def test_tables_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, _ = export_cells(CASES["words"][0](), "cell")
    both = 4 * 2 * (WORDS + 1) * H
    for name, most in (("MOST_TABLE_BYTES", both // 2), ("MOST_BYTES", both)):
        with monkeypatch.context() as patch:
            patch.setattr(tables, name, most)
            assert plan_recursion(cells, 200, 64, {}).facts["multiply_adds"]["first"] == 0
            patch.setattr(tables, name, most - 1)
            left = plan_recursion(cells, 200, 64, {}).facts["multiply_adds"]
            assert left.get("first") != 0
