"""Branches and loops: of PyTorch beside eager PyTorch, and by hand beside the interpreter of graphs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_runs import assert_same, exported, imported, run_graph, torch
from kernel_runs import lowered, model_of

from dietcode.errors import ModelError
from dietcode.graph.extent import Extent
from dietcode.graph.graph import Graph
from dietcode.graph.reading import read_graph
from dietcode.graph.tensor_type import TensorType
from dietcode.models.lifetimes import inner_steps, writes_of

cond = torch.cond
while_loop = importlib.import_module("torch._higher_order_ops.while_loop").while_loop
scan = importlib.import_module("torch._higher_order_ops.scan").scan
map_ = importlib.import_module("torch._higher_order_ops.map").map
L = torch.export.Dim("L", min=1, max=64)
LENGTHS = (1, 2, 13, 64)


class _Module(torch.nn.Module):
    """A function beside layers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.conv, self.norm = torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4)

    def forward(self, x: Any) -> Any:
        """Return what the function does."""
        return self.function(self, x)


def _one_of_two_layers(m: Any, x: Any) -> Any:
    return cond(x.sum() > 0, lambda y: torch.relu(m.first(y)), lambda y: m.second(y) * 2, (x,))


def _several_results(m: Any, x: Any) -> Any:
    total = x.sum()
    a, b = cond(
        total > 0,
        lambda y: (y + 1, y.mean(0)),
        lambda y: (m.first(y).transpose(0, 1).clone().T, y[0] * 2),
        (x,),
    )
    return {"a": a, "b": b + total}


def _nested_branches(m: Any, x: Any) -> Any:
    def outer(y: Any) -> Any:
        return cond(y.max() > 2, lambda z: m.first(z).tanh(), lambda z: z - 1, (y,)) + 1

    return cond(x.mean() > 0, outer, lambda y: m.second(m.first(y)), (x,))


def _until_large(m: Any, x: Any) -> Any:
    def holds(step: Any, y: Any) -> Any:
        return (step < 20) & (y.abs().max() < 30)

    return while_loop(holds, lambda step, y: (step + 1, y * 1.5 + m.first(y).sigmoid()), (torch.tensor(0), x))


def _loop_in_a_branch_in_a_loop(m: Any, x: Any) -> Any:
    def halves(y: Any) -> Any:
        return while_loop(lambda z: z.abs().max() > 1, lambda z: (z / 2,), (y,))[0]

    def step(k: Any, y: Any) -> Any:
        return k + 1, cond(y.sum() > 0, halves, lambda z: m.second(z) + 3, (y,))

    return while_loop(lambda k, y: k < 4, step, (torch.tensor(0), x))[1]


def _loop_in_a_loop(m: Any, x: Any) -> Any:
    def outer(k: Any, y: Any) -> Any:
        inner = while_loop(lambda n, z: n < k, lambda n, z: (n + 1, z + m.first(z)), (torch.tensor(0), y))
        return k + 1, inner[1]

    return while_loop(lambda k, y: k < 3, outer, (torch.tensor(0), x))


def _fibonacci(m: Any, x: Any) -> Any:
    def step(k: Any, a: Any, b: Any) -> Any:
        return k + 1, b.clone(), a + b

    return while_loop(lambda k, a, b: k < 5, step, (torch.tensor(0), x, x * 2))


def _no_round(m: Any, x: Any) -> Any:
    return while_loop(lambda k, y: k < 0, lambda k, y: (k + 1, y * 2), (torch.tensor(0), x))[1] + x


def _image(m: Any, x: Any) -> Any:
    y = x[None, None]
    return cond(x.sum() > 0, lambda z: torch.relu(m.norm(m.conv(z))), m.conv, (y,))


def _running(m: Any, x: Any) -> Any:
    return scan(lambda c, a: (c * 0.5 + a, m.first(c + a)), torch.zeros(8), x)


def _state_as_result(m: Any, x: Any) -> Any:
    def step(c: Any, a: Any) -> Any:
        h = torch.tanh(c + a)
        return h, h.clone()

    return scan(step, torch.zeros(8), x)


def _mapped(m: Any, x: Any) -> Any:
    return map_(lambda a, b: a * 2 + m.second(b), x, torch.ones(8))


