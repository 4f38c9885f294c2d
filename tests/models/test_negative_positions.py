"""Positions below 0 and behind the end, by operator: what eager PyTorch refuses, and what it wraps around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_runs import imported, torch
from kernel_runs import lowered, model_of

from dietcode.errors import ModelError, ShapeError
from dietcode.models.exporting import export
from dietcode.runtime.models.steps import computed

F = torch.nn.functional
ROWS, IGNORED = 5, -100
TABLE = torch.arange(15.0).reshape(ROWS, 3)
IDS = (-1, -ROWS, -ROWS - 1, ROWS - 1, ROWS, IGNORED)
ONES = torch.ones(1, 3)


class _Read(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.table = torch.nn.Parameter(TABLE)

    def forward(self, ids: Any) -> Any:
        """Return what a function reads of a table, or changes in it, at positions."""
        return self.function(self.table, ids)


OPERATORS: dict[str, Callable[..., Any]] = {
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding of int32": lambda x, i: F.embedding(i.int(), x, padding_idx=1),
    "embedding_bag": lambda x, i: F.embedding_bag(i, x, torch.tensor([0])),
    "index_select": lambda x, i: x.T.index_select(1, i),
    "one_hot": lambda x, i: F.one_hot(i, ROWS),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "scatter": lambda x, i: x.scatter(0, i[:, None], ONES),
    "scatter of a number": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[:, None], ONES),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[:, None], ONES, "mean"),
    "index_add": lambda x, i: x.index_add(0, i, ONES),
    "index_copy": lambda x, i: x.index_copy(0, i, ONES),
    "index_reduce": lambda x, i: x.index_reduce(0, i, ONES, "prod"),
    "index_fill": lambda x, i: x.T.index_fill(1, i, 7.0),
    "index_fill by a tensor": lambda x, i: x.index_fill(0, i, torch.tensor(7.0)),
    "take": lambda x, i: x.take(i),
    "take_along_dim": lambda x, i: x.take_along_dim(i[:, None], 0),
    "take_along_dim of all": lambda x, i: x.take_along_dim(i),
    "index": lambda x, i: x[i],
    "index of a later axis": lambda x, i: x.T[:, i],
    "index of two axes": lambda x, i: x[i, torch.zeros_like(i)],
    "index_put": lambda x, i: x.index_put((i,), torch.tensor(7.0)),
    "index_put that adds": lambda x, i: x.index_put((i,), ONES, accumulate=True),
    "nll_loss": lambda x, i: F.nll_loss(x.T[:1], i, reduction="none"),
    "cross_entropy": lambda x, i: F.cross_entropy(x.T[:1], i, label_smoothing=0.1, reduction="sum"),
    "cross_entropy ignoring 4": lambda x, i: F.cross_entropy(x.T[:1], i, ignore_index=4, reduction="sum"),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", OPERATORS)
def test_each_operator_beside_eager(name: str) -> None:
    module = _Read(OPERATORS[name]).eval()
    model = model_of(lowered((made := imported(export(module, (torch.tensor([1]),))))[0]), made[1])
    for number in IDS:
        ids = torch.tensor([number])
        try:
            with torch.no_grad():
                wanted = module(ids).numpy()
        except (IndexError, RuntimeError):
            with pytest.raises(ShapeError, match=rf"position.* {number}\b.*allowed: (0|-5|-15)( to |…)\d+"):
                model(ids)
            continue
        np.testing.assert_allclose(np.asarray(model(ids)), wanted, rtol=1e-6, err_msg=f"{number}")


@pytest.mark.parametrize("is_refused", [False, True])
def test_positions_of_a_kernel(is_refused: bool) -> None:
    """What one of the readers of positions refuses is refused, though another would take it."""
    table = torch.randn(50, 64)

    def both(ids: Any, table: Any) -> Any:
        return (F.layer_norm(table[ids], (64,)), *([F.embedding(ids, table).relu()] if is_refused else []))

    length = torch.export.Dim("L", min=1, max=64)
    module = _Read(lambda _, ids: both(ids, table)).eval()
    graph, weights = imported(export(module, (torch.zeros(9).long(),), dynamic_shapes=(({0: length}),)))
    made = lowered(graph)
    (wraps,) = {
        one["attributes"]["wraps"] for one in made.description["steps"] if one.get("host") == "positions"
    }
    model = model_of(made, weights)
    ids = np.array([49, 0, 7])
    for own, right in zip(model(ids), both(torch.tensor(ids), table), strict=True):
        np.testing.assert_allclose(own, right, rtol=1e-5, atol=1e-5)
    with pytest.raises(ShapeError, match=f"a position is 50; allowed: {-50 * wraps}…49"):
        model(np.array([1, 50, 3]))
    if is_refused:
        with pytest.raises(ShapeError, match=r"position.* -1"):
            model(np.array([-1]))
    else:
        (found,) = model(np.array([-1]))
        np.testing.assert_allclose(found, F.layer_norm(table[-1:], (64,)), rtol=1e-5, atol=1e-5)


def test_a_loss_that_pytorch_decomposes_to_another_value_is_refused() -> None:
    module = _Read(lambda x, i: F.multilabel_margin_loss(x.T[:1], i.expand(1, ROWS)))
    with pytest.raises(ModelError, match=r"multilabel_margin_loss_forward\.default: not known"):
        imported(export(module.eval(), (torch.tensor([1]),)))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_positions_of_kernels_that_do_not_wrap(dtype: Any) -> None:
    (found,) = computed("positions", [np.array([0, 4], dtype)], {"rows": 5, "wraps": False})
    assert found.tolist() == [0, 4]
    for wrong in (-1, 5):
        with pytest.raises(ShapeError, match=f"a position is {wrong}; allowed: 0…4, rows of the table"):
            computed("positions", [np.array([1, wrong], dtype)], {"rows": 5, "wraps": False})
