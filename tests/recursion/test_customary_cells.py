"""Cells as users write them: with PyTorch's own layers, choices among children, numbers as states."""

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
H, X, NODES = 20, 7, 23


def _attention(m: Any, x: Any, h: Any) -> Any:
    """Of a tree transformer, in evaluation."""
    own = m.given(x)[None]
    rows = torch.cat([own, h])
    found, _ = m.attention(own, rows, rows, need_weights=False)
    found = m.norm(own + m.drop(found))[0]
    return m.last(found + m.wide(found))


def _encoder(m: Any, x: Any, h: Any) -> Any:
    return m.layer(torch.cat([m.given(x)[None], h])[None])[0, 0]


def _five_children(m: Any, x: Any, *states: Any) -> Any:
    i, o, u = (m.w(x) + m.u(torch.cat(states[0::2]))).chunk(3)
    forget = torch.sigmoid(m.f(x).repeat(5) + m.g(torch.cat(states[0::2]))).view(5, H)
    c = torch.sigmoid(i) * torch.tanh(u) + (forget * torch.stack(states[1::2])).sum(0)
    return torch.sigmoid(o) * torch.tanh(c), c


def _mean_of_those_there(m: Any, x: Any, h: Any) -> Any:
    count = (h.abs().sum(1) > 0).float().sum().clamp(min=1)
    return torch.tanh(m.w(x) + m.u(h.sum(0) / count))


def _simple_unit(m: Any, x: Any, h: Any, c: Any) -> Any:
    """An SRU of two states."""
    (z, f, r), (bf, br), (vf, vr) = m.w(x).chunk(3), m.b.chunk(2), m.v.chunk(2)
    f, r = torch.sigmoid(f + vf * c + bf), torch.sigmoid(r + vr * c + br)
    c = f * c + (1 - f) * z
    return r * c + (1 - r) * x, c


def _projected(m: Any, x: Any, h: Any, c: Any) -> Any:
    i, f, g, o = (m.w(x) + m.u(h)).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return m.p(o.sigmoid() * c.tanh()), c


def _labels_below(m: Any, x: Any, a: Any, i: Any, b: Any, j: Any) -> Any:
    labels = torch.cat([F.one_hot(one.long(), H).float() for one in (i, j)])
    own = torch.tanh(m.w(torch.cat([x, a, b])) + m.u(labels))
    return own, own.argmax(-1).float()


def _best_child(m: Any, x: Any, h: Any) -> Any:
    scores = m.s(h)
    return torch.tanh(m.w(x) + ((scores == scores.max()).float() * h).sum(0))


def _stacked(m: Any, x: Any, h: Any, c: Any, g: Any) -> Any:
    h, c = m.first(x, (h, c))
    return h, c, m.second(h, g)


def _weights_of_edges(m: Any, x: Any, h: Any) -> Any:
    return torch.tanh(m.w(x[:3]) + m.u((h * x[3:, None]).sum(0)))


def _layers(**layers: Callable[[], Any]) -> Callable[[], dict[str, Any]]:
    return lambda: {name: make() for name, make in layers.items()}


def _linear(rows: int, columns: int, bias: bool = True) -> Callable[[], Any]:
    return lambda: nn.Linear(rows, columns, bias=bias)


# A cell, its layers, its children, states and x.
CELLS: dict[str, tuple[Any, Callable[[], dict[str, Any]], Any, list[Any], Any]] = {
    "attention of PyTorch's": (
        _attention,
        _layers(
            given=_linear(X, H),
            attention=lambda: nn.MultiheadAttention(H, 4, batch_first=True),
            norm=lambda: nn.LayerNorm(H),
            last=lambda: nn.RMSNorm(H),
            drop=lambda: nn.Dropout(0.5),
            wide=lambda: nn.Sequential(nn.Linear(H, 24), nn.ReLU(), nn.Dropout(0.5), nn.Linear(24, H)),
        ),
        *(ChildSum(4), [(H,)], (X,)),
    ),
    "an encoder's layer": (
        _encoder,
        _layers(
            given=_linear(X, H),
            layer=lambda: nn.TransformerEncoderLayer(H, 2, 24, batch_first=True, norm_first=True),
        ),
        *(ChildSum(3), [(H,)], (X,)),
    ),
    "an LSTM of five children": (
        _five_children,
        _layers(w=_linear(X, 3 * H), f=_linear(X, H), u=_linear(5 * H, 3 * H), g=_linear(5 * H, 5 * H)),
        *(5, [(H,), (H,)], (X,)),
    ),
    "a mean of those that are there": (
        _mean_of_those_there,
        _layers(w=_linear(X, H), u=_linear(H, H)),
        *(ChildSum(6), [(H,)], (X,)),
    ),
    "a simple recurrent unit": (
        _simple_unit,
        _layers(
            w=_linear(H, 3 * H, bias=False),
            b=lambda: nn.Parameter(torch.randn(2 * H)),
            v=lambda: nn.Parameter(torch.randn(2 * H)),
        ),
        *(1, [(H,), (H,)], (H,)),
    ),
    "a projected LSTM": (
        _projected,
        _layers(w=_linear(X, 4 * H), u=_linear(5, 4 * H), p=_linear(H, 5, bias=False)),
        *(1, [(5,), (H,)], (X,)),
    ),
    "labels of children": (
        _labels_below,
        _layers(w=_linear(X + 2 * H, H), u=_linear(2 * H, H)),
        *(2, [(H,), ()], (X,)),
    ),
    "the best child": (
        _best_child,
        _layers(s=_linear(H, 1), w=_linear(X, H)),
        *(ChildSum(3), [(H,)], (X,)),
    ),
    "cells one above the other": (
        _stacked,
        _layers(first=lambda: nn.LSTMCell(X, H), second=lambda: nn.GRUCell(H, H)),
        *(1, [(H,)] * 3, (X,)),
    ),
    "weights of edges": (
        _weights_of_edges,
        _layers(w=_linear(3, H), u=_linear(H, H)),
        *(ChildSum(4), [(H,)], (7,)),
    ),
    "a norm of weights": (
        lambda m, x, a, b: torch.tanh(m.w(torch.cat([x, a, b]))),
        _layers(w=lambda: nn.utils.parametrizations.weight_norm(nn.Linear(X + 2 * H, H))),
        *(2, [(H,)], (X,)),
    ),
}
LONG = ("attention of PyTorch's", "an encoder's layer", "cells one above the other")


@pytest.mark.sampled(keep=5)
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.long if one in LONG else ()) for one in CELLS]
)
def test_every_schedule_is_as_eager(name: str) -> None:
    function, layers, children, states, x = CELLS[name]
    torch.manual_seed(1)
    recursion = Recursion(Parts(function, **layers()).eval(), children=children, states=states, x=x)
    cells, weights = export_cells(recursion, "cell")
    alone = np.full((2, recursion.children), -1)
    structure = random_structure(3, NODES, recursion.children, is_dag=recursion.is_sum)
    structure.children = np.concatenate([structure.children, alone.astype(np.int32)])
    given = np.random.default_rng(3).standard_normal((NODES + 2, *x)).astype(np.float32)
    wanted = recursion(structure, given, all_nodes=True)
    rights = [one.detach().numpy() for one in (wanted if isinstance(wanted, tuple) else (wanted,))]
    for schedule in schedules_of(cells, 64, 32):
        found = run_plan(plan_recursion(cells, 64, 32, {}, schedule=schedule), weights, structure, given)
        assert_close(found[: len(rights)], rights, schedule.label)