FUNCTIONS = [
    _one_of_two_layers,
    pytest.param(_several_results, marks=pytest.mark.long),
    pytest.param(_nested_branches, marks=pytest.mark.long),
    pytest.param(_until_large, marks=pytest.mark.long),
    _loop_in_a_branch_in_a_loop,
    pytest.param(_loop_in_a_loop, marks=pytest.mark.long),
    pytest.param(_fibonacci, marks=pytest.mark.long),
    pytest.param(_no_round, marks=pytest.mark.long),
    pytest.param(_image, marks=pytest.mark.long),
    _running,
    _state_as_result,
    pytest.param(_mapped, marks=pytest.mark.long),
]


@pytest.mark.thorough
@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions(function: Callable[..., Any]) -> None:
    module = _Module(function).eval()
    graph, weights = imported(exported(module, (torch.randn(3, 8),), ({0: L},)))
    data = json.loads(json.dumps(graph.to_json()))
    assert read_graph(data).to_json() == data
    compiled = model_of(lowered(graph), weights)
    for length in LENGTHS:
        for more in (-2.0, 0.0, 2.0):
            x = torch.randn(length, 8) + more
            assert_same(module, graph, weights, (x,))
            with torch.no_grad():
                wanted = torch.utils._pytree.tree_leaves(module(x))
            found = torch.utils._pytree.tree_leaves(compiled(x))
            for own, right in zip(found, wanted, strict=True):
                assert own.shape == right.shape and own.dtype == right.dtype
                np.testing.assert_allclose(own, right, rtol=0, atol=1e-4 * max(1.0, float(right.abs().max())))


def test_kernels_within_are_parts_and_equal_ones_are_one() -> None:
    """A layer in a branch, in a loop and outside of both is one library."""

    def function(m: Any, x: Any) -> Any:
        y = cond(x.sum() > 0, m.first, m.second, (m.first(x),))
        return while_loop(lambda k, z: k < 3, lambda k, z: (k + 1, m.second(z)), (torch.tensor(0), y))

    graph, _ = imported(exported(_Module(function), (torch.randn(3, 8),), ({0: L},)))
    made = lowered(graph)
    (digest,) = made.specs
    assert len(made.calls[digest]) == 4
    branch = next(step for step in made.description["steps"] if "branch" in step)
    assert all("kernel" in step for word in ("then", "else") for step in branch[word])
    loop = next(step for step in made.description["steps"] if "loop" in step)
    assert [step.get("kernel") for step in loop["loop"]["body"]] == [None, digest]


def test_the_sides_of_a_branch_share_memory_and_states_do_not() -> None:
    def function(m: Any, x: Any) -> Any:
        y = cond(
            x.sum() > 0,
            lambda z: m.first(m.first(z).softmax(0)).softmax(0),
            lambda z: m.second(m.second(z).softmax(0)).softmax(0),
            (x,),
        )
        return while_loop(lambda z: z.sum() < 30, lambda z: (m.first(z.exp().cumsum(0)),), (y,))

    graph, _ = imported(exported(_Module(function), (torch.randn(3, 8),), ({0: L},)))
    description = lowered(graph).description
    branch, loop = (step for step in description["steps"] if "branch" in step or "loop" in step)
    of = description["storages"]["of"]

    def inside(word: str) -> set[int]:
        names = {name for step in branch[word] for name in writes_of(step)}
        return {of[name] for name in names if name in of and name not in branch["results"]}

    assert inside("then") & inside("else")
    (carried,) = loop["loop"]["carried"]
    own = [of[carried["state"]], of[carried["next"]]]
    inner = [name for steps in inner_steps(loop) for step in steps for name in writes_of(step)]
    others = {of[name] for name in inner if name != carried["next"]}
    assert len(set(own)) == 2 and others and not others & set(own)


# --- graphs by hand: what PyTorch's functions may not do, such as giving an input as it is

F = TensorType("float32", (Extent.of("L"), Extent.of(4)))


def _graph(*inputs: str) -> Graph:
    graph = Graph("by-hand", {"L": (1, 9)})
    for name in inputs:
        graph.add_input(name, F)
    graph.signature = {"positional": list(inputs), "keyword": {}, "output": {"tuple": []}}
    return graph


def _sub(graph: Graph, inputs: list[TensorType], build: Callable[..., list[str]]) -> Graph:
    sub = graph.sub_graph("sub")
    names = [sub.add_input(f"p{number}", type_) for number, type_ in enumerate(inputs)]
    sub.outputs = build(sub, *names)
    return sub


