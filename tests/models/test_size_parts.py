"""dietcode.export: parts of dynamic axes, and vectors as long as a size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from graph_runs import Functions, assert_same, imported, run_graph, torch

from dietcode.errors import ModelError, ShapeError
from dietcode.models.exporting import export

Dim, F = torch.export.Dim, torch.nn.functional
B, L = Dim("B", min=1, max=9), Dim("L", min=2, max=16)
HERE = "/".join(Path(__file__).parts[-2:])


def _both(x: Any, axis: int = 1) -> Any:
    return torch.cat([x, x * 3], axis)


PARTS: dict[str, Callable[[Any], Any]] = {
    "split": lambda x: _both(x).split(x.shape[1], 1),
    "split of three": lambda x: torch.split(torch.cat([_both(x), x], 1), x.shape[1], dim=-1),
    "split with a rest": lambda x: torch.cat([x, x[:, :1]], 1).split(x.shape[1], 1),
    "split of a constant": lambda x: F.pad(x, (0, 3))[:, :5].split(2, 1),
    "chunk": lambda x: _both(x, 0).chunk(2),
    "function chunk": lambda x: torch.chunk(_both(x), chunks=2, dim=-1),
    "chunk of any length": lambda x: x.chunk(2, 1),
    "sections": lambda x: x.tensor_split(3, 1),
    "keyword sections": lambda x: torch.tensor_split(x, sections=4, dim=-1),
    "indices": lambda x: torch.tensor_split(_both(x), (1, x.shape[1]), dim=1),
    "one hot": lambda x: F.one_hot((x.abs() * 9).long().clamp(max=x.shape[1] - 1), x.shape[1]),
}


@pytest.mark.sampled(keep=5)
@pytest.mark.parametrize("name", list(PARTS))
def test_parts(name: str) -> None:
    """Sections were those of the example for all lengths, and all others were refused."""
    module = Functions([PARTS[name]]).eval()
    graph, weights = imported(export(module, (torch.randn(4, 9),), dynamic_shapes=(({0: B, 1: L},),)))
    for sizes in ((1, 2), (9, 16), (2, 3), (3, 4), (4, 5)):
        assert_same(module, graph, weights, (torch.randn(sizes),))


@pytest.mark.parametrize("function", [lambda x: x.chunk(3, 1), lambda x: x.chunk(2)])
def test_numbers_of_parts_that_a_size_tells(function: Callable[[Any], Any]) -> None:
    with pytest.raises(ModelError, match=rf"a branch on .* < [BL] \({HERE}:"):
        export(Functions([function]).eval(), (torch.randn(4, 9),), dynamic_shapes=(({0: B, 1: L},),))


def test_numbers_of_parts_that_sizes_tell() -> None:
    """Relations of two sizes are checked by each call, as those of a model's own branches are."""
    module = Functions([lambda x: x.split(x.shape[0], 1)]).eval()
    longer = Dim("L", min=4, max=16)
    graph, weights = imported(export(module, (torch.randn(4, 9),), dynamic_shapes=(({0: B, 1: longer},),)))
    assert_same(module, graph, weights, (torch.randn(5, 15),))
    with pytest.raises(ShapeError, match=r"requires 2\*B < L"):
        run_graph(graph, weights, {"args_0": torch.randn(5, 9).numpy()})


def test_a_class_that_is_none() -> None:
    module = Functions([lambda x: F.one_hot(x, x.shape[0])]).eval()
    graph, weights = imported(export(module, (torch.arange(4),), dynamic_shapes=(({0: B},),)))
    with pytest.raises(Exception, match="6"):
        run_graph(graph, weights, {"args_0": torch.tensor([1, 6, 0]).numpy()})
