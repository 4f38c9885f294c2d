"""Cells with infinite numbers, and leaves whose values become numbers: what they become is as PyTorch's."""

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
H, NODES = 9, 31


def _forbidden_successors(m: Any, x: Any, a: Any, b: Any) -> Any:
    """Scores of the labels that may follow the best label of the left child."""
    return torch.clamp(F.embedding(a.argmax(), m.t) + x, min=-50) + b / 2


def _best_of_those_there(m: Any, x: Any, h: Any, there: Any) -> Any:
    best = h.masked_fill((there == 0)[:, None], -torch.inf).amax(0)
    return torch.tanh(m.w(torch.where(torch.isinf(best), 0.5, best)) + x), torch.ones(())


def _without_gaps(m: Any, x: Any, a: Any, b: Any) -> Any:
    x = torch.nan_to_num(x, nan=0.25, posinf=2.0, neginf=-2.0)
    return torch.tanh(m.w(a + b) + x)


def _entropy(m: Any, x: Any, h: Any) -> Any:
    """Of a leaf both values of the choice in `log1p` are numbers."""
    return torch.sin(x) + torch.log1p(torch.exp(-h.abs()).sum(0))


def _table() -> dict[str, Any]:
    rows = torch.randn(H, H)
    rows[2, 3:6], rows[:, 1], rows[4, 7] = -torch.inf, -torch.inf, 3e38
    return {"t": nn.Parameter(rows)}


def _weight() -> dict[str, Any]:
    return {"w": nn.Linear(H, H)}


# A cell, its layers, its children and states.
CELLS: dict[str, tuple[Any, Callable[[], dict[str, Any]], Any, list[Any]]] = {
    "a table of infinite numbers": (_forbidden_successors, _table, 2, [(H,)]),
    "comparisons with infinity": (_best_of_those_there, _weight, ChildSum(4), [(H,), ()]),
    "inputs that are no numbers": (_without_gaps, _weight, 2, [(H,)]),
    "a choice of two numbers": (_entropy, dict, ChildSum(2), [(H,)]),
}


@pytest.mark.parametrize("name", CELLS)
def test_every_schedule_is_as_eager(name: str) -> None:
    function, layers, children, states = CELLS[name]
    torch.manual_seed(1)
    recursion = Recursion(Parts(function, **layers()).eval(), children=children, states=states, x=(H,))
    cells, weights = export_cells(recursion, "cell")
    structure = random_structure(3, NODES, recursion.children, is_dag=recursion.is_sum)
    x = np.random.default_rng(3).standard_normal((NODES, H)).astype(np.float32)
    if name == "inputs that are no numbers":
        x[::3, 1:4] = np.nan, np.inf, -np.inf
    wanted = recursion(structure, x, all_nodes=True)
    rights = [one.detach().numpy() for one in (wanted if isinstance(wanted, tuple) else (wanted,))]
    assert all(np.isfinite(one).all() for one in rights)
    for schedule in schedules_of(cells, 64, 32):
        found = run_plan(plan_recursion(cells, 64, 32, {}, schedule=schedule), weights, structure, x)
        assert_close(found[: len(rights)], rights, schedule.label)
