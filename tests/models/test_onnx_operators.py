"""Operators of ONNX, each beside the package's reference function, at two lengths of a dynamic axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graph_runs import run_graph, torch
from onnx_runs import Array, assert_as_reference, import_model, model_of_nodes, onnx

from dietcode.models.importing.onnx.context import ONNX_RULES
from dietcode.models.importing.onnx.file import inlined

node = onnx.helper.make_node
_rng = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return _rng.standard_normal(shape).astype(np.float32)


def ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


X: list[Any] = ["L", 4]
IMAGE: list[Any] = ["L", 4, 9, 8]
# By operator: shapes of dynamic inputs, constants, attributes.
Case = tuple[str, list[list[Any]], list[Any], dict[str, Any]]
CASES: list[Case] = [
    *(
        (word, [X], [], {})
        for word in ("Abs", "Atan", "Ceil", "Cos", "Erf", "Exp", "Floor", "Neg", "Relu", "Round")
    ),
    *((word, [X], [], {}) for word in ("Sigmoid", "Sign", "Sin", "Tanh", "Reciprocal", "Tan", "HardSwish")),
    *((word, [X], [], {}) for word in ("HardSigmoid", "LeakyRelu", "Elu", "Selu", "Softplus", "Softsign")),
    *((word, [X], [], {}) for word in ("Mish", "IsNaN", "IsInf", "Identity", "Dropout", "Flatten", "Gelu")),
    *((word, [X], [], {}) for word in ("Sinh", "Cosh", "Asinh", "Hardmax")),
    ("Hardmax", [IMAGE], [], {"axis": 1}),
    ("LpNormalization", [IMAGE], [], {"axis": 1}),
    *((word, [X], [], {"alpha": 0.5}) for word in ("Celu", "ThresholdedRelu", "LeakyRelu", "Elu")),
    ("HardSigmoid", [X], [], {"alpha": 1 / 6, "beta": 0.5}),
    ("Gelu", [X], [], {"approximate": "tanh"}),
    ("PRelu", [IMAGE], [floats(4, 1, 1)], {}),
    *((word, [X, X], [], {}) for word in ("Add", "Sub", "Mul", "Div", "Less", "Greater", "Equal")),
    *((word, [X, X], [], {}) for word in ("LessOrEqual", "GreaterOrEqual")),
    *((word, [X], [floats(1)], {}) for word in ("Add", "Sub", "Mul", "Div", "Less", "Greater")),
    ("Mod", [X], [floats(4)], {"fmod": 1}),
    *(("Pow", [X], [np.float32(power)], {}) for power in (1, 2, 3)),
    *((word, [X, X, ["L", 1]], [], {}) for word in ("Max", "Min", "Sum", "Mean")),
    ("Clip", [X], [np.float32(-0.5), np.float32(0.5)], {}),
    ("Clip", [X], [None, np.float32(0.5)], {}),
    ("Reshape", [IMAGE], [ints(0, -1, 2)], {}),
    ("Slice", [IMAGE], [ints(-2, 7), ints(0, -99), ints(2, 3), ints(-2, -3)], {}),
    ("Slice", [X], [ints(9), ints(-99), ints(0), ints(-2)], {}),
    ("Slice", [X], [ints(2, 0), ints(0, 2), ints(1, 0), ints(-1, -1)], {}),
    ("Slice", [X], [ints(2**63 - 1), ints(-(2**63)), ints(0), ints(-3)], {}),
    *(("EyeLike", [["L", "L"]], [], {"k": k}) for k in (0, -1, 2)),
    ("LpPool", [IMAGE], [], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    ("LpPool", [IMAGE], [], {"kernel_shape": [3, 3], "p": 3}),
    ("Flatten", [IMAGE], [], {"axis": 3}),
    ("Flatten", [IMAGE], [], {"axis": 0}),
    ("Squeeze", [["L", 1, 3, 1]], [ints(-1)], {}),
    ("Unsqueeze", [X], [ints(0, -1)], {}),
    ("Transpose", [IMAGE], [], {}),
    ("Transpose", [IMAGE], [], {"perm": [2, 0, 3, 1]}),
    ("Expand", [["L", 1]], [ints(2, 1, 5)], {}),
    ("Tile", [X], [ints(2, 3)], {}),
    ("Concat", [X, ["L", 3]], [], {"axis": -1}),
    ("Slice", [IMAGE], [ints(1, 0), ints(-1, 9999), ints(2, 3), ints(2, 1)], {}),
    ("Slice", [IMAGE], [ints(-1), ints(-(2**62)), ints(3), ints(-1)], {}),
    ("Slice", [X], [ints(2), ints(-2), ints(0)], {}),
    ("Slice", [X], [ints(2**63 - 1), ints(-(2**63)), ints(0)], {}),
    ("Gather", [X], [ints(3, 0, -1)], {"axis": 1}),
    ("Gather", [X], [np.int64(-1)], {"axis": 1}),
    ("GatherElements", [X], [np.array([[-1, 0, -1, 0]])], {"axis": 0}),
    ("GatherND", [X], [np.array([[0, 1], [0, 3]])], {}),
    ("GatherND", [X], [np.array([[-1, -4], [0, -1]])], {}),
    ("Pad", [X], [ints(1, 0, 2, 1), np.float32(0.5)], {}),
    ("Pad", [X], [ints(1, 2), None, ints(1)], {}),
    *(("Pad", [IMAGE], [ints(0, 0, 2, 1, 0, 0, 1, 3)], {"mode": mode}) for mode in ("reflect", "edge")),
    ("ScatterElements", [X], [np.zeros((1, 2), np.int64), floats(1, 2)], {"axis": 1}),
    ("ScatterElements", [X], [ints(3, 3, 0)[None], floats(1, 3)], {"axis": -1, "reduction": "add"}),
    ("ScatterElements", [X], [ints(-1, -4)[None], floats(1, 2)], {"axis": 1}),
    ("ScatterND", [X], [np.array([[0, 1], [0, 3]]), floats(2)], {}),
    ("ScatterND", [X], [np.array([[-1, 1], [0, -4]]), floats(2)], {}),
    ("ScatterND", [X], [np.array([[0], [0]]), floats(2, 4)], {"reduction": "mul"}),
    ("Resize", [IMAGE], [None, np.array([1, 1, 2, 3], np.float32)], {"mode": "nearest"}),
    ("Resize", [IMAGE], [None, np.array([1, 1, 2, 3], np.float32)], {"mode": "linear"}),
    (
        *("Resize", [[2, 4, 9, "L"]], [None, np.array([1, 1, 2, 3], np.float32)]),
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    ("Resize", [IMAGE], [None, np.array([1, 1, 1.5, 0.5], np.float32)], {"mode": "linear"}),
    ("Resize", [IMAGE], [None, np.array([1, 1, 1.5, 0.5], np.float32)], {"mode": "cubic"}),
    (
        *("Resize", [IMAGE], [None, np.array([1, 1, 2, 3], np.float32)]),
        {"mode": "cubic", "cubic_coeff_a": -0.5, "coordinate_transformation_mode": "align_corners"},
    ),
    (
        *("Resize", [[2, 4, 9, "L"]], [None, np.array([1, 1, 0.75, 2.5], np.float32)]),
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    ),
    *(
        ("GridSample", [IMAGE, ["L", 3, 2, 2]], [], {"padding_mode": beyond, "align_corners": aligned})
        for beyond, aligned in (("zeros", 0), ("border", 1), ("reflection", 0))
    ),
    ("DepthToSpace", [IMAGE], [], {"blocksize": 2}),
    ("DepthToSpace", [IMAGE], [], {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", [["L", 3, 8, 4]], [], {"blocksize": 2}),
    ("Trilu", [["L", 5, 6]], [np.int64(1)], {"upper": 0}),
    ("Trilu", [["L", 5, 6]], [], {}),
    ("ArgMax", [X], [], {"axis": 1, "keepdims": 0}),
    ("ArgMin", [X], [], {"axis": -1}),
    ("MatMul", [X], [floats(4, 3)], {}),
    ("MatMul", [["L", 2, 3], ["L", 3, 2]], [], {}),
    ("Gemm", [X], [floats(3, 4), floats(3)], {"transB": 1}),
    ("Gemm", [X], [floats(4, 3), floats(3)], {"alpha": 0.5, "beta": 2.0}),
    ("Gemm", [[4, "L"]], [floats(4, 3)], {"transA": 1}),
    ("Conv", [IMAGE], [floats(6, 2, 3, 2), floats(6)], {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]}),
    (
        "ConvTranspose",
        [IMAGE],
        [floats(4, 3, 3, 2), floats(3)],
        {"strides": [2, 3], "output_padding": [1, 0]},
    ),
    ("ConvTranspose", [IMAGE], [floats(4, 2, 3, 2)], {"pads": [1, 1, 3, 0], "dilations": [2, 1]}),
    ("ConvTranspose", [IMAGE], [floats(4, 5, 2, 3), floats(5)], {"strides": [2, 3]}),
    ("Conv", [IMAGE], [floats(6, 4, 3, 2)], {"auto_pad": "SAME_LOWER", "dilations": [2, 1]}),
    ("Conv", [IMAGE], [floats(6, 4, 3, 2)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("Conv", [["L", 4, 9]], [floats(6, 4, 3)], {"auto_pad": "VALID"}),
    ("MaxPool", [IMAGE], [], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    ("AveragePool", [IMAGE], [], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}),
    ("AveragePool", [IMAGE], [], {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("GlobalAveragePool", [IMAGE], [], {}),
    ("GlobalMaxPool", [IMAGE], [], {}),
    ("BatchNormalization", [IMAGE], [floats(4), floats(4), floats(4), floats(4) ** 2], {"epsilon": 1e-3}),
    ("InstanceNormalization", [IMAGE], [floats(4), floats(4)], {}),
    ("GroupNormalization", [IMAGE], [floats(4), floats(4)], {"num_groups": 2}),
    ("LayerNormalization", [IMAGE], [floats(9, 8), floats(9, 8)], {"axis": 2}),
    ("LayerNormalization", [X], [floats(4)], {"epsilon": 1e-3}),
    ("Softmax", [IMAGE], [], {"axis": 1}),
    ("LogSoftmax", [X], [], {}),
    ("CumSum", [X], [np.int64(1)], {}),
    ("CumSum", [X], [np.int64(1)], {"exclusive": 1, "reverse": 1}),
    *((f"Reduce{word}", [IMAGE], [ints(1, -1)], {}) for word in ("Sum", "Mean", "Max", "Min", "Prod", "L1")),
    *((f"Reduce{word}", [IMAGE], [], {"keepdims": 0}) for word in ("L2", "SumSquare", "LogSumExp", "Mean")),
    ("ReduceSum", [X], [], {"noop_with_empty_axes": 1}),
    ("Einsum", [["L", 2, 3], ["L", 4, 3]], [], {"equation": "bij,bkj->bki"}),
    ("Einsum", [["L", 2, 3]], [floats(3, 4)], {"equation": "bij,jk->bk"}),
    ("Einsum", [["L", 2], ["L", 2, 3]], [floats(3, 4)], {"equation": "bi,bij,jk->bk"}),
    ("Einsum", [["L", 2], ["L", 2, 3], ["L", 3, 5]], [], {"equation": "bi,bij,bjk->kbi"}),
    ("Einsum", [["L", 2, 3]], [], {"equation": "bij->jb"}),
    ("Einsum", [X, ["L"]], [], {"equation": "bi,b->ib"}),
    ("Cast", [X], [], {"to": 7}),
    ("CastLike", [X], [ints(1)], {}),
]


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda k: f"{k}-{CASES[k][0]}")
def test_operators(number: int) -> None:
    word, shapes, given, attributes = CASES[number]
    inputs = {f"x{k}": ("float32", shape) for k, shape in enumerate(shapes)}
    constants = {f"c{k}": np.asarray(one) for k, one in enumerate(given) if one is not None}
    operands = [*inputs, *("" if one is None else f"c{k}" for k, one in enumerate(given))]
    model = model_of_nodes([node(word, operands, ["y"], **attributes)], inputs, ["y"], constants)
    calls = [
        {name: floats(*(length if e == "L" else e for e in shape)) for name, (_, shape) in inputs.items()}
        for length in (1, 5)
    ]
    assert_as_reference(model, calls, L=(1, 8))


def test_operators_of_other_dtypes_and_of_several_results() -> None:
    nodes = [
        node("Div", ["i", "three"], ["quotient"]),
        node("Mod", ["i", "three"], ["rest"]),
        node("Mod", ["i", "three"], ["signed"], fmod=1),
        node("Greater", ["i", "three"], ["large"]),
        node("Equal", ["rest", "one"], ["ones"]),
        *(node(word, ["large", "ones"], [word]) for word in ("And", "Or", "Xor")),
        node("Not", ["ones"], ["others"]),
        node("Where", ["large", "i", "one"], ["chosen"]),
        *(node(word, ["i", "three"], [word]) for word in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
        node("Cast", ["i"], ["bits"], to=2),
        node("BitShift", ["bits", "shift"], ["shifted_left"], direction="LEFT"),
        node("BitShift", ["bits", "shift"], ["shifted_right"], direction="RIGHT"),
        node("BitwiseNot", ["i"], ["turned"]),
        node("OneHot", ["rest", "depth", "values"], ["hot"], axis=1),
        node("Split", ["i", "sizes"], ["left", "right"], axis=1),
        node("Split", ["i"], ["first", "second"], axis=1, num_outputs=2),
        node("Cast", ["i"], ["f"], to=1),
        node("Sqrt", ["f"], ["root"]),
        node("Log", ["f"], ["log"]),
        node("ReduceLogSum", ["f"], ["log_sum"]),
        node("TopK", ["f", "two"], ["values_of_top", "places"], axis=1),
        node("GatherElements", ["i", "places"], ["there"], axis=1),
    ]
    outputs = [name for one in nodes for name in one.output]
    constants = {"three": np.int64(3), "one": np.int64(1), "depth": np.int64(4), "sizes": ints(1, 4)}
    constants |= {"values": np.array([-1, 2], np.float32), "two": ints(2), "shift": np.uint8(2)}
    model = model_of_nodes(nodes, {"i": ("int64", ["L", 5])}, outputs, constants)
    assert_as_reference(model, [{"i": np.arange(1, 5 * k + 1).reshape(k, 5)} for k in (1, 3)], L=(1, 8))
    signed = model_of_nodes(nodes[:3], {"i": ("int64", ["L"])}, ["quotient", "rest", "signed"], constants)
    graph, weights = import_model(signed, L=(1, 8))
    found = run_graph(graph, weights, {"i": ints(-7, 7, -3, 2)})
    assert [one.tolist() for one in found] == [[-2, 2, -1, 0], [2, 1, 0, 2], [-1, 1, 0, 2]]


def test_newer_operators() -> None:
    nodes = [node("Swish", ["x"], ["s"]), node("Swish", ["x"], ["t"], alpha=2.0)]
    nodes.append(node("RMSNormalization", ["x", "gamma"], ["r"]))
    opsets = [onnx.helper.make_opsetid("", 24)]
    model = model_of_nodes(
        nodes, {"x": ("float32", X)}, ["s", "t", "r"], {"gamma": floats(4)}, opset_imports=opsets
    )
    assert_as_reference(model, [{"x": floats(k, 4)} for k in (1, 5)], L=(1, 8))


def test_attention_with_groups_a_cache_and_a_mask() -> None:
    mask = np.array([[True, False, True, True]])
    nodes = [
        node("Attention", ["q", "k", "k"], ["plain"], is_causal=1, scale=0.5),
        node("Attention", ["q", "g", "g", "", "past", "past"], ["a", "keys", "values"], is_causal=1),
        node("Attention", ["rows", "four", "four", "mask"], ["b"], q_num_heads=2, kv_num_heads=1),
    ]
    inputs: dict[str, Any] = {name: ("float32", [2, 4, "L", 6]) for name in ("q", "k")}
    inputs |= {"g": ("float32", [2, 2, "L", 6]), "past": ("float32", [2, 2, "P", 6])}
    inputs |= {"rows": ("float32", [1, "L", 8])}
    opsets = [onnx.helper.make_opsetid("", 23)]
    constants = {"four": floats(1, 4, 4), "mask": mask}
    outputs = ["plain", "a", "keys", "values", "b"]
    model = model_of_nodes(nodes, inputs, outputs, constants, opset_imports=opsets)
    calls = [
        {name: floats(*({"L": n, "P": p}.get(e, e) for e in shape)) for name, (_, shape) in inputs.items()}
        for n, p in ((1, 0), (3, 5))
    ]
    graph = assert_as_reference(model, calls, L=(1, 8), P=(0, 8))
    assert [one.operator for one in graph.nodes].count("attention") == 3


def test_padding_by_sizes() -> None:
    """``x`` [L, 3] brought to a multiple of four rows, and begun with half as many of its own."""
    nodes = [
        node("Shape", ["x"], ["length"], end=1),
        node("Mod", ["length", "four"], ["over"]),
        node("Sub", ["four", "over"], ["lack"]),
        node("Mod", ["lack", "four"], ["more"]),
        node("Concat", ["zero", "zero", "more", "zero"], ["behind"], axis=0),
        node("Pad", ["x", "behind", "value"], ["y"]),
        node("Div", ["length", "two"], ["half"]),
        node("Concat", ["half", "zero", "zero", "zero"], ["before"], axis=0),
        node("Pad", ["x", "before"], ["z"], mode="edge"),
    ]
    constants = {"zero": ints(0), "four": ints(4), "two": ints(2), "value": np.float32(0.5)}
    model = model_of_nodes(nodes, {"x": ("float32", ["L", 3])}, ["y", "z"], constants)
    assert_as_reference(model, [{"x": floats(length, 3)} for length in (1, 4, 7)], L=(1, 9))


def test_arithmetic_of_shapes_is_folded() -> None:
    """Sizes of ``x`` [B, L, 12] taken apart, put together, halved, compared and counted with."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["length"]),
        node("Shape", ["x"], ["batch"], start=0, end=1),
        node("Constant", [], ["rest"], value_ints=[-1]),
        node("Unsqueeze", ["length", "axis"], ["lengths"]),
        node("Concat", ["batch", "lengths", "heads", "rest"], ["wide_shape"], axis=0),
        node("Reshape", ["x", "wide_shape"], ["wide"]),
        node("Add", ["length", "one"], ["more"]),
        node("Div", ["more", "two"], ["half"]),
        node("Unsqueeze", ["half", "axis"], ["halves"]),
        node("Slice", ["x", "axis", "halves", "second"], ["start"]),
        node("Range", ["zero", "length", "one"], ["positions"]),
        node("Gather", ["table", "positions"], ["rows"]),
        node("Equal", ["wide_shape", "rest"], ["is_rest"]),
        node("Where", ["is_rest", "four", "wide_shape"], ["known_shape"]),
        node("ConstantOfShape", ["known_shape"], ["zeros"]),
        node("Expand", ["one_float", "known_shape"], ["ones"]),
        node("ReduceProd", ["known_shape"], ["count"], keepdims=0),
        node("Size", ["x"], ["size"]),
        node("Less", ["length", "zero"], ["never"]),
        node("If", ["never"], ["same"], then_branch=_branch("Neg"), else_branch=_branch("Identity")),
    ]
    constants = {name: np.int64(k) for k, name in enumerate(("zero", "one", "two"))}
    constants |= {"axis": ints(0), "second": ints(1), "heads": ints(3), "four": ints(4)}
    constants |= {"table": floats(40, 8), "one_float": np.float32(1)}
    outputs = ["wide", "start", "rows", "zeros", "ones", "count", "size", "same"]
    model = model_of_nodes(nodes, {"x": ("float32", ["B", "L", 12])}, outputs, constants)
    calls = [{"x": floats(b, length, 12)} for b, length in ((1, 1), (2, 7), (3, 40))]
    graph = assert_as_reference(model, calls, B=(1, 4), L=(1, 40))
    assert [e.evaluate({"B": 3, "L": 8}) for e in graph.types[graph.outputs[1]].shape] == [3, 4, 12]
    kinds = {one.operator for one in graph.nodes}
    assert kinds <= {"reshape", "slice", "arange", "take", "full", "expand", "extent"}


