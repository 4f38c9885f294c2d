"""Axes without elements: slices that end before they begin, and what is computed over nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_runs import assert_same, imported, run_graph, torch

from dietcode.errors import ShapeError
from dietcode.models.exporting import export

F, Dim = torch.nn.functional, torch.export.Dim


class Function(torch.nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        """Return the function's result."""
        return self.function(*args)


SLICES: list[Callable[..., Any]] = [
    lambda x: x[:, 2:-2] * 2,
    lambda x: x[:, 3:],
    lambda x: x[:, -3:-1] + 1,
    lambda x: x[:, -3:2] + 1,
    lambda x: x[:, 5:2] + 1,
    lambda x: x[:, 2:-2:2] + 1,
    lambda x: x[:, x.shape[1] // 2 : 3] * 2,
    lambda x: x[:, 2:-2].reshape(-1),
    lambda x: x[:, 2:-2].transpose(0, 1)[..., None].expand(-1, -1, 2),
    lambda x: torch.cat([x[:, :2], x[:, 2:-2], x[:, -2:]], 1),
    lambda x: torch.cat([x[:, :3], x[:, 3:]], 1) - x,
    lambda x: torch.slice_scatter(x, torch.zeros_like(x[:, 2:-2]), 1, 2, -2),
    lambda x: torch.slice_scatter(x, torch.zeros_like(x[:, 2:-2:2]), 1, 2, -2, 2),
    lambda x: x[:, 2:-2].sum(1) + x[:, -1],
]


def test_slices_that_end_before_they_begin() -> None:
    """The lengths of such slices were below 0."""
    module = Function(lambda x: tuple(one(x) for one in SLICES)).eval()
    program = export(module, (torch.randn(2, 9),), dynamic_shapes=(({1: Dim("L", min=1, max=33)},),))
    graph, weights = imported(program)
    for length in range(1, 9):
        assert_same(module, graph, weights, (torch.randn(2, length),))


def test_positions_before_the_first_element() -> None:
    """PyTorch's export has no guard of this one; at L = 4 the first column was replaced."""
    module = Function(lambda x: x.select_scatter(torch.ones(2), 1, -5)).eval()
    program = export(module, (torch.randn(2, 9),), dynamic_shapes=(({1: Dim("L", min=1, max=33)},),))
    graph, weights = imported(program)
    assert_same(module, graph, weights, (torch.randn(2, 5),))
    with pytest.raises(ShapeError, match=r"the model requires position -5 within L elements"):
        run_graph(graph, weights, {"args_0": np.ones((2, 4), np.float32)})
