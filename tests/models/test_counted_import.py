"""Histograms, counts, elements that differ, reductions at positions: graphs beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_runs import assert_functions, assert_same, exported, imported, torch
from kernel_runs import lowered, model_of
from needs import needs_torch

from dietcode.errors import DietCodeError, ModelError

L = torch.export.Dim("L", min=1, max=64)
Function = Callable[..., Any]

HISTOGRAMS: list[Function] = [
    lambda x: torch.histc(x, bins=4, min=0, max=3),
    lambda x: torch.histc(x.round(), bins=8, min=-4, max=4),
    lambda x: torch.histc(x, bins=5),
    lambda x: torch.histc(x * 0 + 2, bins=5),
    lambda x: torch.histc(x, bins=3, min=1, max=1),
    lambda x: torch.histc(x.abs().floor(), bins=4, min=0, max=3).cumsum(0),
]


def test_histograms() -> None:
    def tensors(size: int) -> tuple[Any, ...]:
        torch.manual_seed(size)
        return (torch.randn(size, 3) * 3,)

    assert_functions(HISTOGRAMS, tensors, [{0: L}])


REDUCED: list[Function] = [
    lambda x, at, v, rows: x.scatter_reduce(0, at, v, "mean"),
    lambda x, at, v, rows: x.scatter_reduce(0, at, v, "mean", include_self=False),
    lambda x, at, v, rows: x.scatter_reduce(0, at, v, "sum", include_self=False),
    lambda x, at, v, rows: x.scatter_reduce(0, at, v, "prod", include_self=False),
    lambda x, at, v, rows: x.scatter_reduce(0, at, v, "amax", include_self=False),
    lambda x, at, v, rows: x.scatter_reduce(0, at[:, :2], v, "amin", include_self=False),
    lambda x, at, v, rows: x.long().scatter_reduce(0, at, (v * 9).long(), "amax", include_self=False),
    lambda x, at, v, rows: x.long().scatter_reduce(0, at, (v * 9).long(), "mean"),
    lambda x, at, v, rows: x.scatter(0, at, 2.0, reduce="multiply"),
    lambda x, at, v, rows: x.index_reduce(0, rows, v, "mean", include_self=False),
    lambda x, at, v, rows: x.index_reduce(0, rows, v, "amax"),
    lambda x, at, v, rows: x.T.index_reduce(1, rows, v.T, "prod"),
]


@pytest.mark.filterwarnings("ignore:index_reduce")  # PyTorch calls it beta
def test_reductions_at_positions() -> None:
    def tensors(size: int) -> tuple[Any, ...]:
        torch.manual_seed(size)
        at = torch.randint(0, 5, (size, 3))
        return torch.randn(5, 3), at, torch.randn(size, 3), at[:, 0].contiguous()

    assert_functions(REDUCED, tensors, [{}, {0: L}, {0: L}, {0: L}])


def test_mean_of_neighbours_is_that_of_those_alone() -> None:
    """A node that no edge reaches keeps what it was, not a mean with nothing."""

    def mean(x: Any, to: Any, of: Any) -> Any:
        return x.scatter_reduce(0, to, of, "mean", include_self=False)

    graph = assert_functions(
        [mean],
        lambda size: (torch.full((4,), 7.0), torch.arange(size) % 2, torch.arange(size) * 1.0),
        [{}, {0: L}, {0: L}],
    )
    assert graph.nodes


class _Counts(torch.nn.Module):
    def forward(self, x: Any, wide: Any) -> Any:
        """Return how often each number comes, as many as there are rows, and as far as the largest one."""
        to_rows = torch.bincount(x, minlength=wide.shape[0])
        torch._check(to_rows.shape[0] == wide.shape[0])
        free = torch.bincount(x, minlength=3)
        torch._check(free.shape[0] <= 64)
        weighed = torch.bincount(x, wide[x, 0], minlength=wide.shape[0])
        torch._check(weighed.shape[0] == wide.shape[0])
        return wide * to_rows[:, None], free, weighed


@needs_torch("2.11", "its program says that weighed counts are whole numbers")
def test_counts_of_whole_numbers() -> None:
    rows = torch.export.Dim("N", min=3, max=64)
    module = _Counts().eval()
    args = torch.tensor([2, 0, 2, 5, 1, 1]), torch.randn(8, 2)
    graph, weights = imported(exported(module, args, ({0: L}, {0: rows})))
    compiled = model_of(lowered(graph), weights)
    for size, many in ((1, 3), (20, 7), (64, 64)):
        torch.manual_seed(size)
        args = torch.randint(0, many, (size,)), torch.randn(many, 2)
        assert_same(module, graph, weights, args)
        for own, right in zip(compiled(*args), module(*args), strict=True):
            np.testing.assert_allclose(np.asarray(own), right, rtol=1e-5)
    with pytest.raises(DietCodeError, match="position"):
        compiled(torch.tensor([1, 9]), torch.randn(8, 2))
    assert len(compiled(torch.tensor([1, 1]), torch.randn(8, 2))) == 3


def test_counts_need_a_bound() -> None:
    program = exported(_Of(lambda x: torch.bincount(x, minlength=3)), (torch.tensor([1, 2]),), (({0: L},),))
    with pytest.raises(ModelError, match=r"bincount.*without an upper bound.*torch\._check.*test_counted"):
        imported(program)


def test_counts_of_positions_have_a_bound() -> None:
    """As those of a router's experts: positions are less than what they are positions in."""
    module = _Of(
        lambda x: (
            torch.bincount(x.topk(2, -1)[1].flatten(), minlength=5) * x.softmax(-1).mean(0),
            torch.bincount(x.argmax(0)[None].expand(3, -1).reshape(-1), minlength=x.shape[0]),
            torch.bincount((x * 9).long().clamp(0, 6).flatten(), minlength=2),
        )
    )
    graph, weights = imported(exported(module, (torch.randn(6, 5),), (({0: L},),)))
    for rows in (1, 8):
        assert_same(module, graph, weights, (torch.randn(rows, 5),))


