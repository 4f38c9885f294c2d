"""Models as modules of PyTorch: eager, one operator under ``torch.compile``, ``torch.export``, refusals."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hand_models import described, model_of, scaled_sum, step, write_bundle
from needs import of_extra

import dietcode
from dietcode.errors import ShapeError, TensorError

torch = pytest.importorskip("torch", reason=of_extra("bench"))


def _tree() -> dict[str, Any]:
    """A dictionary of outputs from a tuple and a keyword; L is told by 2*L + 1, M by the other input."""
    return described(
        {"x": ("float32", ["B", "2*L + 1"]), "at": ("int64", ["L"]), "by": ("float32", [])},
        [
            step("mul", ["x", "by"], "scaled"),
            step("slice", ["scaled"], "half", view=True, axis=1, start=0, stop="min(L, 3)", step=1),
            step("add", ["at", 1], "next"),
        ],
        ["scaled", "half", "next"],
        values={
            "scaled": ("float32", ["B", "2*L + 1"]),
            "half": ("float32", ["B", "min(L, 3)"]),
            "next": ("int64", ["L"]),
        },
        ranges={"B": (1, 8), "L": (1, 64)},
        signature={
            "positional": [{"tuple": ["x", "at"]}],
            "keyword": {"by": "by"},
            "output": {"dict": [["rows", {"list": ["*", "*"]}], ["next", "*"]]},
        },
    )


def _module(tmp_path: Path, data: dict[str, Any]) -> Any:
    loaded: Any = dietcode.load(write_bundle(tmp_path / "bundle", data))
    return loaded.torch_module()


def _given(b: int, length: int) -> Any:
    return torch.randn(b, 2 * length + 1), torch.arange(length), torch.tensor(2.5)


def _assert_tree(found: Any, x: Any, at: Any, by: Any) -> None:
    assert list(found) == ["rows", "next"] and isinstance(found["rows"], list)
    torch.testing.assert_close(found["rows"][0], x * by)
    torch.testing.assert_close(found["rows"][1], (x * by)[:, : min(len(at), 3)])
    torch.testing.assert_close(found["next"], at + 1)


def test_trees_in_and_out_without_state(tmp_path: Path) -> None:
    module = _module(tmp_path, _tree())
    assert not module.state_dict() and not list(module.parameters())
    for b, length in ((1, 1), (3, 9)):
        x, at, by = _given(b, length)
        _assert_tree(module((x, at), by=by), x, at, by)
        _assert_tree(module((x, at), by=2.5), x, at, 2.5)
    wide = torch.randn(19, 3)
    x, at, by = wide.T, torch.arange(9), torch.tensor(1.0)
    _assert_tree(module((x, at), by=by), x, at, by)


def test_outputs_are_the_memory_that_the_model_wrote(tmp_path: Path) -> None:
    loaded: Any = dietcode.load(write_bundle(tmp_path / "bundle", scaled_sum()))
    written: list[Any] = []
    original = loaded._run
    loaded._run = lambda *given: written.append((given[0], original(*given))) or written[-1][1]
    x = torch.randn(2, 3)
    y = loaded.torch_module()(x)
    (((array,), (out,)),) = written
    assert array.ctypes.data == x.data_ptr() and out.ctypes.data == y.data_ptr()


def test_it_is_one_operator_of_a_graph_for_all_shapes(tmp_path: Path) -> None:
    module, graphs = _module(tmp_path, _tree()), []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    def around(x: Any, at: Any, by: Any) -> Any:
        found = module((x + 0, at), by=by)
        return {"rows": found["rows"], "next": found["next"]}

    compiled = torch.compile(around, backend=keep, fullgraph=True, dynamic=True)
    for b, length in ((2, 5), (3, 9), (8, 64), (4, 2)):
        x, at, by = _given(b, length)
        _assert_tree(compiled(x, at, by), x, at, by)
    for graph in graphs:
        called = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
        assert called.count("dietcode.model.default") == 1
    assert len(graphs) <= 3, "4 shapes: one graph, and one more where min(L, 3) is the other"


def test_an_export_keeps_symbols_and_runs_after_it_was_saved(tmp_path: Path) -> None:
    class Around(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(x)

    module = Around(_module(tmp_path, scaled_sum()))
    b, length = torch.export.Dim("B", min=1, max=8), torch.export.Dim("L", min=2, max=512)
    program = torch.export.export(module, (torch.randn(2, 5),), dynamic_shapes=({0: b, 1: length},))
    torch.export.save(program, tmp_path / "around.pt2")
    again = torch.export.load(tmp_path / "around.pt2").module()
    x = torch.randn(7, 300)
    torch.testing.assert_close(again(x), x * 2 + 1)


def test_shapes_that_no_call_may_have_are_refused_while_compiling(tmp_path: Path) -> None:
    module = _module(tmp_path, scaled_sum())
    compiled = torch.compile(module, backend="eager", fullgraph=True, dynamic=True)
    with pytest.raises(Exception, match=r"B: outside 1…8"):
        compiled(torch.zeros(9, 3))
    with pytest.raises(Exception, match=r"x: dtype torch.float64; allowed: float32"):
        compiled(torch.zeros(2, 3, dtype=torch.float64))


def test_refusals(tmp_path: Path) -> None:
    module = _module(tmp_path, scaled_sum())
    x = torch.randn(2, 3, requires_grad=True)
    for call in (module, torch.compile(module, backend="aot_eager", fullgraph=True)):
        with pytest.raises(Exception, match=r"x: requires grad, and by-hand-\w+ records no gradient"):
            call(x)
        with torch.no_grad():
            torch.testing.assert_close(call(x), x.detach() * 2 + 1)
    with pytest.raises(TensorError, match=r"under torch\.vmap; pass the whole batch as rows"):
        torch.vmap(module)(torch.zeros(4, 2, 3))
    with pytest.raises(ShapeError, match="makes B 9; allowed: 1…8"):
        module(torch.zeros(9, 3))
    with pytest.raises(TensorError, match="x: ndarray; allowed: a torch tensor"):
        module(np.zeros((2, 3), np.float32))
    none = described({}, [], ["w"], values={}, weights={"w": ("float32", [1])})
    with pytest.raises(TensorError, match="given a model without inputs; allowed: one at least"):
        model_of(none, {"w": np.zeros(1, np.float32)}).torch_module()


@pytest.mark.thorough
def test_a_model_that_is_gone_is_named(tmp_path: Path) -> None:
    module = _module(tmp_path, scaled_sum())
    name = module.extra_repr()
    del module
    gc.collect()
    with pytest.raises(TensorError, match=rf"{name} is not loaded; call dietcode.load"):
        torch.ops.dietcode.model(name, [torch.zeros(2, 3)])


def test_other_weights_are_another_model(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    data = described(
        {"x": ("float32", ["B"])},
        [step("mul", ["x", "w"], "y")],
        ["y"],
        values={"y": ("float32", ["B"])},
        weights={"w": ("float32", [1])},
        ranges={"B": (1, 8)},
    )
    bundle = write_bundle(tmp_path / "bundle", data, {"w": np.full(1, 3, np.float32)})
    save_file({"w": np.full(1, 5, np.float32)}, tmp_path / "tuned.safetensors")
    own, tuned = dietcode.load(bundle), dietcode.load(bundle, weights=tmp_path / "tuned.safetensors")
    modules: list[Any] = [one.torch_module() for one in (own, tuned)]  # type: ignore[union-attr]
    x = torch.ones(2)
    compiled = torch.compile(lambda x: modules[0](x) + modules[1](x), backend="eager", fullgraph=True)
    assert compiled(x).tolist() == [8, 8]
