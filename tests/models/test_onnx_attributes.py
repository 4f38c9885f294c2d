"""Attributes of operators of ONNX in combinations, at several sizes of a dynamic axis.

The package's own cases (`test_onnx_conformance`) vary few attributes and no sizes. Right are its reference
functions, and for windows what the standard says: those functions know no dilation beside auto_pad.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from graph_runs import run_graph
from onnx_runs import Array, assert_as_reference, import_model, model_of_nodes, onnx

_rng = np.random.default_rng(0)
# An operator; its operands, which are inputs as "float32[L,4]", arrays of the file or None; its attributes.
Case = tuple[str, Sequence[Any], dict[str, Any]]


def _each(**choices: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Yield every combination of attributes; those that are None are left out."""
    for values in itertools.product(*choices.values()):
        yield {name: one for name, one in zip(choices, values, strict=True) if one is not None}


def _ints(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def _floats(*shape: int) -> Array:
    return _rng.standard_normal(shape).astype(np.float32)


def _values(dtype: str, shape: Sequence[Any], size: int) -> Array:
    extents = [size if e == "L" else e for e in shape]
    if dtype.startswith("float"):
        return _rng.standard_normal(extents).astype(dtype)
    return _rng.integers(0 if dtype.startswith("u") else -4, 5, extents).astype(dtype)


def _model(case: Case, version: int, results: int) -> tuple[Any, dict[str, tuple[str, list[Any]]]]:
    """Return a model of one operator and its inputs."""
    word, operands, attributes = case
    inputs: dict[str, tuple[str, list[Any]]] = {}
    constants: dict[str, Array] = {}
    names = ["" if one is None else f"x{k}" for k, one in enumerate(operands)]
    for name, one in zip(names, operands, strict=True):
        if isinstance(one, str):
            dtype, _, shape = one.rstrip("]").partition("[")
            inputs[name] = dtype, [int(e) if e.isdigit() else e for e in shape.split(",") if e]
        elif one is not None:
            constants[name] = np.asarray(one)
    outputs = [f"y{k}" for k in range(results)]
    node = onnx.helper.make_node(word, names, outputs, **attributes)
    opsets = [onnx.helper.make_opsetid("", version)]
    return model_of_nodes([node], inputs, outputs, constants, opset_imports=opsets), inputs


def _reductions() -> Iterator[Case]:
    words = ("Sum", "Mean", "Max", "Prod", "L1", "L2", "SumSquare", "LogSumExp")
    for axes, options in itertools.product(
        (None, _ints(), _ints(-1), _ints(1, 0, 2)), _each(keepdims=[None, 0], noop_with_empty_axes=[None, 1])
    ):
        yield from ((f"Reduce{word}", ["float32[L,3,2]", axes], options) for word in words)


def _resizes() -> Iterator[Case]:
    modes = [("nearest", way) for way in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")]
    places = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    for (mode, way), where in itertools.product((*modes, ("linear", None), ("cubic", None)), places):
        options = {"mode": mode, "coordinate_transformation_mode": where}
        options |= {"nearest_mode": way} if way else {}
        if (mode, where) != ("cubic", "pytorch_half_pixel"):  # the reference takes -1/2, the standard says 0
            yield "Resize", ["float32[1,1,L]", None, None, _ints(1, 1, 1)], options
        yield "Resize", ["float32[L,1,5]", None, None, _ints(7, 3)], options | {"axes": [0, 2]}
        if where != "align_corners":
            yield "Resize", ["float32[1,L,2]", None, np.array([1, 1.5, 2.5], np.float32)], options


def _positions() -> Iterator[Case]:
    for dtype, depth, axis in itertools.product(("int64", "uint8", "float32"), (4, 300), (-1, 0)):
        yield "OneHot", [f"{dtype}[L,3]", np.int64(depth), np.array([2, 5], np.float32)], {"axis": axis}
    yield "OneHot", ["int32[L]", np.float32(3), "float32[2]"], {}
    far = 2**63 - 1
    for start, stop in ((0, far), (0, -far), (2**31 - 1, far), (-far - 1, 3), (-far - 1, -far), (far, far)):
        yield "Slice", ["float32[4,L]", _ints(start), _ints(stop), _ints(1)], {}
    for start, stop in ((far, -far - 1), (-1, -far), (2, -far - 1), (far, -3)):
        yield "Slice", ["float32[4,L]", _ints(start), _ints(stop), _ints(-1), _ints(-2)], {}
    for word, options in itertools.product(
        ("ArgMax", "ArgMin"), _each(axis=[0, -1], select_last_index=[0, 1])
    ):
        yield word, ["int32[L,4]"], options
    for mode, pads in itertools.product(
        ("constant", "reflect", "edge", "wrap"), ((0, 1, 0, 2), (0, 5, 0, 7))
    ):
        yield "Pad", ["float32[L,3]", _ints(*pads)], {"mode": mode}
    yield "Pad", ["float32[L,3]", _ints(), None, _ints()], {}
    yield "NonZero", ["float32[L,3]"], {}
    yield "Split", ["float32[L,8]"], {"axis": 1, "num_outputs": 1}
    yield "Range", [np.int64(5), np.int64(2), np.int64(1)], {}


def _elements() -> Iterator[Case]:
    for axis, options in itertools.product((0, -1), _each(exclusive=[0, 1], reverse=[0, 1])):
        yield "CumSum", ["float32[L,4]", np.int64(axis)], options
    yield "CumSum", [np.array([1, math.inf, 2], np.float32), np.int64(0)], {"exclusive": 1}
    for low, high in itertools.product((None, np.int32(-1)), (None, np.int32(2), np.int32(-2))):
        yield "Clip", ["int32[L,4]", low, high], {}
    for options in _each(detect_negative=[0, 1], detect_positive=[0, 1]):
        yield "IsInf", [np.array([math.inf, -math.inf, math.nan, 1], np.float32)], options
    yield "Shrink", ["int32[L,4]"], {"lambd": 1.5, "bias": 1.5}
    yield "Pow", ["int32[L,4]", np.float32(2.5)], {}
    yield "BatchNormalization", ["float32[L,3]", *_floats(4, 3) ** 2], {"momentum": 0.5}
    for ranks in ("ij,ij->j", "ij,ij->i"):
        yield "Einsum", ["float32[L,4]", "float32[1,4]"], {"equation": ranks}
    yield "Einsum", ["float32[L,1]", "float32[4,3]"], {"equation": "ij,jk->ik"}
    for options in _each(interleaved=[None, 1], rotary_embedding_dim=[None, 4]):
        tables = [_floats(9, options.get("rotary_embedding_dim", 8) // 2) for _ in range(2)]
        yield "RotaryEmbedding", ["float32[2,L,3,8]", *tables, _rng.integers(0, 9, (2, 3))], options


def _transposed() -> Iterator[Case]:
    weights = [_floats(4, 3, 3, 2), _floats(3)]
    for options in _each(strides=[[1, 1], [2, 1], [2, 3]], auto_pad=["SAME_UPPER", "SAME_LOWER", "VALID"]):
        yield "ConvTranspose", ["float32[1,4,L,5]", *weights], options
    for options in _each(
        strides=[[1, 1], [2, 3], [4, 1]], dilations=[[1, 1], [2, 1]], auto_pad=["SAME_LOWER"]
    ):
        yield "Conv", ["float32[1,4,L,5]", _floats(3, 4, 3, 2)], options


VERSIONS = {"Resize": 19, "OneHot": 21, "RotaryEmbedding": 23}
GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    one.__name__.strip("_"): one for one in (_reductions, _resizes, _positions, _elements, _transposed)
}


@pytest.mark.parametrize("name", GROUPS)
def test_attributes(name: str) -> None:
    for case in GROUPS[name]():
        model, inputs = _model(case, VERSIONS.get(case[0], 20), 1)
        ranges = {"L": (2, 9)} if any("L" in shape for _, shape in inputs.values()) else {}
        calls = [
            {key: _values(dtype, shape, size) for key, (dtype, shape) in inputs.items()} for size in (2, 7)
        ]
        assert_as_reference(model, calls[: len(ranges) + 1], **ranges)


@pytest.mark.parametrize("mode", ["NOTSET", "SAME_UPPER"])
def test_transposed_convolutions_of_a_size(mode: str) -> None:
    """Which the reference functions cut by pads that the node lacks."""
    operands = ["float32[1,4,L,5]", _floats(4, 3, 3, 2)]
    whole, _ = _model(("ConvTranspose", operands, {}), 21, 1)
    cut, _ = _model(("ConvTranspose", operands, {"output_shape": [3, 4], "auto_pad": mode}), 21, 1)
    for size in (2, 7):
        x = _floats(1, 4, size, 5)
        ((right,), (found,)) = (run_graph(*import_model(one, L=(2, 9)), {"x0": x}) for one in (whole, cut))
        rows, columns = (extent // 2 if mode == "SAME_UPPER" else -(-extent // 2) for extent in (size - 1, 2))
        np.testing.assert_allclose(found, right[:, :, rows : rows + 3, columns : columns + 4], rtol=1e-5)


def _window_places(size: int, axis: int, options: Mapping[str, Any]) -> tuple[int, list[list[int]]]:
    """Return how many pads are behind an axis, and the elements of each window, pads among them."""
    stride, dilation = options["strides"][axis], options["dilations"][axis]
    span, mode = (options["kernel_shape"][axis] - 1) * dilation + 1, options.get("auto_pad", "NOTSET")
    before, after = (options.get("pads") or [0] * 4)[axis::2]
    count = (size + before + after - span) / stride + 1
    count = math.ceil(count) if options.get("ceil_mode") else math.floor(count)
    if mode.startswith("SAME"):
        count = -(-size // stride)
        total = max((count - 1) * stride + span - size, 0)
        before, after = sorted((total // 2, total - total // 2), reverse=mode == "SAME_LOWER")
    begins = [k * stride - before for k in range(count) if k * stride - before < size]
    return after, [list(range(begin, begin + span, dilation)) for begin in begins]


def _windows(word: str, x: Array, options: Mapping[str, Any]) -> list[Array]:
    """Return what pooling gives, and the positions of the largest elements."""
    sizes = x.shape[2:]
    (row_end, rows), (column_end, columns) = (_window_places(s, k, options) for k, s in enumerate(sizes))
    found, places = np.zeros((2, *x.shape[:2], len(rows), len(columns)))
    for i, own_rows in enumerate(rows):
        for j, own_columns in enumerate(columns):
            padded = list(itertools.product(own_rows, own_columns))
            at = [(r, c) for r, c in padded if 0 <= r < sizes[0] and 0 <= c < sizes[1]]
            values = np.stack([x[:, :, r, c] for r, c in at], axis=-1).astype(np.float64)
            if word == "MaxPool":
                best = values.argmax(-1)
                flat = [c * sizes[0] + r if options.get("storage_order") else r * sizes[1] + c for r, c in at]
                first = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2]) * math.prod(sizes)
                found[:, :, i, j], places[:, :, i, j] = values.max(-1), first + np.array(flat)[best]
            elif word == "LpPool":
                found[:, :, i, j] = (values**2).sum(-1) ** 0.5
            else:
                inside = [r < sizes[0] + row_end and c < sizes[1] + column_end for r, c in padded]
                count = sum(inside) if options.get("count_include_pad") else len(at)
                found[:, :, i, j] = values.sum(-1) / count
    return [found.astype(x.dtype), places.astype(np.int64)]


@pytest.mark.parametrize("word", ["MaxPool", "AveragePool", "LpPool"])
def test_windows(word: str) -> None:
    """Windows of which auto_pad, dilations or ceil_mode say where they lie, and positions in them."""
    own = {"MaxPool": {"storage_order": [None, 1]}, "AveragePool": {"count_include_pad": [None, 1]}}
    choices = {"strides": [[1, 1], [2, 3]], "dilations": [[1, 1], [2, 1]], "kernel_shape": [[3, 2]]}
    around = [{"pads": [1, 0, 1, 1]}, *({"auto_pad": word} for word in ("SAME_UPPER", "SAME_LOWER", "VALID"))]
    around += [{"pads": [1, 0, 1, 1], "ceil_mode": 1}, {"ceil_mode": 1}] * (word != "LpPool")
    for options, more in itertools.product(_each(**choices, **own.get(word, {})), around):
        case: Case = word, ["float32[2,2,L,8]"], options | more
        model, _ = _model(case, 22, 2 if word == "MaxPool" else 1)
        graph, weights = import_model(model, L=(5, 9))
        for size in (5, 8):
            x = _floats(2, 2, size, 8)
            rights = _windows(word, x, options | more)
            for found, right in zip(run_graph(graph, weights, {"x0": x}), rights, strict=False):
                assert found.shape == right.shape, case
                np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5, err_msg=str(case))
