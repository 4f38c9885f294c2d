"""Quantized operators of ONNX beside the package's reference functions: whole numbers exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_runs import assert_as_reference, import_model, model_of_nodes, onnx

from dietcode.errors import ModelError
from dietcode.models.importing.onnx.file import inlined

Array = np.ndarray[Any, Any]
node = onnx.helper.make_node
rng = np.random.default_rng(7)
float32 = np.float32


def _normal(*shape: int) -> Array:
    return rng.standard_normal(shape, dtype=float32)


def _bytes(*shape: int) -> Array:
    return rng.integers(0, 256, shape).astype(np.uint8)


def _signed(*shape: int) -> Array:
    return rng.integers(-128, 128, shape).astype(np.int8)


def _scales(count: int) -> Array:
    return np.asarray(rng.uniform(0.005, 0.02, count), float32)


def _model(nodes: Any, inputs: Any, constants: Any, opset: int = 21) -> Any:
    return model_of_nodes(
        nodes, inputs, ["y"], constants, opset_imports=[onnx.helper.make_opsetid("", opset)]
    )


@pytest.mark.parametrize("opset", [21, 23])
def test_quantized_and_back_around_a_product(opset: int) -> None:
    """What static quantization writes: activations by one scale, weights by one for each column."""
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["dw"], axis=1),
        node("MatMul", ["d", "dw"], ["y"]),
    ]
    constants = {
        "w": _signed(48, 9),
        "ws": _scales(9),
        "wz": np.zeros(9, np.int8),
        "xs": np.array(0.02, float32),
        "xz": np.array(121, np.uint8),
    }
    model = _model(nodes, {"x": ("float32", ["L", 48])}, constants, opset)
    assert_as_reference(model, [{"x": _normal(size, 48) * 4} for size in (1, 7, 33)], L=(1, 64))


@pytest.mark.parametrize(
    "zero", [np.array(3, np.int8), np.array(200, np.uint8), np.array(-4, np.int16), None]
)
def test_numbers_are_rounded_and_brought_within_their_dtype(zero: Any) -> None:
    constants = {"s": np.array(0.5, float32)} | ({} if zero is None else {"z": np.array(zero)})
    nodes = [node("QuantizeLinear", ["x", "s", *([] if zero is None else ["z"])], ["y"])]
    halves = np.arange(-700, 700, dtype=float32).reshape(-1, 4) / 4  # ties go to even numbers
    assert_as_reference(_model(nodes, {"x": ("float32", ["L", 4])}, constants), [{"x": halves}], L=(1, 400))


def test_a_scale_for_each_row_and_for_blocks() -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=0),
        node("DequantizeLinear", ["q", "s", "z"], ["a"], axis=0),
        node("DequantizeLinear", ["w", "bs", "bz"], ["b"], axis=1, block_size=4),
        node("Add", ["a", "b"], ["y"]),
    ]
    constants = {
        **{"s": _scales(3), "z": _signed(3), "w": _signed(3, 10)},
        **{"bs": _scales(9).reshape(3, 3), "bz": _signed(3, 3)},
    }
    inputs = {"x": ("float32", [3, 10])}
    assert_as_reference(_model(nodes, inputs, constants), [{"x": _normal(3, 10)}])


def test_dynamic_quantization() -> None:
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z", "wz"], ["i"]),
        node("Cast", ["i"], ["c"], to=onnx.TensorProto.FLOAT),
        node("Mul", ["c", "s"], ["y"]),
    ]
    constants = {"w": _signed(512, 6), "wz": _signed(6)}
    model = inlined(_model(nodes, {"x": ("float32", ["L", 512])}, constants))
    assert_as_reference(model, [{"x": _normal(size, 512)} for size in (1, 9)], L=(1, 16))


@pytest.mark.parametrize("depth", [4, 258, 259, 3000])
def test_products_of_bytes_are_exact_whatever_their_depth(depth: int) -> None:
    nodes = [node("MatMulInteger", ["x", "w", "xz", "wz"], ["y"])]
    constants = {
        "w": np.full((depth, 3), 255, np.uint8) - (np.arange(depth)[:, None] % 3 == 0).astype(np.uint8),
        "xz": np.array(0, np.uint8),
        "wz": np.array(0, np.uint8),
    }
    largest = np.full((2, depth), 255, np.uint8)
    calls = [{"x": largest}, {"x": _bytes(5, depth)}]
    assert_as_reference(_model(nodes, {"x": ("uint8", ["L", depth])}, constants), calls, L=(1, 16))


def test_products_that_no_float32_holds_are_refused() -> None:
    nodes = [node("MatMulInteger", ["x", "w"], ["y"], name="deep")]
    model = _model(nodes, {"x": ("uint8", ["L", 5000])}, {"w": _bytes(5000, 2)})
    with pytest.raises(ModelError, match=r"sums of 5000 products; allowed: up to 4112 \(deep\)"):
        import_model(model, L=(1, 16))


def test_quantized_products() -> None:
    constants = {
        **{"w": _bytes(40, 6), "xs": np.array(0.013, float32), "xz": np.array(113, np.uint8)},
        **{"ws": np.array(0.02, float32), "wz": np.array(114, np.uint8)},
        **{"ys": np.array(0.11, float32), "yz": np.array(118, np.uint8)},
    }
    nodes = [node("QLinearMatMul", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"])]
    model = _model(nodes, {"x": ("uint8", ["L", 40])}, constants)
    assert_as_reference(model, [{"x": _bytes(size, 40)} for size in (1, 7)], L=(1, 16))


def test_quantized_convolutions() -> None:
    constants = {
        **{"w": _signed(4, 3, 3, 3), "xs": np.array(0.013, float32), "xz": np.array(113, np.uint8)},
        **{"ws": _scales(4), "wz": np.zeros(4, np.int8), "b": rng.integers(-900, 900, 4).astype(np.int32)},
        **{"ys": np.array(0.21, float32), "yz": np.array(18, np.uint8)},
    }
    nodes = [
        node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"], pads=[1, 0, 1, 2])
    ]
    inputs = {"x": ("uint8", ["B", 3, 6, "W"])}
    calls = [{"x": _bytes(size, 3, 6, size + 4)} for size in (1, 3)]
    assert_as_reference(_model(nodes, inputs, constants), calls, B=(1, 4), W=(4, 16))
    whole = [node("ConvInteger", ["x", "u", "xz"], ["y"], pads=[1, 1, 1, 1])]
    wide = {"u": _bytes(4, 3, 3, 3), "xz": constants["xz"]}
    assert_as_reference(_model(whole, inputs, wide), calls, B=(1, 4), W=(4, 16))
