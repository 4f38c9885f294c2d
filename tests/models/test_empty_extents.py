"""Axes without elements: slices that end before they begin, and what is computed over nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_runs import assert_same, imported, run_graph, torch
from kernel_runs import lowered, model_of

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


W = torch.randn(8, 8)
NOTHING: list[Callable[..., Any]] = [  # of x [2, L, 8] and y [2, 3, 8]
    lambda x, y: x.sum(1),
    lambda x, y: x.exp().sum((0, 1)),
    lambda x, y: x.transpose(1, 2).sum(-1) + x[:, 3:].sum(1),
    lambda x, y: x.sum(),
    lambda x, y: x.mean(1),
    lambda x, y: x.transpose(1, 2).mean(-1, keepdim=True),
    lambda x, y: x.prod(1),
    lambda x, y: ((x > 0).any(1), (x > 0).all(1)),
    lambda x, y: x.std(1),
    lambda x, y: x.var(1, correction=0),
    lambda x, y: x.norm(dim=1),
    lambda x, y: x.logsumexp(1),
    lambda x, y: x.logsumexp((0, 1)),
    lambda x, y: x.transpose(1, 2) @ x,
    lambda x, y: (x.transpose(1, 2) @ x).relu().mean(1),
    lambda x, y: x @ x.transpose(1, 2),
    lambda x, y: torch.einsum("bld,bke->bde", x, y),
    lambda x, y: (x @ W).relu().sum(1) @ W,
    lambda x, y: F.scaled_dot_product_attention(y, x, x),
    lambda x, y: (y @ x.transpose(1, 2)).softmax(-1) @ x,
    lambda x, y: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    lambda x, y: (x.softmax(1), x.softmax(2), x.log_softmax(1), x.transpose(1, 2).softmax(-1)),
    lambda x, y: torch.cat([x, y], 1),
    lambda x, y: (x.cumsum(1), x.flip(1), x.sort(1)[0], x.roll(1, 2), F.pad(x, (0, 0, 1, 2))),
    lambda x, y: (F.layer_norm(x, (8,)), F.rms_norm(x, (8,)), F.group_norm(x.transpose(1, 2), 2)),
    lambda x, y: F.adaptive_avg_pool1d(x.transpose(1, 2), 1),
    lambda x, y: F.batch_norm(x.transpose(1, 2), y[0, 0], y[0, 1].abs()),
    lambda x, y: (torch.cdist(x, y), x[:, :, None] * y[:, None], x.sum(1) / x.shape[1]),
]


def _compiled(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Any:
    args = tuple(torch.randn(shape) for shape in shapes)
    dims = tuple({1: Dim("L", min=0, max=64)} if k == 0 else None for k in range(len(args)))
    graph, weights = imported(export(Function(function).eval(), args, dynamic_shapes=(dims,)))
    return model_of(lowered(graph), weights)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_what_is_computed_of_nothing() -> None:
    """Kernels take no extents of 0: a call was refused where a result was of such an axis."""
    model = _compiled(lambda x, y: tuple(one(x, y) for one in NOTHING), (2, 6, 8), (2, 3, 8))
    for length in (0, 1, 4):
        x, y = torch.randn(2, length, 8), torch.randn(2, 3, 8)
        for number, (own, right) in enumerate(zip(model(x, y), (one(x, y) for one in NOTHING), strict=True)):
            pairs = zip(own, right, strict=True) if isinstance(right, tuple) else [(own, right)]
            for one, other in pairs:
                assert one.shape == other.shape, number
                np.testing.assert_allclose(one, other, atol=1e-4, rtol=1e-4, err_msg=f"{number}, {length}")


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda x: x.amax(1), "L is 0 in these shapes; allowed: at least 1"),
        (lambda x: x.argmax(1), "an extreme along axis 1 of 0 elements; allowed: at least 1"),
        (lambda x: x.topk(2, 1)[0], "top: 2 along axis 1 of 0 elements; allowed: as many, or fewer"),
        (
            lambda x: F.max_pool1d(x.mT, 2),
            r"windows over \[1, 2\] elements of \[1, 0\]; allowed: at least as",
        ),
    ],
)
def test_what_pytorch_refuses_of_nothing(function: Callable[..., Any], problem: str) -> None:
    model = _compiled(function, (2, 6, 8))
    np.testing.assert_allclose(model(x := torch.randn(2, 3, 8)), function(x), rtol=1e-6)
    with pytest.raises((IndexError, RuntimeError)):
        function(torch.randn(2, 0, 8))
    with pytest.raises(ShapeError, match=problem):
        model(torch.randn(2, 0, 8))