def test_a_range_in_floating_point_of_a_size() -> None:
    """As PyTorch's exporters write ``torch.arange(n - 1, -n, -1.0)``, the distances of relative positions."""
    nodes = [
        node("Shape", ["x"], ["shape"], start=1, end=2),
        node("Squeeze", ["shape"], ["length"]),
        node("Sub", ["length", "one"], ["first"]),
        node("Neg", ["length"], ["last"]),
        node("Cast", ["first"], ["start"], to=onnx.TensorProto.FLOAT),
        node("Cast", ["last"], ["stop"], to=onnx.TensorProto.FLOAT),
        node("Range", ["start", "stop", "step"], ["distances"]),
    ]
    constants = {"one": np.int64(1), "step": np.float32(-1)}
    model = model_of_nodes(nodes, {"x": ("float32", ["B", "L"])}, ["distances"], constants)
    assert_as_reference(model, [{"x": floats(2, length)} for length in (1, 7, 40)], B=(1, 4), L=(1, 40))


def _branch(word: str) -> Any:
    output = onnx.helper.make_empty_tensor_value_info(word)
    return onnx.helper.make_graph([node(word, ["x"], [word])], word, [], [output])


@pytest.mark.parametrize("word", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("with_states", [True, False])
def test_recurrent_layers(word: str, direction: str, with_states: bool) -> None:
    """Beside torch.nn, whose gates are i f g o and r z n, where ONNX has i o f g and z r n."""
    directions, order = (
        2 if direction == "bidirectional" else 1,
        {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2], "RNN": [0]}[word],
    )
    torch.manual_seed(0)
    module = getattr(torch.nn, word)(3, 5, bidirectional=directions == 2)
    state = {name: one.detach().numpy() for name, one in module.named_parameters()}

    def turned(name: str) -> Array:
        each = [state[f"{name}_l0{end}"] for end in ("", "_reverse")[:directions]]
        return np.stack([one.reshape(len(order), 5, -1)[order].reshape(one.shape) for one in each])

    constants = {"W": turned("weight_ih"), "R": turned("weight_hh")}
    constants["B"] = np.concatenate([turned("bias_ih"), turned("bias_hh")], axis=1)
    names = (["h", "c"] if word == "LSTM" else ["h"]) if with_states else []
    results = ["Y", "Y_h", "Y_c"] if word == "LSTM" else ["Y", "Y_h"]
    more = {"linear_before_reset": 1} if word == "GRU" else {}
    layer = node(word, ["x", "W", "R", "B", "", *names], results, hidden_size=5, direction=direction, **more)
    inputs: dict[str, Any] = {"x": ("float32", ["L", "N", 3])}
    inputs |= {name: ("float32", [directions, "N", 5]) for name in names}
    graph, weights = import_model(model_of_nodes([layer], inputs, results, constants), L=(1, 9), N=(1, 4))
    assert {"W", "R", "B"} <= set(weights)
    for length, batch in ((1, 1), (7, 3)):
        given = {"x": floats(length, batch, 3)} | {name: floats(directions, batch, 5) for name in names}
        found = run_graph(graph, weights, given)
        x = torch.from_numpy(given["x"])
        states = tuple(torch.from_numpy(given[name]) for name in names)
        x = x.flip(0) if direction == "reverse" else x
        with torch.no_grad():
            y, last = module(x, *([states if word == "LSTM" else states[0]] if states else []))
        y = y.flip(0) if direction == "reverse" else y
        wanted = y.reshape(length, batch, directions, 5).transpose(1, 2)
        for own, right in zip(found, (wanted, *(last if word == "LSTM" else (last,))), strict=True):
            np.testing.assert_allclose(own, right.numpy(), rtol=0, atol=1e-5)


