"""Sizes that depend on values, and checks of them, beside eager PyTorch."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_runs import assert_same, exported, imported, torch
from kernel_runs import lowered, model_of

from dietcode.errors import ModelError, ShapeError
from dietcode.graph.graph import Graph
from dietcode.graph.reading import read_graph
from dietcode.runtime.models.model import Model

L = torch.export.Dim("L", min=1, max=64)
while_loop = importlib.import_module("torch._higher_order_ops.while_loop").while_loop


class _Module(torch.nn.Module):
    """A function beside layers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.layer, self.wide = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, *args: Any) -> Any:
        """Return what the function does."""
        return self.function(self, *args)


def _made(function: Callable[..., Any]) -> tuple[Any, Graph, Any, Model]:
    module = _Module(function).eval()
    graph, weights = imported(exported(module, (torch.randn(9, 8),), (({0: L},),)))
    data = json.loads(json.dumps(graph.to_json()))
    assert read_graph(data).to_json() == data
    return module, graph, weights, model_of(lowered(graph), weights)


def _same(module: Any, compiled: Model, *args: Any) -> None:
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(module(*args))
    found = torch.utils._pytree.tree_leaves(compiled(*args))
    for own, right in zip(found, wanted, strict=True):
        assert own.shape == right.shape and own.dtype == right.dtype
        if right.numel():
            scale = max(1.0, float(right.double().abs().max()))
            np.testing.assert_allclose(own, right, rtol=0, atol=1e-4 * scale)


def _positions(m: Any, x: Any) -> Any:
    return torch.nonzero(x > 0), torch.nonzero(x.sum(1) > 0).float() * 2


def _rows_of_a_mask(m: Any, x: Any) -> Any:
    kept = x[x[:, 0] > 0]
    return torch.relu(m.wide(torch.relu(m.layer(kept)))), kept.sum(0), kept.softmax(-1)


def _elements(m: Any, x: Any) -> Any:
    chosen = torch.masked_select(x, x > 0.5)
    return torch.cat([chosen, chosen * 2]), x[x > 1].sum()


def _scattered_back(m: Any, x: Any) -> Any:
    at = torch.nonzero(x[:, 0] > 0).squeeze(1)
    rows = m.layer(x[at])
    marks = torch.zeros(x.shape[0]) + (torch.arange(x.shape[0])[:, None] == at).any(1).float()
    return rows, marks


def _first_ones(m: Any, x: Any) -> Any:
    count = (x[:, 0] > 0).sum().item()
    torch._check(count >= 0)
    torch._check(count <= x.shape[0])
    return x[:count] * 2, torch.arange(count), x * count


def _until(m: Any, x: Any) -> Any:
    end = x.abs().sum().to(torch.int64).item()
    torch._check(end >= 1)
    torch._check(end <= 40000)
    return torch.arange(1, end + 1, dtype=torch.float32).sum() + torch.zeros(end, 3).sum()


def _repeated(m: Any, x: Any) -> Any:
    counts = (x[:, 0].abs() * 3).to(torch.int64)
    whole = torch.repeat_interleave(x, counts, dim=0)
    torch._check(whole.shape[0] <= 1000)
    return m.layer(whole)


def _one_after_the_other(m: Any, x: Any) -> Any:
    first = x[x[:, 0] > 0]
    second = first[first[:, 1] > 0]
    third = second[second[:, 2] > 0]
    return first.mean(1), second.mean(1), m.layer(third)


def _best_boxes(m: Any, x: Any) -> Any:
    """The best that are good enough: at most as many as asked for, as after non-maximum suppression."""
    scores, order = torch.topk(x[:, 0], x.shape[0])
    good = torch.nonzero(scores > 0).squeeze(1)
    return x[order[good]], scores[good]


def _in_a_branch(m: Any, x: Any) -> Any:
    def few(y: Any) -> Any:
        return m.layer(y[y[:, 0] > 0]).sum(0)

    return torch.cond(x.sum() > 0, few, lambda y: y.sum() + m.layer(y).sum(0), (x,)) + 1


def _in_a_loop(m: Any, x: Any) -> Any:
    def body(k: Any, y: Any) -> Any:
        return k + 1, y + y[y[:, 0] > k].sum(0)

    return while_loop(lambda k, y: k < 3, body, (torch.tensor(0), x))


def _loop_of_a_size(m: Any, x: Any) -> Any:
    kept = x[x[:, 0] > 0]
    return while_loop(lambda k, y: k < 3, lambda k, y: (k + 1, m.wide(m.layer(y))), (torch.tensor(0), kept))


