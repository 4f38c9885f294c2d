"""What a file of ONNX may not have: refused by the node's name, all at once, before anything is tuned."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_runs import run_graph
from onnx_runs import OPSET, import_model, model_of_nodes, onnx, read

from dietcode.errors import ModelError
from dietcode.models.importing.onnx.file import load_onnx
from dietcode.models.importing.reader import read_model

node = onnx.helper.make_node
X: dict[str, Any] = {"x": ("float32", ["L", 4])}


def _refusal(model: Any, **ranges: tuple[int, int]) -> str:
    with pytest.raises(ModelError) as error:
        import_model(model, **(ranges or {"L": (1, 8)}))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_all_unknown_operators_at_once() -> None:
    nodes = [
        node("Unique", ["x"], ["a"], name="first"),
        node("Relu", ["a"], ["b"]),
        node("Det", ["x"], ["c"], name="second"),
        node("FastGelu", ["x"], ["y"], domain="com.microsoft"),
        *(node("Det", ["x"], [f"d{k}"], name=f"d{k}") for k in range(4)),
    ]
    assert _refusal(model_of_nodes(nodes, X, ["y"])) == (
        "cannot be compiled: Unique: not known (first); Det: not known (second, d0, d1 and 2 more); "
        "com.microsoft.FastGelu: not known (node 4)"
    )


def test_the_line_of_the_source_is_named() -> None:
    unknown = node("Unique", ["x"], ["y"], name="n")
    noted = unknown.metadata_props.add()
    noted.key = "pkg.torch.onnx.stack_trace"
    noted.value = 'File "/home/me/model.py", line 12, in forward\n  return x.unique()'
    assert _refusal(model_of_nodes([unknown], X, ["y"])).endswith("Unique: not known (n, me/model.py:12)")


ALIGNED = "align_corners"
TO_FLOAT8 = onnx.TensorProto.FLOAT8E5M2


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        ([node("Shape", ["x"], ["s"]), node("Loop", ["s", ""], ["y"])], "Loop: without body"),
        ([node("Cast", ["x"], ["i"], to=7), node("Reshape", ["x", "i"], ["y"])], "depends on values"),
        ([node("Cast", ["x"], ["y"], to=TO_FLOAT8)], r"Cast: dtype float8_e5m2; allowed: .*model.float\(\)"),
        ([node("Relu", ["nothing"], ["y"])], "reads 'nothing', which is not there"),
        ([node("Pad", ["x", "cut"], ["y"], mode="edge")], "Pad: padding that takes elements away"),
        ([node("Squeeze", ["x"], ["y"])], "without axes, any of which may be 1"),
        ([node("Slice", ["x", "two", "two", "", "still"], ["y"])], r"step 0; allowed: any other"),
        ([node("Split", ["x"], list("yab"), axis=0)], "L, which may be 1, in 3 parts; allowed"),
        ([node("Resize", ["w", "", "half"], ["y"], axes=[1])], "3 scales of .*; allowed: 1, or sizes"),
        (
            [node("Resize", ["w", "", "most"], ["y"], coordinate_transformation_mode=ALIGNED)],
            "to whole sizes",
        ),
        (
            [node("ConvTranspose", ["line", "w"], ["y"], output_shape=[18])],
            "an output of 18 from .*, whose own may be less; allowed: no more",
        ),
        ([node("Einsum", ["x", "three"], ["y"], equation="ij,j->i")], "index j is 4 and 3; allowed: equal"),
        # What newer versions of an operator have, and its rule has not looked at, is not left out in silence.
        ([node("Relu", ["x"], ["y"], slope=2)], "Relu: slope 2; allowed: without"),
        ([node("Relu", ["x", "two"], ["y"])], "Relu: operand 1; allowed: without"),
        ([node("Swish", ["x"], ["y"], beta=2.0)], "Swish: beta 2.0; allowed: without"),
        (
            [node("SoftmaxCrossEntropyLoss", ["x"], ["y"])],
            "CrossEntropyLoss: .*: 1 operands; allowed: from 2",
        ),
        (
            [node("MeanVarianceNormalization", ["x"], ["y"], axes=[7])],
            r"a part of MeanVarianceNormalization\)",
        ),
        ([node("Attention", ["q"] * 3, ["y"], left_window_size=3)], "left_window_size 3; allowed: without"),
        ([node("Einsum", ["x"], ["y"], equation="ij->jj")], "an index for each axis, once in the result"),
        ([node("MatMul", ["x", "x"], ["y"])], "MatMul: matmul: .* 4 beside L"),
        ([node("Transpose", ["x"], ["y"], perm="no list")], "Transpose: "),
        ([node("LSTM", ["w", "w", "w"], ["y"], activations=["Elu"] * 3)], "LSTM: activations"),
        ([node("LSTM", ["w", "w", "w", "", "two"], ["y"])], "LSTM: lengths .* of each row"),
        ([node("BatchNormalization", ["x"] * 5, ["y"], training_mode=1)], r"call model\.eval\(\)"),
    ],
)
def test_refusals(nodes: list[Any], problem: str) -> None:
    constants = {"two": np.array([2, 2]), "still": np.array([0, 1]), "half": np.ones(3, np.float32)}
    constants["most"] = np.array([1, 1, 0.9], np.float32)
    constants["cut"] = np.array([0, -1, 0, 0])
    constants["w"] = np.arange(16, dtype=np.float32).reshape(1, 1, 16)
    constants |= {"three": np.ones(3, np.float32), "q": np.ones((1, 1, 2, 4), np.float32)}
    opsets = [onnx.helper.make_opsetid("", 23 if nodes[0].op_type == "Attention" else OPSET)]
    inputs = X | {"line": ("float32", [1, 1, "L"])}
    message = _refusal(model_of_nodes(nodes, inputs, ["y"], constants, opset_imports=opsets))
    assert message.startswith("cannot be compiled: ")
    assert re.search(problem, message), message


def test_what_branches_have_is_refused_by_its_own_name() -> None:
    branch = onnx.helper.make_graph(
        [node("Neg", ["x"], ["z"])], "b", [], [onnx.helper.make_empty_tensor_value_info("z")]
    )
    nodes = [
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Cast", ["m"], ["c"], to=9),
        node("If", ["c"], ["y"], then_branch=branch, else_branch=branch, name="choice"),
    ]
    model = model_of_nodes(nodes, X, ["y"])
    branch.node[0].op_type = "Unique"
    model.graph.node[2].CopyFrom(
        node("If", ["c"], ["y"], then_branch=branch, else_branch=branch, name="choice")
    )
    assert _refusal(model) == "cannot be compiled: Unique: not known (node 4)"


def test_dimensions_and_their_ranges() -> None:
    relu = [node("Relu", ["x"], ["y"])]
    model = model_of_nodes(relu, {"x": ("float32", ["L", None, "2*L + 1", "batch size"])}, ["y"])
    with pytest.raises(ModelError) as error:
        import_model(model)
    assert str(error.value) == (
        "L (x.0), batch_size (x.3), x_1 (x.1): no range; "
        "give --range L=1..512 --range batch_size=1..512 --range x_1=1..512"
    )
    graph, _ = import_model(model, **{"x.0": (2, 3), "batch_size": (1, 2), "x_1": (0, 5)})
    assert str(graph.inputs["x"]) == "float32[L, x_1, 2*L + 1, batch_size]"
    assert graph.ranges == {"L": (2, 3), "batch_size": (1, 2), "x_1": (0, 5)}
    message = _refusal(model, K=(1, 2))
    assert message.startswith("--range 'K': no dimension of the model; allowed: L, batch_size, x_1, x.0")
    assert "--range L=5..2: allowed: the least number first" in _refusal(
        model, L=(5, 2), batch_size=(1, 2), x_1=(1, 1)
    )


def test_inputs_of_dtypes_that_models_do_not_have() -> None:
    model = model_of_nodes([node("Relu", ["x"], ["y"])], {"x": ("uint32", ["L"])}, ["y"])
    assert _refusal(model).startswith("x: dtype uint32; allowed: bool, ")
    model = model_of_nodes([node("Add", ["x", "w"], ["y"])], X, ["y"], {"w": np.ones(4, np.uint32)})
    assert "w: dtype uint32; allowed: bool, " in _refusal(model)


def test_outputs_that_the_file_says_otherwise_of() -> None:
    model = model_of_nodes([node("Relu", ["x"], ["y"])], X, ["y"])
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT64, ["L", 4])
    model.graph.output[0].CopyFrom(output)
    assert _refusal(model) == "y: is float32[L, 4], where the file says int64"
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["L"])
    model.graph.output[0].CopyFrom(output)
    assert _refusal(model) == "y: is float32[L, 4], where the file says 1 axes"


def _apart(folder: Path, location: str, **said: int) -> Path:
    """Write a model ``x + w`` whose w lies in another file."""
    model = model_of_nodes([node("Add", ["x", "w"], ["y"])], X, ["y"], {"w": np.zeros(4, np.float32)})
    (w,) = model.graph.initializer
    w.ClearField("raw_data")
    w.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **said}.items():
        entry = w.external_data.add()
        entry.key, entry.value = key, str(value)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_weights_that_lie_apart(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    secret = np.arange(8, dtype=np.float32)
    secret.tofile(folder / "weights.bin")
    secret.tofile(tmp_path / "secret.bin")
    graph, weights = read(_apart(folder, "weights.bin", offset=8, length=16), L=(1, 8))
    (found,) = run_graph(graph, weights, {"x": np.zeros((2, 4), np.float32)})
    np.testing.assert_array_equal(found, np.tile(secret[2:6], (2, 1)))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    outside = "allowed: a file in the folder of the model"
    for location, said, problem in (
        ("../secret.bin", {}, outside),
        (str(tmp_path / "secret.bin"), {}, outside),
        ("link.bin", {}, outside),
        ("", {}, outside),
        ("none.bin", {}, "which is not there; copy it beside the model"),
        ("weights.bin", {"offset": 24}, "16 bytes at 24 of 'weights.bin'; allowed: what the file has"),
        ("weights.bin", {"offset": -4}, "allowed: what the file has"),
        ("weights.bin", {"length": 32}, "allowed: what the file has"),
    ):
        with pytest.raises(ModelError, match="cannot be compiled: w: ") as error:
            read(_apart(folder, location, **said), L=(1, 8))
        assert problem in str(error.value), location


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for content in (b"", b"nothing of the kind", b"\x08\x0a"):
        path.write_bytes(content)
        with pytest.raises(ModelError, match=r"model\.onnx: no model of ONNX: .*; write it by torch\.onnx"):
            load_onnx(path)
    old = [onnx.helper.make_opsetid("", 6)]
    model = model_of_nodes([node("Relu", ["x"], ["y"])], X, ["y"], opset_imports=old)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"operators of version 6; allowed: 7 to .*opset_version=17"):
        load_onnx(path)


def test_it_is_read_by_a_child_without_torch(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of_nodes([node("Relu", ["x"], ["y"])], X, ["y"]).SerializeToString())
    graph, weights = read_model(path, "small", {"L": (1, 8)})
    assert graph.name == "small" and weights == {} and [one.operator for one in graph.nodes] == ["relu"]
    assert graph.signature == {"positional": ["x"], "keyword": {}, "output": "*"}
    with pytest.raises(ModelError, match=r"^L \(x\.0\): no range; give --range L=1\.\.512$"):
        read_model(path, "small", {})
