"""What follows from sizes alone is a part of a table, and causal masks are a word of attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_runs import assert_same, exported, imported, torch

from dietcode.errors import ShapeError
from dietcode.graph.graph import Graph
from dietcode.models.rewriting import rewrite
from dietcode.runtime.models.steps import computed

F = torch.nn.functional
MOST = 24
L = torch.export.Dim("L", min=1, max=MOST)
P = torch.export.Dim("P", min=0, max=MOST)
_VIEWS = {"slice", "reshape", "transpose", "expand"}


class _Model(torch.nn.Module):
    def __init__(self, function: Callable[..., Any], rows: int = 30) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("table", torch.randn(rows, 8))
        self.register_buffer("rate", torch.rand(4))
        self.register_buffer("square", torch.randn(30, 30))

    def forward(self, *args: Any) -> Any:
        """Return what the function does, which gets the module too."""
        return self.function(self, *args)


def _angles(m: Any, x: Any, past: Any) -> Any:
    positions = torch.arange(past.shape[0], past.shape[0] + x.shape[0])
    angles = positions[:, None].to(torch.float32) * m.rate
    angles = torch.cat([angles, angles], -1)
    return x * angles.cos() + x.flip(-1) * angles.sin()


def _distances(m: Any, x: Any, past: Any) -> Any:
    keys = torch.arange(x.shape[0] + past.shape[0])
    queries = torch.arange(past.shape[0], past.shape[0] + x.shape[0])
    bias = -(queries[:, None] - keys[None, :]).abs().float() * 0.25
    return x @ torch.cat([past, x]).T + bias


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "rows": lambda m, x, past: x + m.table[torch.arange(x.shape[0])],
    "rows of a batch": lambda m, x, past: (x + F.embedding(torch.arange(x.shape[0])[None], m.table))[0],
    "part of a weight": lambda m, x, past: x * (m.table[: x.shape[0]] * 2.0).tanh(),
    "part within a part": lambda m, x, past: x.T + torch.arange(x.shape[0] + 1)[1:].float(),
    "parts of both axes": lambda m, x, past: x @ x.T * m.square[: x.shape[0], : x.shape[0]].exp(),
    "angles": _angles,
    "distances": _distances,
    "turned": lambda m, x, past: x + torch.outer(m.rate.repeat(2), torch.arange(x.shape[0]).float()).T,
    "other lengths": lambda m, x, past: (
        x.sum() + torch.arange(x.shape[0])[:, None] * torch.arange(1, past.shape[0] + 2)
    ),
}


def _of_sizes(graph: Graph) -> set[str]:
    """Return the operators that each call has to compute although their operands follow from sizes alone."""
    known, found = set(graph.weights), set()
    for node in graph.nodes:
        if not known.issuperset(node.tensors):
            continue
        known.update(node.results)
        extents = [extent for result in node.results for extent in graph.types[result].shape]
        if node.operator not in _VIEWS and not all(extent.is_constant for extent in extents):
            found.add(node.operator)
    return found


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_nothing_of_sizes_is_left_to_calls(name: str) -> None:
    model = _Model(FUNCTIONS[name])
    program = exported(model, (torch.ones(9, 8), torch.ones(5, 8)), (({0: L}, {0: P}),))
    graph, weights = imported(program)
    graph = rewrite(graph)
    assert not _of_sizes(graph)
    for rows, past in ((1, 0), (7, 3), (MOST, MOST)):
        assert_same(model, graph, weights, (torch.randn(rows, 8), torch.randn(past, 8)))


def test_rows_that_may_lie_behind_the_table_are_looked_up_by_each_call() -> None:
    model = _Model(FUNCTIONS["rows"], rows=MOST - 1)
    graph, weights = imported(exported(model, (torch.ones(9, 8), torch.ones(5, 8)), (({0: L}, {0: P}),)))
    graph = rewrite(graph)
    assert [node.operator for node in graph.nodes].count("take") == 1
    assert_same(model, graph, weights, (torch.randn(MOST - 1, 8), torch.randn(1, 8)))


def _visible(m: Any, length: Any, past: Any) -> Any:
    return torch.arange(past + length)[None, :] <= torch.arange(past, past + length)[:, None]


def _late(m: Any, length: Any, past: Any) -> Any:
    return torch.arange(length)[:, None] < torch.arange(length)[None, :]


MASKS: dict[str, tuple[Callable[..., Any], str]] = {
    "visible": (lambda m, n, past: torch.zeros(1).where(_visible(m, n, past), -torch.inf), "last"),
    "hidden": (
        lambda m, n, past: torch.zeros(n, past + n).masked_fill(~_visible(m, n, past), -torch.inf),
        "last",
    ),
    "least number": (
        lambda m, n, past: torch.where(_visible(m, n, past), 0.0, torch.finfo(torch.float32).min),
        "last",
    ),
    "greater": (lambda m, n, past: torch.where(_late(m, n, past)[None, None], -1e38, 0.0), "first"),
    "upper triangle": (lambda m, n, past: torch.full((n, n), -torch.inf).triu(1), "first"),
    "lower triangle": (
        lambda m, n, past: torch.where(torch.ones(n, n, dtype=torch.bool).tril(), 0.0, -torch.inf),
        "first",
    ),
    "upper triangle beside a cache": (
        lambda m, n, past: torch.full((n, past + n), -torch.inf).triu(past + 1),
        "last",
    ),
    "lower triangle beside a cache": (
        lambda m, n, past: torch.where(torch.ones(n, past + n, dtype=torch.bool).tril(past), 0.0, -torch.inf),
        "last",
    ),
    "one later": (lambda m, n, past: torch.full((n, n), -torch.inf).triu(2), "none"),
    "itself hidden": (
        lambda m, n, past: torch.where(
            torch.arange(n)[None, :] < torch.arange(1, n + 1)[:, None] - 1, 0.0, -1e38
        ),
        "none",
    ),
    "a little": (lambda m, n, past: torch.full((n, n), -2.0).triu(1), "none"),
    "from the first": (
        lambda m, n, past: torch.where(
            torch.arange(past + n)[None, :] <= torch.arange(n)[:, None], 0.0, -torch.inf
        ),
        "none",
    ),
}


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize("name", list(MASKS))
def test_causal_masks(name: str) -> None:
    make, wanted = MASKS[name]

    def attend(m: Any, x: Any, past: Any) -> Any:
        count = past.shape[2]
        mask = make(m, x.shape[2], count)
        keys = torch.cat([past, x], 2) if mask.shape[-1] != x.shape[2] else x
        return (x @ keys.transpose(-1, -2) * 0.5 + mask).softmax(-1) @ keys

    with_past = wanted == "last" or name == "from the first"
    model = _Model(attend) if with_past else _Model(lambda m, x, past: _alone(m, x, past, make))
    args = torch.ones(2, 3, 9, 8), torch.ones(2, 3, 5, 8)
    graph, weights = imported(exported(model, args, (({2: L}, {2: P}),)))
    graph = rewrite(graph)
    (attention,) = [node for node in graph.nodes if node.operator == "attention"]
    assert attention.attributes["causal"] == wanted
    assert (len(attention.operands) > 3) == (wanted == "none")
    for rows, past in ((1, 0), (7, 3), (MOST, MOST)):
        assert_same(model, graph, weights, (torch.randn(2, 3, rows, 8), torch.randn(2, 3, past, 8)))


def _alone(m: Any, x: Any, past: Any, make: Callable[..., Any]) -> Any:
    return (x @ x.transpose(-1, -2) * 0.5 + make(m, x.shape[2], 0)).softmax(-1) @ x


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_positions_are_looked_at_in_each_dtype(dtype: Any) -> None:
    (found,) = computed("positions", [np.array([[0, 99, 7]], dtype)], {"rows": 100})
    assert found.dtype == np.int32 and found.tolist() == [[0, 99, 7]]
    for rows, given in ((100, 100), (99, 99)):
        with pytest.raises(ShapeError, match=f"a position is {given}"):
            computed("positions", [np.array([given], dtype)], {"rows": rows})
    if np.dtype(dtype).kind == "i":
        (found,) = computed("positions", [np.array([-1, -128, 3], dtype)], {"rows": 200})
        assert found.tolist() == [199, 72, 3]
        with pytest.raises(ShapeError, match="a position is -101"):
            computed("positions", [np.array([-101], dtype)], {"rows": 100})
    if dtype == np.int64:
        with pytest.raises(ShapeError, match="4294967301"):
            computed("positions", [np.array([2**32 + 5])], {"rows": 100})