FUNCTIONS = [
    pytest.param(_positions, marks=pytest.mark.long),
    _rows_of_a_mask,
    pytest.param(_elements, marks=pytest.mark.long),
    pytest.param(_scattered_back, marks=pytest.mark.long),
    pytest.param(_first_ones, marks=pytest.mark.long),
    _until,
    pytest.param(_repeated, marks=pytest.mark.long),
    pytest.param(_one_after_the_other, marks=pytest.mark.long),
    pytest.param(_best_boxes, marks=pytest.mark.long),
    pytest.param(_in_a_branch, marks=pytest.mark.long),
    pytest.param(_in_a_loop, marks=pytest.mark.long),
    pytest.param(_loop_of_a_size, marks=pytest.mark.long),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions(function: Callable[..., Any]) -> None:
    module, graph, weights, compiled = _made(function)
    for length in (1, 2, 13, 64):
        for more in (-9.0, -0.5, 0.0, 0.5, 3.0):  # from no element to all
            x = torch.randn(length, 8) + more
            if function is _repeated:
                x = x.clamp(-4, 4)
            assert_same(module, graph, weights, (x,))
            _same(module, compiled, x)
            _same(module, compiled, x)  # prepared before


def test_memory_is_planned_by_bounds_and_grows_no_more() -> None:
    module, graph, _, compiled = _made(_rows_of_a_mask)
    assert {name: str(most) for name, most in graph.sizes.items()} == {"u0": "args_0_0"}
    x = torch.randn(64, 8)
    _same(module, compiled, x - 9)
    (place,) = compiled._free
    generation = place._memory.generation
    for seed in range(20):
        torch.manual_seed(seed)
        _same(module, compiled, torch.randn(64, 8) + seed % 3)
    assert place._memory.generation == generation


def test_what_is_prepared_for_sizes_is_limited() -> None:
    _, _, _, compiled = _made(_until)
    x = torch.zeros(1, 8)
    for end in range(1, 200):
        x[0, 0] = end
        compiled(x)
    (place,) = compiled._free
    (prepared,) = place._prepared.values()
    assert len(prepared._tails._known) <= 64


def test_a_size_out_of_bounds_is_an_error_of_the_call() -> None:
    _, _, _, compiled = _made(_until)
    for value in (0.0, 40001.0):
        with pytest.raises(ShapeError) as caught:
            compiled(torch.tensor([[value, 0, 0, 0, 0, 0, 0, 0]]))
        assert "test_value_sizes.py:" in str(caught.value)
        assert f"is {int(value)}; allowed: 1…40000" in str(caught.value)
    compiled(torch.ones(1, 8))
    assert len(compiled._free) == 1


def test_checks_of_sizes_and_of_shapes_are_made_when_they_are_known() -> None:
    def function(m: Any, x: Any, y: Any) -> Any:
        first, second = (x > 0).sum().item(), (y > 0).sum().item()
        for one in (first, second):
            torch._check(one >= 0)
            torch._check(one <= 512)
        torch._check(first + second <= 20)
        torch._check(first == 2 * second)
        return torch.arange(first), torch.arange(second)

    module = _Module(function).eval()
    program = exported(module, (torch.zeros(9, 8), torch.zeros(9, 8)), (({0: L}, {0: L}),))
    graph, weights = imported(program)
    compiled = model_of(lowered(graph), weights)

    def given(first: int, second: int) -> Any:
        rows = [torch.zeros(9, 8), torch.zeros(9, 8)]
        for one, count in zip(rows, (first, second), strict=True):
            one.view(-1)[:count] = 1
        return rows

    for second in (0, 3, 6):
        _same(module, compiled, *given(2 * second, second))
    for wrong in ((3, 1), (16, 8)):
        with pytest.raises(ShapeError, match="the model requires"):
            compiled(*given(*wrong))
        with pytest.raises(RuntimeError):
            module(*given(*wrong))
    _same(module, compiled, *given(4, 2))


def test_checks_of_values_whose_results_nothing_reads() -> None:
    def function(m: Any, x: Any) -> Any:
        torch.ops.aten._assert_async.msg(x.max() < 100, "too large")
        return x * 2

    module, _, _, compiled = _made(function)
    _same(module, compiled, torch.ones(3, 8))
    with pytest.raises(
        ShapeError, match=r"the model requires a value that is not true here \(models/test_value"
    ):
        compiled(torch.full((3, 8), 200.0))


def test_a_branch_on_a_size() -> None:
    def function(m: Any, x: Any) -> Any:
        count = (x[:, 0] > 0).sum().item()
        torch._check(count >= 0)
        torch._check(count <= 64)
        return torch.cond(count > 5, lambda y: y * 2, lambda y: y - 1, (x,))

    module, _, _, compiled = _made(function)
    for length in (1, 30):
        for more in (-3.0, 3.0):
            _same(module, compiled, torch.randn(length, 8) + more)


def _unbounded(m: Any, x: Any) -> Any:
    end = x.sum().to(torch.int64).item()
    torch._check(end >= 0)
    return torch.arange(end)


def _unbounded_repeats(m: Any, x: Any) -> Any:
    return torch.repeat_interleave(x, x[:, 0].to(torch.int64), dim=0)


@pytest.mark.parametrize("function", [_unbounded, _unbounded_repeats])
def test_sizes_without_bounds_are_refused_with_what_to_write(function: Callable[..., Any]) -> None:
    program = exported(_Module(function), (torch.randn(9, 8),), (({0: L},),))
    with pytest.raises(ModelError, match=r"write torch\._check\(size .*\(models/test_value_sizes\.py:\d+\)"):
        imported(program)