def _check(graph: Graph, outputs: list[str], weights: dict[str, Any] | None = None) -> None:
    graph.outputs = outputs
    graph.signature["output"] = {"tuple": ["*"] * len(outputs)}
    assert read_graph(graph.to_json()).to_json() == graph.to_json()
    model = model_of(lowered(graph), weights or {})
    for length in (1, 5, 9):
        rng = np.random.default_rng(length)
        given = {name: rng.standard_normal((length, 4), np.float32) for name in graph.inputs}
        for sign in (1, -1):
            given = {name: one * sign for name, one in given.items()}
            wanted = run_graph(graph, weights or {}, given)
            for own, right in zip(model(*given.values()), wanted, strict=True):
                np.testing.assert_allclose(own, right, rtol=1e-5, atol=1e-5)


def _positive(graph: Graph, value: str) -> str:
    return graph.add("less", 0.0, graph.add("sum", value))


def test_a_branch_that_gives_inputs_views_and_one_value_twice() -> None:
    graph = _graph("x", "y")
    truth = _positive(graph, "x")

    def turned(sub: Graph, a: str, b: str) -> list[str]:
        first = sub.add("transpose", a, axes=(1, 0))
        back = sub.add("transpose", first, axes=(1, 0))
        double = sub.add("mul", b, 2.0)
        return [back, double, double]

    graph.add(
        "cond",
        truth,
        "x",
        "y",
        **{
            "then": _sub(graph, [F, F], turned),
            "else": _sub(graph, [F, F], lambda sub, a, b: [b, a, a]),
        },
    )
    _check(graph, list(graph.nodes[-1].results))


@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_states_that_change_places_and_states_that_stay(rounds: int) -> None:
    graph = _graph("x", "y", "z")
    start = graph.add("full", shape=(), value=0, dtype="int64")
    count = TensorType("int64", ())

    def body(sub: Graph, k: str, a: str, b: str, c: str, d: str) -> list[str]:
        return [sub.add("add", k, 1), b, a, c, sub.add("reshape", d, shape=F.shape)]

    types = [count, F, F, F, F]
    graph.add(
        "while_loop",
        *(start, "x", "y", "z", "x"),
        carried=5,
        condition=_sub(graph, types, lambda sub, k, *rest: [sub.add("less", k, rounds)]),
        body=_sub(graph, types, body),
    )
    _check(graph, [*graph.nodes[-1].results, "x"])


def test_a_scan_of_nothing_but_its_positions() -> None:
    graph = _graph("x", "y")
    row = TensorType("float32", (Extent.of(4),))
    body = _sub(graph, [row, row], lambda sub, a, b: [a, a, b, sub.add("mul", a, b)])
    graph.add("scan", "x", "y", carried=0, each=2, body=body)
    _check(graph, list(graph.nodes[-1].results))


def test_weights_and_what_follows_from_them_are_computed_once_when_they_are_read_within() -> None:
    graph = _graph("x")
    graph.add_weight("w", TensorType("float32", (Extent.of(4), Extent.of(4))))

    def body(sub: Graph, a: str, w: str) -> list[str]:
        return [sub.add("matmul", a, sub.add("exp", w))]

    square = graph.types["w"]
    graph.add(
        "while_loop",
        *("x", "w"),
        carried=1,
        condition=_sub(
            graph, [F, square], lambda sub, a, w: [sub.add("less", sub.add("sum", sub.add("abs", a)), 99.0)]
        ),
        body=_sub(graph, [F, square], body),
    )
    _check(graph, [graph.nodes[-1].result], {"w": np.eye(4, dtype=np.float32)})
    description = lowered(graph).description
    assert [step["host"] for step in description["load"]] == ["exp"]
    (loop,) = (step for step in description["steps"] if "loop" in step)
    assert [step["kernel"] for step in loop["loop"]["body"]]


def test_refusals_inside_functions_are_listed_with_the_others() -> None:
    def function(m: Any, x: Any) -> Any:
        y = cond(x.sum() > 0, torch.special.bessel_j0, torch.rand_like, (x,))
        return torch.special.bessel_j1(y)

    program = exported(_Module(function), (torch.randn(3, 8),), ({0: L},))
    with pytest.raises(ModelError) as caught:
        imported(program)
    for word in ("bessel_j0", "bessel_j1"):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
