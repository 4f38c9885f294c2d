"""Windows of any size, padding by sizes, and images read at grids: imported graphs beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from graph_runs import Functions, assert_functions, assert_same, imported, torch
from needs import ODD_WINDOWS, needs_torch

import dietcode

F = torch.nn.functional
H = torch.export.Dim("H", min=4, max=64)
Function = Callable[..., Any]


def _images(size: int) -> tuple[Any, ...]:
    torch.manual_seed(size)
    return torch.randn(2, 3, size, 9), torch.randn(2, 2, 5, size, 8)


WINDOWS: dict[str, list[Function]] = {
    "pools": [
        lambda x, y: F.avg_pool1d(x[0], 3, 2, 1),
        lambda x, y: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        lambda x, y: F.max_pool2d(x, (2, 3), 1, 1),
        lambda x, y: F.avg_pool3d(y, 2),
        lambda x, y: F.avg_pool3d(y, (2, 3, 1), 2, (1, 1, 0), count_include_pad=False),
        lambda x, y: F.max_pool3d(y, (1, 2, 2), (2, 1, 2), ceil_mode=True),
        lambda x, y: F.max_pool3d(y[0], 3, 1, 1),
    ],
    "as many windows as are wanted": [
        lambda x, y: F.adaptive_avg_pool2d(x, 1),
        lambda x, y: F.adaptive_avg_pool2d(x, (7, 3)),
        lambda x, y: F.adaptive_avg_pool2d(x, (None, 4)),
        lambda x, y: F.adaptive_avg_pool1d(x[0], 5),
        lambda x, y: F.adaptive_avg_pool3d(y, (2, 3, 8)),
        lambda x, y: F.adaptive_max_pool2d(x, (3, 1)),
        lambda x, y: F.adaptive_max_pool2d(x, 4),
        lambda x, y: F.adaptive_max_pool1d(x[0].mT, 2),
        lambda x, y: F.adaptive_avg_pool2d(x.repeat_interleave(3, 2), (x.shape[2], 3)),
    ],
    "padding by sizes": [
        lambda x, y: F.pad(x, (0, 0, 0, (7 - x.shape[2] % 7) % 7)),
        lambda x, y: F.pad(x, (1, 0, x.shape[2] // 3, 0), value=2.5),
        lambda x, y: F.pad(x, (0, 0, 0, 9 - x.shape[2])),
        lambda x, y: F.pad(x > 0, (0, 0, 64 - x.shape[2], 0), value=True),
        lambda x, y: F.pad(x, (0, 0, 0, (4 - x.shape[2] % 4) % 4), mode="replicate"),
        lambda x, y: F.pad(x, (0, 0, x.shape[2] // 2, 1), mode="reflect"),
    ],
}


@needs_torch("2.11", ODD_WINDOWS)
@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str) -> None:
    assert_functions(WINDOWS[name], _images, [{2: H}, {3: H}], (4, 7, 9, 13))


H_W = ({2: torch.export.Dim("H", min=3, max=12), 3: torch.export.Dim("W", min=3, max=12)},)
POSITIONS: list[Function] = [
    lambda x: F.max_pool2d(x, 2, return_indices=True),
    lambda x: F.max_pool2d(x[0], (3, 2), 2, (1, 0), return_indices=True),
    lambda x: F.max_pool1d(x[0], 3, 2, 1, return_indices=True),
    lambda x: F.max_pool3d(x, 2, 1, return_indices=True),
    lambda x: F.max_pool2d(x, 2, ceil_mode=True, return_indices=True),
    lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
    lambda x: F.max_pool1d(x[0], 2, 3, ceil_mode=True, return_indices=True),
    lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=x.shape[-2:]),
]
ROUNDED_UP: list[Function] = [
    lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    lambda x: F.avg_pool2d(x, 2, 2, 1, ceil_mode=True, count_include_pad=False),
    lambda x: (
        F.max_pool2d(x, 3, 3, 1, ceil_mode=True).flatten(2)
        * F.max_pool2d(x, 3, 3, 1, ceil_mode=True).shape[2]
    ),
    lambda x: torch.arange(F.max_pool2d(x, 2, 2, 1, ceil_mode=True).shape[3]),
    lambda x: F.max_pool1d(x[0], 2, ceil_mode=True) + torch.max_pool1d(x[0, :, :1], [2], [20]),
]


@pytest.mark.parametrize("functions", [POSITIONS, ROUNDED_UP], ids=["positions", "rounded up"])
def test_windows_of_images(functions: list[Function]) -> None:
    """Positions were None; sizes of ``ceil_mode`` were those of the example's way of PyTorch's branch."""
    module = Functions(functions).eval()
    program = dietcode.export(module, (torch.randn(2, 4, 6, 7),), dynamic_shapes=(H_W,))
    graph, weights = imported(program)
    for size in ((3, 3), (12, 12), (3, 8), (5, 6), (4, 7)):
        assert_same(module, graph, weights, (torch.randn(2, 4, *size),))


def _points(size: int) -> tuple[Any, ...]:
    """Images, points that lie beyond them too, and points in three axes."""
    torch.manual_seed(size)
    points = [torch.rand(2, *shape) * 3 - 1.5 for shape in ((size, 5, 2), (3, size, 2, 3))]
    return torch.randn(2, 3, 6, size), *points


def _read(mode: str, beyond: str, aligned: bool) -> Function:
    def read(x: Any, grid: Any, deep: Any) -> Any:
        how = {"mode": mode, "padding_mode": beyond, "align_corners": aligned}
        return F.grid_sample(x, grid, **how), F.grid_sample(x[:, :, None], deep, **how)

    return read


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_grids(mode: str) -> None:
    functions = [
        _read(mode, beyond, aligned)
        for beyond in ("zeros", "border", "reflection")
        for aligned in (True, False)
    ]
    assert_functions(functions, _points, [{3: H}, {1: H}, {2: H}], (4, 7, 13))


def test_what_lies_beyond_an_image_is_zero_where_its_corner_is_infinite() -> None:
    def points(size: int) -> tuple[Any, ...]:
        image, grid = torch.ones(1, 1, size, size), torch.full((1, size, 1, 2), -1.5)
        image[..., 0, 0] = float("inf")
        return image, grid

    assert_functions(
        [lambda x, g: F.grid_sample(x, g, align_corners=True)], points, [{2: H, 3: H}, {1: H}], (4, 6)
    )
