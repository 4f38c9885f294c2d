"""Functions whose sizes PyTorch's export makes constant, or that lowering refused, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from graph_runs import Functions, assert_functions, assert_same, imported, torch

import dietcode

Dim, F = torch.export.Dim, torch.nn.functional
N = Dim("N", min=1, max=20)


class Transformer(torch.nn.Module):
    """Images seen through affine maps of their own."""

    def __init__(self, align_corners: bool) -> None:
        super().__init__()
        self.align_corners = align_corners

    def forward(self, x: Any, theta: Any) -> Any:
        """Return the images, and a grid of volumes."""
        grid = F.affine_grid(theta, list(x.shape), align_corners=self.align_corners)
        volume = F.affine_grid(theta.new_ones(1, 3, 4), [1, 1, 2, *x.shape[2:]], self.align_corners)
        return F.grid_sample(x, grid, align_corners=self.align_corners), volume


@pytest.mark.thorough
@pytest.mark.sampled(keep=1)
@pytest.mark.filterwarnings("ignore:.*affine_grid:UserWarning")
@pytest.mark.parametrize("align_corners", [False, True])
def test_affine_grids(align_corners: bool) -> None:
    module, height, width = Transformer(align_corners).eval(), Dim("H", min=1, max=9), Dim("W", min=1, max=9)
    own = F.affine_grid
    batch = Dim("B", min=1, max=4)
    args = torch.randn(2, 3, 5, 4), torch.randn(2, 2, 3)
    shapes = ({0: batch, 2: height, 3: width}, {0: batch})
    graph, weights = imported(dietcode.export(module, args, dynamic_shapes=shapes))
    assert F.affine_grid is own
    for rows, *size in ((1, 1, 1), (4, 9, 2), (3, 4, 9)):
        assert_same(module, graph, weights, (torch.randn(rows, 3, *size), torch.randn(rows, 2, 3)))


TAKEN: list[Callable[[Any], Any]] = [
    lambda x: x.take_along_dim(x.argsort(1), 1),
    lambda x: torch.take_along_dim(x, x.sum(-1, keepdim=True).argsort(1), dim=1),
    lambda x: torch.take_along_dim(x[:1], x.argsort(1)[:, :1], -2),
    lambda x: torch.take_along_dim(x, torch.tensor([0, 2])),
    lambda x: F.max_pool1d(x.mT, 3, 1, 1) + torch.max_pool1d(x.mT, [3], 1, padding=1),
]


def test_elements_along_an_axis() -> None:
    module, lengths = Functions(TAKEN).eval(), Dim("L", min=1, max=9)
    args = (torch.randn(4, 5, 3),)
    graph, weights = imported(dietcode.export(module, args, dynamic_shapes=(({0: N, 1: lengths},),)))
    for size in ((1, 1), (20, 9), (3, 4)):
        assert_same(module, graph, weights, (torch.randn(*size, 3),))


def test_an_index_by_tensors_on_axes_apart() -> None:
    columns = torch.tensor([2, 0, 3])
    functions = [
        lambda x: x[:, columns[:, None], :, columns],
        lambda x: x[torch.arange(x.shape[0]), :, columns[:1]],
        lambda x: x[torch.arange(x.shape[0]), :, :, torch.arange(x.shape[0]) % 4],
    ]
    assert_functions(functions, lambda n: (torch.randn(n, 4, 5, 4),), [{0: N}])


def test_triangles_whose_diagonal_follows_from_sizes() -> None:
    functions = [
        lambda x: x.tril(x.shape[0] - 2),
        lambda x: x.triu(diagonal=x.shape[0] - 9),
        lambda x: torch.ones(x.shape[0], 7, dtype=torch.bool).triu(x.shape[0] // 2),
        lambda x: torch.ones(2, x.shape[0], 7).tril(3 - x.shape[0]),
    ]
    assert_functions(functions, lambda n: (torch.randn(n, 7),), [{0: N}])


def _modulated(x: Any, w: Any, bias: Any, **options: Any) -> Any:
    count, own = x.shape[0], w.shape[1]
    flat = F.conv2d(
        x.reshape(1, -1, *x.shape[2:]), w.reshape(-1, *w.shape[2:]), bias.reshape(-1), groups=count, **options
    )
    return flat.reshape(count, own, *flat.shape[2:])


def test_weights_of_each_image() -> None:
    functions = [
        lambda x, w, b: _modulated(x, w, b, padding=1),
        lambda x, w, b: _modulated(x, w, b, padding=2, stride=2, dilation=2),
        lambda x, w, b: _modulated(x, w[..., :1, :1], b),
    ]
    make = lambda n: (torch.randn(n, 3, 6, 7), torch.randn(n, 4, 3, 3, 3), torch.randn(n, 4))  # noqa: E731
    assert_functions(functions, make, [{0: N}] * 3)


def test_steps_that_follow_from_sizes() -> None:
    functions = [
        lambda x: torch.linspace(-1, 1, x.shape[0]),
        lambda x: torch.linspace(x[0, 0], 3.0, 2 * x.shape[0] + 1, dtype=torch.float64),
        lambda x: torch.linspace(0, 7, steps=x.shape[0] + 1, dtype=torch.float32),
        lambda x: torch.linspace(0.5, 2, 5, device=x.device),
    ]
    module = Functions(functions).eval()
    graph, weights = imported(dietcode.export(module, (torch.randn(9, 2),), dynamic_shapes=(({0: N},),)))
    for rows in (1, 2, 7, 20):
        assert_same(module, graph, weights, (torch.randn(rows, 2),))
