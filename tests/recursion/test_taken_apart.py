"""Cells of many kinds: how many kernels they become, and that these compute what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cell_graphs import H, X, assert_close
from graph_runs import torch
from recursion_runs import random_structure, run_plan

from dietcode.errors import ModelError
from dietcode.recursion.exporting import export_cells
from dietcode.recursion.module import ChildSum, Recursion
from dietcode.recursion.planning import plan_recursion
from dietcode.runtime.recursion.plan import read_recursion

nn, F = torch.nn, torch.nn.functional


class Parts(nn.Module):  # type: ignore[misc, name-defined]
    """A function of a node with layers."""

    def __init__(self, function: Callable[..., Any], **layers: Any) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def _of_x() -> Any:
    return nn.Linear(X, H)


def _of_h() -> Any:
    return nn.Linear(H, H)


# A cell, its children, the shape of x, and how many kernels compute a level.
CELLS: dict[str, tuple[Callable[[], Any], int | ChildSum, Any, int]] = {
    "PyTorch's GRUCell": (lambda: Parts(lambda m, x, h: m.step(x, h), step=nn.GRUCell(X, H)), 1, (X,), 1),
    "a norm of a product": (
        lambda: Parts(lambda m, x, h: m.n(m.w(x) + m.u(h)), w=_of_x(), u=_of_h(), n=nn.LayerNorm(H)),
        *(1, (X,), 1),
    ),
    "weights of one element": (
        lambda: Parts(
            lambda m, x, a, b: torch.tanh(m.w(x) + m.u(a)) * m.scale + b,
            **{"w": _of_x(), "u": _of_h(), "scale": nn.Parameter(torch.tensor(0.7))},
        ),
        *(2, (X,), 1),
    ),
    "layers one after the other": (
        lambda: Parts(
            lambda m, x, a, b: m.layers(torch.relu(torch.cat([a, b, x]))),
            layers=nn.Sequential(nn.Linear(2 * H + X, 16), nn.GELU(), nn.Linear(16, H)),
        ),
        *(2, (X,), 3),  # functions of both children first, which the product reads
    ),
    "inputs that are added": (
        lambda: Parts(lambda m, x, a, b: torch.tanh(m.u(a) + b) + x, u=_of_h()),
        *(2, (H,), 1),
    ),
    "products of products": (
        lambda: Parts(lambda m, x, a, b: torch.tanh(m.u(a) * m.w(b)), u=_of_h(), w=_of_h()),
        *(2, (X,), 1),
    ),
    "attention over children": (
        lambda: Parts(
            lambda m, x, h: torch.tanh(m.w(x) + (F.softmax(m.a(h), 0) * h).sum(0)),
            **{"w": _of_x(), "a": _of_h()},
        ),
        *(ChildSum(3), (X,), 1),
    ),
    "no input": (
        lambda: Parts(lambda m, a, b: torch.tanh(m.u(a) + m.w(b)), u=_of_h(), w=_of_h()),
        *(2, None, 1),
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells(name: str) -> None:
    torch.manual_seed(2)
    make, children, shape, num_kernels = CELLS[name]
    recursion = Recursion(make().eval(), children=children, states=[(H,)], x=shape)
    cells, weights = export_cells(recursion, "cell")
    plan = plan_recursion(cells, 100, 30, {})
    assert plan.facts["kernels"]["cell"] == num_kernels
    structure = random_structure(4, 30, recursion.children)
    x = None if shape is None else np.random.default_rng(1).standard_normal((30, *shape)).astype(np.float32)
    wanted = recursion(structure, x, all_nodes=True)
    assert float(wanted.abs().max()) > 0
    assert_close(run_plan(plan, weights, structure, x), [wanted.numpy()])


@pytest.mark.parametrize("children", [1, 2])
def test_leaves_of_trees_compute_their_own_gates(children: int) -> None:
    """A gate that only scales what children give is none of a leaf's; of a sequence hardly a node is one."""

    def cell(m: Any, x: Any, *states: Any) -> Any:
        i, f, u = m.w(x).chunk(3)
        return torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f) * m.u(sum(states))

    torch.manual_seed(3)
    parts = Parts(cell, w=nn.Linear(X, 3 * H), u=nn.Linear(H, H, bias=False)).eval()
    recursion = Recursion(parts, children=children, states=[(H,)], x=(X,))
    cells, weights = export_cells(recursion, "cell")
    plan = plan_recursion(cells, 100, 30, {})
    products = [one for one in plan.description["leaf"] if "x" in str(one["arguments"].values())]
    assert bool(products) == (children > 1)
    if products:
        (product,) = products
        shapes = [one["shape"] for one in product["arguments"].values()]
        assert [2, H, X] in shapes, "two of three gates"
    description = read_recursion(plan.description)
    assert description.skips_leaves == (children > 1)
    structure = random_structure(4, 30, children)
    x = np.random.default_rng(1).standard_normal((30, X)).astype(np.float32)
    assert_close(run_plan(plan, weights, structure, x), [recursion(structure, x, all_nodes=True).numpy()])