def test_functions_of_the_model_and_of_the_standard_are_put_in_place() -> None:
    twice = onnx.helper.make_function(
        *("own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])]),
        opset_imports=[onnx.helper.make_opsetid("", 21)],
    )
    nodes = [node("Twice", ["x"], ["y"], domain="own"), node("MeanVarianceNormalization", ["y"], ["z"])]
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("own", 1)]
    model = model_of_nodes(
        nodes, {"x": ("float32", ["L", 4, 3, 2])}, ["z"], functions=[twice], opset_imports=opsets
    )

    assert_as_reference(inlined(model), [{"x": floats(k, 4, 3, 2)} for k in (2, 5)], L=(2, 8))


def test_functions_of_bounded_elements() -> None:
    nodes = [node("Tanh", ["x"], ["t"]), node("Cosh", ["x"], ["c"])]
    # Just above 1, acosh makes much of the last bit of what it is given.
    nodes += [node("Add", ["c", "c"], ["more"]), node("Acosh", ["more"], ["apart"])]
    nodes += [node(word, ["t"], [word]) for word in ("Asin", "Acos", "Atanh")]
    outputs = ["apart", "Asin", "Acos", "Atanh"]
    model = model_of_nodes(nodes, {"x": ("float32", X)}, outputs)
    assert_as_reference(model, [{"x": floats(k, 4)} for k in (1, 5)], L=(1, 8))


