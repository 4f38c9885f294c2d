"""Whole numbers that stand for others by a scale and a zero point, of ONNX."""

from __future__ import annotations

import math

import numpy as np

from dietcode.graph.extent import ONE
from dietcode.graph.graph import Value
from dietcode.graph.tensor_type import INTEGERS, GraphError, axis_of
from dietcode.models.importing.exact_sums import exact_sums
from dietcode.models.importing.onnx.context import (
    OnnxImporter,
    OnnxNode,
    OnnxResult,
    OnnxValue,
    dtype_of,
    onnx_rule,
)
from dietcode.models.importing.onnx.layers import windowed


def _fitted(m: OnnxImporter, value: OnnxValue | None, x: str, axis: int, block: int) -> Value:
    """Return a scale or a zero point as it goes with a tensor: one, one for each position, or for blocks."""
    given, rank = m.tensor(value), m.rank(x)
    shape = m.type(given).shape
    if not shape or shape == (ONE,):
        return m.operand(value, rank)
    axis = axis_of(axis, rank)
    if block:
        wide = m.reshape(given, (*shape[: axis + 1], ONE, *shape[axis + 1 :]))
        sizes = (*shape[: axis + 1], block, *shape[axis + 1 :])
        spread = m.add("expand", wide, shape=sizes)
        whole = m.reshape(spread, (*shape[:axis], shape[axis] * block, *shape[axis + 1 :]))
        return m.slice(whole, axis, 0, m.type(x).shape[axis])
    if len(shape) != 1:
        raise GraphError(f"a scale {m.type(given)}; allowed: one number, or one for each position of an axis")
    return m.reshape(given, [shape[0] if k == axis else ONE for k in range(rank)])


def _limits(dtype: str) -> tuple[int, int]:
    if dtype not in INTEGERS:
        raise GraphError(f"dtype {dtype}; allowed: whole numbers, {', '.join(INTEGERS)}")
    found = np.iinfo(dtype)
    return int(found.min), int(found.max)


def _apart(m: OnnxImporter, x: str, zero: Value) -> str:
    """Return the distances of whole numbers from a zero point, in float32."""
    if zero is None or (isinstance(zero, int | float) and not zero):
        return str(m.cast(x, "float32"))
    return str(m.cast(m.add("sub", m.cast(x, "int32"), m.cast(zero, "int32")), "float32"))


def _rounded(m: OnnxImporter, x: str, zero: Value, dtype: str) -> str:
    """Return numbers as whole ones about a zero point, brought within their dtype."""
    low, high = _limits(dtype)
    whole = m.add("round", x)
    if isinstance(zero, str) or zero:
        whole = m.add("add", whole, m.cast(zero, "float32"))
    return str(m.cast(m.add("clip", whole, low=float(low), high=float(high)), dtype))


@onnx_rule("DequantizeLinear")
def _dequantize(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x, axis, block = n.tensor(0), n.attribute("axis", 1), n.attribute("block_size", 0)
    scale = _fitted(m, n.value(1), x, axis, block)
    zero = None if n.value(2) is None else _fitted(m, n.value(2), x, axis, block)
    return m.add("mul", _apart(m, x, zero), scale)


@onnx_rule("QuantizeLinear")
def _quantize(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x, axis, block = n.tensor(0), n.attribute("axis", 1), n.attribute("block_size", 0)
    scale = _fitted(m, n.value(1), x, axis, block)
    zero = None if n.value(2) is None else _fitted(m, n.value(2), x, axis, block)
    n.ignore("saturate")  # of dtypes that models do not have
    named = n.attribute("output_dtype", 0)
    dtype = m.dtype(n.value(2)) if n.value(2) is not None else dtype_of(named) if named else "uint8"
    return _rounded(m, m.add("div", x, scale), zero, dtype)


def _zero(m: OnnxImporter, value: OnnxValue | None, x: str, axis: int) -> Value:
    return None if value is None else _fitted(m, value, x, axis, 0)


def _product(m: OnnxImporter, n: OnnxNode, first: tuple[int, int], second: tuple[int, int]) -> str:
    """Return an exact product of matrices; numbers say which operands both are, and their zero points."""
    x, y = n.tensor(first[0]), n.tensor(second[0])
    depth = m.type(x).shape[-1]
    if not depth.is_constant:
        raise GraphError(f"a sum over {depth} products; allowed: a constant number")
    rows = _apart(m, x, _zero(m, n.value(first[1]), x, -2))
    columns = _apart(m, y, _zero(m, n.value(second[1]), y, -1))
    return exact_sums(m, rows, depth.constant, lambda one: m.add("matmul", one, columns))


def _window_sums(m: OnnxImporter, n: OnnxNode, first: tuple[int, int], second: tuple[int, int]) -> str:
    """Return exact sums over windows; operands are said as in `_product`."""
    x, w = n.tensor(first[0]), n.tensor(second[0])
    n.ignore("kernel_shape")
    inner, *window = m.constant_shape(w, 1)
    depth = inner * math.prod(window)
    weights = _apart(m, w, _zero(m, n.value(second[1]), w, 0))
    rows, options = windowed(m, n, _apart(m, x, _zero(m, n.value(first[1]), x, 1)), window)
    options["groups"] = n.attribute("group", 1)
    return exact_sums(m, rows, depth, lambda one: m.add("conv", one, weights, **options))


@onnx_rule("MatMulInteger")
def _matmul_integer(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    return _product(m, n, (0, 2), (1, 3))


@onnx_rule("ConvInteger")
def _conv_integer(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    return _window_sums(m, n, (0, 2), (1, 3))


def _of_both(m: OnnxImporter, operator: str, first: Value, second: Value) -> Value:
    """Return a product or a quotient of scales, in float32 where both are numbers too."""
    if isinstance(first, str) or isinstance(second, str):
        return m.add(operator, first, second)
    own, other = np.float32(first or 0), np.float32(second or 0)
    return float(own * other if operator == "mul" else own / other)


def _rescaled(m: OnnxImporter, n: OnnxNode, sums: str, axis: int, numbers: tuple[int, int, int, int]) -> str:
    """Return sums as whole numbers of another scale.

    Parameters
    ----------
    m : OnnxImporter
    n : OnnxNode
    sums : str
        Of int32.
    axis : int
        Of the results that scales of the second operand belong to.
    numbers : tuple of int
        Which operands of the node the two scales, the result's and its zero point are.
    """
    scales = [_fitted(m, n.value(k), sums, axis, 0) for k in numbers[:3]]
    factor = _of_both(m, "div", _of_both(m, "mul", scales[0], scales[1]), scales[2])
    scaled = m.add("mul", m.cast(sums, "float32"), factor)
    return _rounded(m, scaled, _zero(m, n.value(numbers[3]), sums, axis), m.dtype(n.value(numbers[3])))


@onnx_rule("QLinearMatMul")
def _quantized_matmul(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    return _rescaled(m, n, _product(m, n, (0, 2), (3, 5)), -1, (1, 4, 6, 7))


@onnx_rule("QLinearConv")
def _quantized_conv(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    sums = _window_sums(m, n, (0, 2), (3, 5))
    if n.value(8) is not None:
        bias = n.tensor(8)
        sums = m.add("add", sums, m.reshape(bias, (*m.type(bias).shape, *[1] * (m.rank(sums) - 2))))
    return _rescaled(m, n, sums, 1, (1, 4, 6, 7))