def test_a_leaf_of_its_own_shares_weights_with_the_cell() -> None:
    layer = _of_h()
    cell = Parts(lambda m, x, a, b: torch.tanh(m.u(a) + m.u(b)), u=layer).eval()
    leaf = Parts(lambda m, x: m.u(x) * 2, u=layer).eval()
    recursion = Recursion(cell, children=2, states=[(H,)], x=(H,), leaf=leaf)
    cells, weights = export_cells(recursion, "cell")
    assert set(weights) == {"cell.u.weight", "cell.u.bias"}
    structure = random_structure(6, 20, 2)
    x = np.random.default_rng(1).standard_normal((20, H)).astype(np.float32)
    found = run_plan(plan_recursion(cells, 100, 30, {}), weights, structure, x)
    assert_close(found, [recursion(structure, x, all_nodes=True).numpy()])


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (
            lambda m, x, a, b: torch.erf(a) + b,
            r"cell cannot be compiled: erf of float32\[B, 8\]: no kernel",
        ),
        (
            lambda m, x, a, b: torch.erf(a) + x[0] ** b,
            r"erf of float32\[B, 8\].*pow of",
        ),
        (
            lambda m, x, a, b: (a.reshape(H, 1, 1) * b.reshape(H, 1) * torch.arange(2048.0)).sum((0, 2)),
            "mul of",
        ),
    ],
)
def test_what_no_kernel_computes_is_named(function: Callable[..., Any], problem: str) -> None:
    recursion = Recursion(Parts(function).eval(), children=2, states=[(H,)], x=(X,))
    cells, _ = export_cells(recursion, "cell")
    with pytest.raises(ModelError, match=problem) as raised:
        plan_recursion(cells, 100, 30, {})
    assert "test_taken_apart.py:" in str(raised.value) and "\n" not in str(raised.value)


def _steered(m: Any, x: Any, a: Any, b: Any) -> Any:
    return a if x.sum() > 0 else b


def _at_a_position(m: Any, x: Any, a: Any, b: Any) -> Any:
    position = a.argmax().item()
    torch._check(position >= 0)
    torch._check(position <= H - 1)
    return b + a[position]


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (_at_a_position, "^cell: a size or position depends on values; choose by one_hot"),
        (
            _steered,
            r"^cell: torch.export: a branch .* values .*\(recursion/test_.*.py:\d+\).*dietcode.program$",
        ),
        (lambda m, x, a, b: a.add_(b) * 1, "^cell: .*in place"),
        (lambda m, x, a, b: a + torch.rand(H), "^cell: cannot be compiled: aten.rand"),
        (lambda m, x, a, b: torch.cat([a, b]), r"^a cell returns states \[\(16,\)\]; declared: \[\(8,\)\]"),
        (lambda m, x, a, b: (a, b), r"^a cell returns states \[\(8,\), \(8,\)\]"),
    ],
)
def test_cells_that_cannot_be_exported(function: Callable[..., Any], problem: str) -> None:
    recursion = Recursion(Parts(function).eval(), children=2, states=[(H,)], x=(X,))
    with pytest.raises(ModelError, match=problem):
        export_cells(recursion, "cell")


def test_cells_of_another_dtype_than_float32() -> None:
    """Also where the default dtype is another one."""
    of_products = Parts(lambda m, x, h: m.w(x) + m.u(h), w=_of_x(), u=_of_h())
    of_elements = Parts(lambda m, x, h: m.scale * h, scale=nn.Parameter(torch.ones(H)))
    default = torch.get_default_dtype()
    for dtype in (torch.float32, torch.float64):
        for cell, problem in (
            (of_products, "^cell: .*Float and Double; its inputs and states are float32"),
            (of_elements, "^cell: returns a state of float64; allowed: float32, as .float"),
        ):
            recursion = Recursion(cell.double().eval(), children=1, states=[(H,)], x=(X,))
            torch.set_default_dtype(dtype)
            try:
                with pytest.raises(ModelError, match=problem):
                    export_cells(recursion, "cell")
            finally:
                torch.set_default_dtype(default)


def test_training_mode_is_refused() -> None:
    recursion = Recursion(Parts(lambda m, x, h: h), children=1, states=[(H,)], x=(X,))
    with pytest.raises(ModelError, match=r"call model.eval\(\)"):
        export_cells(recursion, "cell")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"children": 0}, "children: given 0; allowed: 1 to 16, or dietcode.ChildSum"),
        ({"children": ChildSum(17)}, "children: given 17"),
        ({"states": []}, r"states: given \[\]; allowed: a list of 1 to 8 shapes"),
        ({"states": [8]}, r"states\[0\]: given 8; allowed: a shape"),
        ({"states": [(8, 0)]}, r"states\[0\]: given \(8, 0\)"),
        ({"x": (0,)}, r"x: given \(0,\)"),
        ({"leaf": len}, "leaf: given .*allowed: a torch.nn.Module"),
        ({"cell": None}, "cell: given None"),
    ],
)
def test_arguments(options: dict[str, Any], problem: str) -> None:
    allowed = {"cell": Parts(lambda m, x, h: h), "children": 1, "states": [(H,)], "x": (X,)}
    given = allowed | options
    with pytest.raises(ModelError, match=problem):
        Recursion(given.pop("cell"), **given)


def test_eager_calls() -> None:
    recursion = Recursion(Parts(lambda m, x, a, b: a + b + x), children=2, states=[(2,)], x=(2,))
    structure = SimpleNamespace(children=np.array([[1, -1], [2, 2], [-1, -1], [-1, -1]], np.int32))
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    everything = recursion(structure, x, all_nodes=True)
    assert everything.tolist() == [[10, 14], [10, 13], [4, 5], [6, 7]]
    assert torch.equal(recursion(structure, x), everything[[0, 3]])
    for given, problem in ((None, "x: missing"), (x[:3], r"x: given the shape \(3, 2\); allowed: \(4, 2\)")):
        with pytest.raises(ModelError, match=problem):
            recursion(structure, given)
    wide = SimpleNamespace(children=np.zeros((1, 3), np.int32))
    with pytest.raises(ModelError, match="a structure of 3 children a node; allowed: 2"):
        recursion(wide, x[:1])
    with pytest.raises(ModelError, match="its own descendants"):
        recursion(SimpleNamespace(children=np.zeros((1, 2), np.int32)), x[:1])