def test_norms_that_the_reference_computes_otherwise() -> None:
    """Its norm of order 1 adds with signs, and its LRN goes over as many channels as there are images."""
    nodes = [node("LpNormalization", ["x"], ["p"], axis=1, p=1)]
    nodes.append(node("LRN", ["x"], ["r"], size=3, alpha=0.3, beta=0.6, bias=1.5))
    model = model_of_nodes(nodes, {"x": ("float32", IMAGE)}, ["p", "r"])
    graph, weights = import_model(model, L=(1, 8))
    x = floats(3, 4, 9, 8)
    found = run_graph(graph, weights, {"x": x})
    np.testing.assert_allclose(found[0], x / np.abs(x).sum(1, keepdims=True), rtol=1e-5)
    squares = np.pad(x.astype(np.float64) ** 2, [(0, 0), (1, 1), (0, 0), (0, 0)])
    near = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    np.testing.assert_allclose(found[1], x / (1.5 + 0.1 * near) ** 0.6, rtol=1e-4)


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_sequences_the_other_way_round(axes: tuple[int, int]) -> None:
    time, batch = axes
    shape: list[Any] = ["L", 3, 2] if time == 0 else [3, "L", 2]
    nodes = [node("ReverseSequence", ["x", "n"], ["y"], time_axis=time, batch_axis=batch)]
    model = model_of_nodes(nodes, {"x": ("float32", shape), "n": ("int64", [3])}, ["y"])
    calls = [
        {"x": floats(*(size if one == "L" else one for one in shape)), "n": ints(1, size, 2)}
        for size in (2, 5)
    ]
    assert_as_reference(model, calls, L=(2, 8))


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
        {"kernel_shape": [2, 2], "strides": [2, 2], "dilations": [2, 1]},
    ],
)
def test_positions_of_the_largest(options: dict[str, Any]) -> None:
    model = model_of_nodes(
        [node("MaxPool", ["x"], ["y", "at"], **options)], {"x": ("float32", IMAGE)}, ["y", "at"]
    )
    model.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.INT64
    assert_as_reference(model, [{"x": floats(k, 4, 9, 8)} for k in (1, 5)], L=(1, 8))