class _Of(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        """Return what the function does."""
        return self.function(*args)


def _means_of_voxels(x: Any) -> Any:
    voxels, own, counts = torch.unique(x[:, :2], dim=0, return_inverse=True, return_counts=True)
    total = torch.zeros(voxels.shape[0], 3).index_add(0, own, x.float())
    return total / counts[:, None], own


DIFFERENT: dict[str, Function] = {
    "elements": torch.unique,
    "elements, where they are and how many": lambda x: torch.unique(
        x, return_inverse=True, return_counts=True
    ),
    "numbers": lambda x: torch.unique(x[:, 0].float() * 0.5, return_counts=True),
    "rows": lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True),
    "columns": lambda x: torch.unique(x[:4].T.contiguous().T, dim=1),
    "elements of one axis": lambda x: torch.unique(x[:, 0], dim=0),
    "neighbours": lambda x: torch.unique_consecutive(x[:, 1], return_inverse=True, return_counts=True),
    "rows beside each other": lambda x: torch.unique_consecutive(x, dim=0, return_counts=True),
    "means of equal rows": _means_of_voxels,
}


@pytest.mark.sampled(keep=5)
@pytest.mark.parametrize("name", DIFFERENT)
def test_different_elements(name: str) -> None:
    module = _Of(DIFFERENT[name]).eval()
    rows = torch.export.Dim("L", min=4, max=64)
    graph, weights = imported(exported(module, (torch.randint(0, 4, (9, 3)),), (({0: rows},),)))
    compiled = model_of(lowered(graph), weights)
    for size, most in ((4, 1), (9, 4), (64, 3), (33, 100)):
        torch.manual_seed(size)
        x = torch.randint(0, most, (size, 3))
        assert_same(module, graph, weights, (x,))
        found = torch.utils._pytree.tree_leaves(compiled(x))
        for own, right in zip(found, torch.utils._pytree.tree_leaves(module(x)), strict=True):
            np.testing.assert_allclose(np.asarray(own), right, rtol=1e-5)
