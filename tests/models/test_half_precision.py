"""Models in half precision: computed in float32, with inputs and outputs as the model has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_runs import exported, imported, torch
from kernel_runs import lowered, model_of

from dietcode.errors import ModelError, TensorError
from dietcode.graph.reading import read_graph

B = torch.export.Dim("B", min=1, max=9)
# Of the largest output: what eager PyTorch, which rounds after each operator, is off.
ROUNDING = {"float16": 4e-3, "bfloat16": 3e-2}


def network(dtype: str) -> Any:
    """A network with weights of a dtype, whose second output is in float32."""

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(16, 24), torch.nn.Linear(24, 8)
            self.norm = torch.nn.LayerNorm(24)

        def forward(self, x: Any, count: Any) -> Any:
            rows = self.second(self.norm(torch.nn.functional.gelu(self.first(x))))
            return rows, torch.softmax(rows.float(), -1), count + 1

    torch.manual_seed(0)
    return Network().to(getattr(torch, dtype)).eval()


def built(module: Any, *args: Any) -> tuple[Any, Any]:
    """Return the graph and the model of a module, whose first argument has a dynamic axis."""
    program = exported(module, args, ({0: B}, *[None] * (len(args) - 1)))
    graph, weights = imported(program)
    assert {str(one.dtype) for one in weights.values()} <= {"float32"}
    return graph, model_of(lowered(graph), weights)


@pytest.mark.parametrize("dtype", list(ROUNDING))
def test_weights_inputs_and_outputs(dtype: str) -> None:
    own, module = getattr(torch, dtype), network(dtype)
    graph, model = built(module, torch.zeros(3, 16, dtype=own), torch.tensor(1))
    assert read_graph(graph.to_json()).to_json() == graph.to_json()
    assert f"x: {dtype}[x_0, 16]" in repr(model)
    for size in (1, 4, 9):
        x = torch.randn(size, 16).to(own)
        with torch.no_grad():
            wanted = module(x, torch.tensor(1))
        found = model(x, torch.tensor(1))
        assert [one.dtype for one in found] == [one.dtype for one in wanted]
        for one, right in zip(found, wanted, strict=True):
            off = (one.double() - right.double()).abs().max() / right.double().abs().max()
            assert off < ROUNDING[dtype]
        again = model(x.float(), torch.tensor(1))  # float32 is taken, too
        assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))


def test_arrays() -> None:
    module = network("float16")
    _, model = built(module, torch.zeros(3, 16, dtype=torch.float16), torch.tensor(1))
    x = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float16)
    rows, shares, _ = model(x, 1)
    assert (rows.dtype, shares.dtype) == (np.float16, np.float32)
    wanted = module(torch.from_numpy(x), torch.tensor(1))[0].detach().numpy()
    assert np.abs(rows.astype(float) - wanted).max() < ROUNDING["float16"] * np.abs(wanted).max()
    with pytest.raises(TensorError, match="x: dtype float64; allowed: float16, or float32"):
        model(x.astype(np.float64), 1)
    with pytest.raises(TensorError, match="x: dtype int32; allowed: float16, or float32"):
        model(torch.zeros(2, 16, dtype=torch.int32), 1)


def test_arrays_of_bfloat16() -> None:
    _, model = built(network("bfloat16"), torch.zeros(3, 16, dtype=torch.bfloat16), torch.tensor(1))
    kind = pytest.importorskip("ml_dtypes").bfloat16
    rows, shares, _ = model(np.ones((2, 16), kind), 1)
    assert (rows.dtype, shares.dtype) == (kind, np.float32)


def test_what_is_beyond_float16_is_infinite() -> None:
    class Large(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 1000

    _, model = built(Large(), torch.ones(3, 2, dtype=torch.float16))
    assert model(np.full((2, 2), 500, np.float16)).tolist() == [[np.inf] * 2] * 2
    assert model(torch.full((1, 2), -500.0, dtype=torch.float16)).tolist() == [[-np.inf] * 2]


def test_float32_within_a_program_of_halves_and_back() -> None:
    class Mixed(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return (x.half().float() * 2).bfloat16(), x.half().argmax(-1)

    graph, model = built(Mixed(), torch.ones(3, 5))
    assert graph.signature["halves"] == {"inputs": {}, "outputs": ["bfloat16", None]}
    x = torch.randn(4, 5)
    doubled, at = model(x)
    assert doubled.dtype == torch.bfloat16 and torch.equal(at, x.argmax(-1))
    assert torch.allclose(doubled.float(), x * 2, rtol=1e-2)


def test_in_pytorch() -> None:
    module = network("bfloat16")
    _, model = built(module, torch.zeros(3, 16, dtype=torch.bfloat16), torch.tensor(1))
    model.manifest = {"name": "halves"}
    own = model.torch_module()
    compiled = torch.export.export(
        own, (torch.zeros(3, 16, dtype=torch.bfloat16), torch.tensor(1)), dynamic_shapes=(({0: B}, None),)
    )
    x = torch.randn(2, 16).bfloat16()
    for found, right in zip(compiled.module()(x, torch.tensor(1)), model(x, torch.tensor(1)), strict=True):
        assert found.dtype == right.dtype and torch.equal(found, right)


@pytest.mark.parametrize(
    "halves",
    [
        3,
        {"inputs": {}},
        {"inputs": {"x": "float8"}, "outputs": [None]},
        {"inputs": {"y": "float16"}, "outputs": [None]},
        {"inputs": {}, "outputs": []},
        {"inputs": {}, "outputs": [["float16"]]},
    ],
)
def test_graphs_that_say_it_of_something_else(halves: Any) -> None:
    class Doubled(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    graph, _ = imported(exported(Doubled(), (torch.ones(3, 5),), ({0: B},)))
    data = graph.to_json()
    data["signature"]["halves"] = halves
    with pytest.raises(ModelError, match="signature: halves"):
        read_graph(data)


@pytest.mark.parametrize("dtype", list(ROUNDING))
def test_onnx(dtype: str, tmp_path: Path) -> None:
    onnx_runs = pytest.importorskip("onnx_runs")
    onnx = onnx_runs.onnx
    element = getattr(onnx.TensorProto, dtype.upper())
    helper = onnx.helper
    values = np.linspace(-1, 1, 12).reshape(4, 3)
    weight = helper.make_tensor("w", element, (4, 3), values.ravel())
    two = helper.make_node("Constant", [], ["two"], value=helper.make_tensor("", element, (), [2.0]))
    nodes = [
        two,
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Mul", ["xw", "two"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, element, ["L", k]) for n, k in (("x", 4), ("y", 3)))
    graph = helper.make_graph(nodes, "graph", [x], [y], [weight])
    path = tmp_path / "model.onnx"
    for external in (False, True):  # weights within, and in a file of their own
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        onnx.save(model, path, save_as_external_data=external, size_threshold=0)
        read, weights = onnx_runs.read(path, L=(1, 8))
        assert read.signature["halves"] == {"inputs": {"x": dtype}, "outputs": [dtype]}
        given = torch.randn(5, 4).to(getattr(torch, dtype))
        found = model_of(lowered(read), weights)(given)
        assert found.dtype == given.dtype
        right = given.float() @ torch.from_numpy(values).float() * 2
        assert (found.float() - right).abs().max() < ROUNDING[dtype] * right.abs().max()