def test_what_is_small_shrinks_to_nothing() -> None:
    model = model_of_nodes([node("Shrink", ["x"], ["y"], lambd=0.4, bias=0.1)], {"x": ("float32", X)}, ["y"])
    assert_as_reference(model, [{"x": floats(k, 4)} for k in (1, 5)], L=(1, 8))


def test_every_rule_is_tried_here() -> None:
    """In a case of its own, in one of the functions above, or beside branches and loops."""
    files = (Path(__file__), *map(Path(__file__).with_name, ("test_onnx_flow.py", "test_onnx_quantized.py")))
    text = "".join(one.read_text(encoding="utf-8") for one in files)
    named = {word for word in ONNX_RULES if f'"{word}"' in text or f'"{word.removeprefix("Reduce")}"' in text}
    assert set(ONNX_RULES) == named


def test_dots_and_diagonals_of_sums_of_products() -> None:
    inputs = {"x": ("float32", ["L", 3, 3]), "y": ("float32", [1, 3, 2]), "z": ("float32", ["L", 3])}
    equations = {
        ("x", "y"): ["...ij,...jk->...ik", "...ij,...jk", "aij,bjk->ai"],
        ("x",): ["bii->b", "bii->bi", "...ii->...", "b...->...b", "bii"],
        ("x", "z"): ["bii,bi->b", "b...,bj->...j"],
    }
    nodes, outputs = [], []
    for names, every in equations.items():
        for text in every:
            outputs.append(f"o{len(outputs)}")
            nodes.append(node("Einsum", list(names), [outputs[-1]], equation=text))
    rng = np.random.default_rng(0)

    def call(rows: int) -> dict[str, Any]:
        sizes = {"x": (rows, 3, 3), "y": (1, 3, 2), "z": (rows, 3)}
        return {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()}

    assert_as_reference(model_of_nodes(nodes, inputs, outputs), [call(1), call(7)], L=(1, 7))


def test_positions_in_each_of_a_batch_and_the_last_of_equals() -> None:
    inputs = {"x": ("float32", ["L", 4, 3]), "i": ("int64", ["L", 2, 1]), "j": ("int64", ["L", 4, 1])}
    nodes = [
        node("GatherND", ["x", "i"], ["rows"], batch_dims=1),
        node("GatherND", ["x", "j"], ["elements"], batch_dims=2),
        node("ArgMax", ["x"], ["last"], axis=1, select_last_index=1),
        node("ArgMin", ["x"], ["least"], axis=-1, select_last_index=1, keepdims=0),
    ]
    rng = np.random.default_rng(0)

    def call(rows: int) -> dict[str, Any]:
        x = rng.integers(0, 3, (rows, 4, 3)).astype(np.float32)
        return {"x": x, "i": rng.integers(0, 4, (rows, 2, 1)), "j": rng.integers(0, 3, (rows, 4, 1))}

    outputs = ["rows", "elements", "last", "least"]
    assert_as_reference(model_of_nodes(nodes, inputs, outputs), [call(1), call(7)], L=(1, 7))
