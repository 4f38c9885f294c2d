"""Cells of separate children that stack them, and view gates as rows: as few kernels as without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cell_graphs import H, X, assert_close, recursion_of
from graph_runs import torch
from recursion_runs import random_structure, run_plan

from dietcode.recursion.exporting import export_cells
from dietcode.recursion.module import Recursion
from dietcode.recursion.planning import plan_recursion
from dietcode.recursion.unrolling import taken_apart

F = torch.nn.functional


class _Cell(torch.nn.Module):  # type: ignore[misc]
    """An N-ary TreeLSTM, written in some way: gates i, o, u, and one of each child."""

    def __init__(self, way: Callable[..., Any], children: int) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.way, self.of_x = way, torch.nn.Linear(X, H)
        self.of_h = torch.nn.Linear(children * H, (3 + children) * H)

    def forward(self, x: Any, *states: Any) -> Any:
        return self.way(self, self.of_x(x), states[0::2], states[1::2])


def _finish(i: Any, o: Any, u: Any, kept: Any) -> tuple[Any, Any]:
    new = torch.sigmoid(i) * torch.tanh(u) + kept
    return torch.sigmoid(o) * torch.tanh(new), new


def _plain(m: Any, own: Any, h: Any, c: Any) -> tuple[Any, Any]:
    i, o, u, *forget = m.of_h(torch.cat(h)).chunk(3 + len(h))
    kept = sum(torch.sigmoid(gate + own) * one for gate, one in zip(forget, c, strict=True))
    return _finish(i + own, o + own, u + own, kept)


def _viewed(m: Any, own: Any, h: Any, c: Any) -> tuple[Any, Any]:
    gates = m.of_h(torch.stack(h).view(-1)).view(3 + len(h), H)
    kept = (torch.sigmoid(gates[3:] + own) * torch.stack(c)).sum(0)
    return _finish(gates[0] + own, gates[1] + own, gates[2] + own, kept)


def _unbound(m: Any, own: Any, h: Any, c: Any) -> tuple[Any, Any]:
    i, o, u, *forget = (m.of_h(torch.stack(h).flatten()).unflatten(0, (3 + len(h), H)) + own).unbind(0)
    return _finish(i, o, u, (torch.stack(forget).sigmoid() * torch.stack(c)).sum(0))


WAYS: dict[str, Callable[..., Any]] = {"plain": _plain, "viewed": _viewed, "unbound": _unbound}


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize("children", [2, 5])
@pytest.mark.parametrize("way", WAYS)
def test_a_level_of_stacked_children_is_one_kernel(way: str, children: int) -> None:
    cell = _Cell(WAYS[way], children).eval()
    recursion = Recursion(cell, children=children, states=[(H,), (H,)], x=(X,))
    cells, weights = export_cells(recursion, "cell")
    plan = plan_recursion(cells, 100, 30, {})
    assert plan.facts["kernels"]["cell"] == 1 and len(plan.description["cell"]) == 1
    structure = random_structure(4, 24, children)
    x = np.random.default_rng(1).standard_normal((24, X)).astype(np.float32)
    wanted = recursion(structure, x, all_nodes=True)
    assert_close(run_plan(plan, weights, structure, x), [one.numpy() for one in wanted])


def test_a_sum_over_stacked_children_is_that_of_all_children() -> None:
    def cell(m: Any, x: Any, *h: Any) -> Any:
        stacked = torch.stack(h)
        gate = torch.sigmoid(F.linear(stacked, m.w) + F.linear(x, m.u))
        return torch.tanh(F.linear(stacked.sum(0), m.w.T) + (gate * stacked).sum(0))

    recursion = recursion_of(cell, 3)
    cells, weights = export_cells(recursion, "cell")
    plan = plan_recursion(cells, 100, 30, {})
    assert plan.facts["kernels"]["cell"] == 2
    structure = random_structure(5, 24, 3)
    x = np.random.default_rng(2).standard_normal((24, X)).astype(np.float32)
    wanted = recursion(structure, x, all_nodes=True)
    assert_close(run_plan(plan, weights, structure, x), [wanted.numpy()])


def _kept(stacked: Any, rows: Any) -> Any:
    return (stacked.mean(0, keepdim=True) * rows).sum(0)


def _kept_of_gates(stacked: Any, rows: Any) -> Any:
    gates = torch.cat([*stacked, stacked[0]]).view(len(rows), H)
    return (gates.sum(0, keepdim=True) * stacked.amax(0, keepdim=True) + rows).prod(0)


@pytest.mark.parametrize("way", [_kept, _kept_of_gates])
def test_a_sum_that_is_kept_as_a_row_meets_each_of_several(way: Callable[..., Any]) -> None:
    def cell(m: Any, x: Any, *h: Any) -> Any:
        stacked = torch.stack(h)
        return torch.tanh(way(stacked, m.w[: 2 if way is _kept else 3]) + F.linear(x, m.u))

    recursion = recursion_of(cell)
    cells, weights = export_cells(recursion, "cell")
    plan = plan_recursion(cells, 100, 30, {})
    structure = random_structure(6, 24, 2)
    x = np.random.default_rng(3).standard_normal((24, X)).astype(np.float32)
    assert_close(run_plan(plan, weights, structure, x), [recursion(structure, x, all_nodes=True).numpy()])


def test_what_is_neither_stacked_nor_viewed_stays() -> None:
    def cell(m: Any, x: Any, a: Any, b: Any) -> Any:
        return torch.tanh(F.linear(torch.cat([a, b])[2 : 2 + H], m.w) + F.linear(x, m.u))

    cells, _ = export_cells(recursion_of(cell), "cell")
    assert [node.operator for node in taken_apart(cells.cell).nodes] == [
        node.operator for node in cells.cell.nodes
    ]
