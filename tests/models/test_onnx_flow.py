"""Branches, loops and sizes that depend on values, of ONNX, and files of older operators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_runs import run_graph
from onnx.reference import ReferenceEvaluator
from onnx_runs import Array, assert_as_reference, import_model, model_of_nodes, onnx, read

from dietcode.errors import ModelError

helper, node = onnx.helper, onnx.helper.make_node
FLOAT, INT64, BOOL = (getattr(onnx.TensorProto, one) for one in ("FLOAT", "INT64", "BOOL"))
_rng = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return _rng.standard_normal(shape).astype(np.float32)


def body(
    nodes: Sequence[Any],
    inputs: Sequence[tuple[str, int, list[Any]]],
    outputs: Sequence[tuple[str, int, list[Any]]],
    constants: Sequence[tuple[str, Array]] = (),
) -> Any:
    def declared(given: Sequence[tuple[str, int, list[Any]]]) -> list[Any]:
        return [helper.make_tensor_value_info(*one) for one in given]

    weights = [onnx.numpy_helper.from_array(array, name) for name, array in constants]
    return helper.make_graph(nodes, "body", declared(inputs), declared(outputs), weights)


COUNTER: list[tuple[str, int, list[Any]]] = [("i", INT64, []), ("go", BOOL, [])]


def test_a_branch_on_values() -> None:
    then = body([node("MatMul", ["x", "w"], ["t"])], [], [("t", FLOAT, ["L", 4])])
    other = body(
        [node("Mul", ["x", "own"], ["m"]), node("Neg", ["m"], ["e"])],
        *([], [("e", FLOAT, ["L", 4])], [("own", floats(4))]),
    )
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Less", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    constants = {"w": floats(4, 4), "zero": np.array(0, np.float32)}
    model = model_of_nodes(nodes, {"x": ("float32", ["L", 4])}, ["y"], constants)
    x = np.abs(floats(3, 4))
    graph = assert_as_reference(model, [{"x": x}, {"x": -x}, {"x": floats(1, 4)}], L=(1, 8))
    assert [one.operator for one in graph.nodes][-1] == "cond"


def test_a_counted_loop_is_a_scan() -> None:
    """The number of rounds is L; each reads its number, its row and a weight."""
    nodes = [
        node("Gather", ["x", "i"], ["row"]),
        node("Gemm", ["h", "w"], ["p"]),
        node("Add", ["p", "row"], ["q"]),
        node("Tanh", ["q"], ["h2"]),
        node("ReduceSum", ["h2"], ["total"], keepdims=0),
        node("Identity", ["go"], ["go2"]),
    ]
    inner = body(
        nodes,
        [*COUNTER, ("h", FLOAT, [1, 4])],
        [("go2", BOOL, []), ("h2", FLOAT, [1, 4]), ("total", FLOAT, [])],
    )
    outer = [
        node("Shape", ["x"], ["n"], start=0, end=1),
        node("Squeeze", ["n"], ["rounds"]),
        node("Loop", ["rounds", "", "h0"], ["last", "sums"], body=inner),
    ]
    constants = {"w": floats(4, 4), "h0": floats(1, 4)}
    model = model_of_nodes(outer, {"x": ("float32", ["L", 4])}, ["last", "sums"], constants)
    graph, weights = import_model(model, L=(1, 8))
    for length in (1, 5):  # the package's reference joins what rounds give along an axis that is there
        x, h, sums = floats(length, 4), constants["h0"], []
        for row in x:
            h = np.tanh(h @ constants["w"] + row)
            sums.append(h.sum())
        last, stacked = run_graph(graph, weights, {"x": x})
        np.testing.assert_allclose(last, h, atol=1e-5)
        np.testing.assert_allclose(stacked, np.array(sums), atol=1e-5)
    assert graph.nodes[-1].operator == "scan"
    assert [str(one) for one in graph.output_types] == ["float32[1, 4]", "float32[L]"]


def _doubling(limit: str) -> Any:
    """Return a model that doubles x until its sum is 100, and stacks the sums."""
    nodes = [
        node("Add", ["v", "v"], ["v2"]),
        node("ReduceSum", ["v2"], ["sum"], keepdims=0),
        node("Less", ["sum", "hundred"], ["go2"]),
    ]
    inner = body(
        nodes,
        [*COUNTER, ("v", FLOAT, ["L"])],
        [("go2", BOOL, []), ("v2", FLOAT, ["L"]), ("sum", FLOAT, [])],
    )
    outer = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Less", ["s", "hundred"], ["c"]),
        node("Loop", [limit, "c", "x"], ["y", "sums"], body=inner),
    ]
    constants = {"hundred": np.array(100, np.float32), "nine": np.array(9)}
    inputs = {"x": ("float32", ["L"]), "n": ("int64", [])}
    return model_of_nodes(outer, inputs, ["y", "sums"], constants)


def test_a_loop_with_a_condition_stacks_up_to_its_limit() -> None:
    graph, weights = import_model(_doubling("nine"), L=(1, 8))
    for length, value in ((1, 0.01), (3, 7.0), (2, 90.0)):
        x = np.full(length, value, np.float32)
        inputs, sums = {"x": x, "n": np.array(1)}, []
        while x.sum() < 100 and len(sums) < 9:
            x = x + x
            sums.append(x.sum())
        last, stacked = run_graph(graph, weights, inputs)
        np.testing.assert_allclose(last, x)
        np.testing.assert_allclose(stacked, np.array(sums, np.float32))
    assert str(graph.output_types[1]) == "float32[u0]" and str(graph.sizes["u0"]) == "9"


def test_a_stack_without_a_limit_is_refused() -> None:
    with pytest.raises(ModelError, match="Loop: stacks what each of unknown many rounds gives"):
        assert_as_reference(_doubling("n"), [], L=(1, 8))


def test_rounds_that_an_input_counts() -> None:
    nodes = [node("Mul", ["v", "x"], ["v2"]), node("Identity", ["go"], ["go2"])]
    inner = body(nodes, [*COUNTER, ("v", FLOAT, ["L"])], [("go2", BOOL, []), ("v2", FLOAT, ["L"])])
    outer = [node("Loop", ["n", "", "x"], ["y"], body=inner)]
    model = model_of_nodes(outer, {"x": ("float32", ["L"]), "n": ("int64", [])}, ["y"])
    graph, weights = import_model(model, L=(1, 8))
    x = floats(3)
    for count in (0, 1, 4):
        (found,) = run_graph(graph, weights, {"x": x, "n": np.array(count)})
        np.testing.assert_allclose(found, x ** (count + 1), rtol=1e-5)


def test_a_scan_backwards_along_another_axis() -> None:
    nodes = [
        node("MatMul", ["h", "w"], ["p"]),
        node("Add", ["p", "row"], ["h2"]),
        node("Relu", ["h2"], ["out"]),
    ]
    inner = body(
        nodes,
        [("h", FLOAT, [2]), ("row", FLOAT, [2])],
        [("h2", FLOAT, [2]), ("out", FLOAT, [2])],
    )
    outer = node(
        *("Scan", ["h0", "x"], ["last", "all"]),
        body=inner,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[1],
        scan_output_axes=[1],
    )
    weights = {"w": floats(2, 2), "h0": floats(2)}
    model = model_of_nodes([outer], {"x": ("float32", [2, "L"])}, ["last", "all"], weights)
    graph, found = import_model(model, L=(1, 8))
    for length in (1, 6):
        x, h, rows = floats(2, length), weights["h0"], []
        for k in reversed(range(length)):
            h = h @ weights["w"] + x[:, k]
            rows.append(np.maximum(h, 0))
        last, whole = run_graph(graph, found, {"x": x})
        np.testing.assert_allclose(last, h, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(whole, np.stack(rows, 1), rtol=1e-5, atol=1e-5)


def test_nonzero_and_compress() -> None:
    nodes = [
        node("NonZero", ["x"], ["at"]),
        node("Transpose", ["at"], ["rows"], perm=[1, 0]),
        node("GatherND", ["x", "rows"], ["values"]),
        node("Greater", ["values", "zero"], ["positive"]),
        node("Compress", ["values", "positive"], ["kept"], axis=0),
        node("Shape", ["at"], ["shape"]),
    ]
    constants = {"zero": np.array(0, np.float32)}
    outputs = ["at", "values", "kept", "shape"]
    model = model_of_nodes(nodes, {"x": ("float32", ["L", 4])}, outputs, constants)
    calls = [{"x": np.where(floats(k, 4) > 0.5, floats(k, 4), 0).astype(np.float32)} for k in (1, 6)]
    graph = assert_as_reference(model, calls, L=(1, 8))
    assert str(graph.sizes["u0"]) == "4*L"


OLD: dict[str, tuple[int, list[Any], dict[str, Array]]] = {
    "squeeze": (
        *(11, [node("Unsqueeze", ["x"], ["u"], axes=[0, 3]), node("Squeeze", ["u"], ["y"], axes=[3])]),
        {},
    ),
    "sum": (11, [node("ReduceSum", ["x"], ["y"], axes=[1], keepdims=0)], {}),
    "clip": (7, [node("Clip", ["x"], ["y"], min=-0.5, max=0.25)], {}),
    "slice": (9, [node("Slice", ["x"], ["y"], starts=[1], ends=[3], axes=[1])], {}),
    "softmax": (11, [node("Unsqueeze", ["x"], ["u"], axes=[2]), node("Softmax", ["u"], ["y"], axis=1)], {}),
    "split": (11, [node("Split", ["x"], ["y", "z"], axis=1, split=[1, 3])], {}),
    "pad": (9, [node("Pad", ["x"], ["y"], pads=[0, 1, 0, 2], value=0.5)], {}),
    "dropout": (7, [node("Dropout", ["x"], ["d"], ratio=0.5), node("Relu", ["d"], ["y"])], {}),
}


@pytest.mark.parametrize("name", OLD)
def test_older_forms(name: str, tmp_path: Path) -> None:
    opset, nodes, constants = OLD[name]
    outputs = ["y", "z"] if name == "split" else ["y"]
    imports = [helper.make_opsetid("", opset)]
    model = model_of_nodes(nodes, {"x": ("float32", ["L", 4])}, outputs, constants, opset_imports=imports)
    for value, declared in zip(outputs, model.graph.output, strict=True):  # what the converter asks for
        declared.CopyFrom(helper.make_tensor_value_info(value, FLOAT, None))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    graph, weights = read(path, L=(1, 8))
    for length in (1, 5):
        x = floats(length, 4)
        wanted = ReferenceEvaluator(model).run(None, {"x": x})
        for own, right in zip(run_graph(graph, weights, {"x": x}), wanted, strict=True):
            np.testing.assert_allclose(own, right, rtol=1e-5, atol=1e-6)
