"""Products, convolutions, pooling, norms and reductions of ONNX."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

from dietcode.graph.extent import ONE, Extent, floor_divide
from dietcode.graph.graph import Value
from dietcode.graph.tensor_type import GraphError, axis_of
from dietcode.models.importing.onnx.context import (
    OnnxImporter,
    OnnxNode,
    OnnxResult,
    OnnxValue,
    onnx_rule,
)
from dietcode.models.importing.onnx.known import Known
from dietcode.models.importing.pooling import largest_positions
from dietcode.models.importing.resampled import TransposedConvolution, transposed_convolution
from dietcode.models.importing.spelled_out import batch_norm, group_norm, log_sum_exp, norm, scaled


@onnx_rule("MatMul")
def _matmul(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    return m.add("matmul", n.tensor(0), n.tensor(1))


def _turned(m: OnnxImporter, x: str, turn: bool) -> str:
    return m.transpose(x, (1, 0)) if turn else x


@onnx_rule("Gemm")
def _gemm(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x, w, bias = n.tensor(0), n.tensor(1), n.optional(2)
    alpha, beta = n.attribute("alpha", 1.0), n.attribute("beta", 1.0)
    x, w = _turned(m, x, bool(n.attribute("transA", 0))), _turned(m, w, not n.attribute("transB", 0))
    columns = m.type(w).shape[:1]
    if bias is not None and alpha == beta == 1 and m.type(bias).shape == columns:
        return m.add("linear", x, w, bias)
    product = m.add("linear", x, w)
    product = product if alpha == 1 else m.add("mul", product, alpha)
    if bias is None or beta == 0:
        return product
    return m.add("add", product, bias if beta == 1 else m.add("mul", bias, beta))


def _same_pads(extent: Extent, span: int, stride: int, mode: str) -> tuple[int, int]:
    """Return elements before and after, by which one window begins at each stride."""
    if stride == 1:
        total = span
    elif extent.is_constant:
        windows = -(-extent.constant // stride)
        total = max((windows - 1) * stride + span + 1 - extent.constant, 0)
    else:
        raise GraphError(f"auto_pad {mode} with stride {stride} over {extent}; allowed: constant extents")
    return (total // 2, total - total // 2) if mode == "SAME_UPPER" else (total - total // 2, total // 2)


def window_options(m: OnnxImporter, n: OnnxNode, x: str, window: list[int]) -> dict[str, Any]:
    """Return strides, dilation and pads of a window over the last axes."""
    rank = len(window)
    strides, dilation = n.attribute("strides", [1] * rank), n.attribute("dilations", [1] * rank)
    mode = n.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        spans = [(k - 1) * d for k, d in zip(window, dilation, strict=True)]
        extents = m.type(x).shape[-rank:]
        pads = [_same_pads(e, s, t, mode) for e, s, t in zip(extents, spans, strides, strict=True)]
    else:
        flat = n.attribute("pads", [0] * (2 * rank)) if mode == "NOTSET" else [0] * (2 * rank)
        pads = list(zip(flat[:rank], flat[rank:], strict=True))
    return {"strides": tuple(strides), "dilation": tuple(dilation), "pads": tuple(pads)}


@onnx_rule("Conv")
def _convolution(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x, w, bias = n.tensor(0), n.tensor(1), n.optional(2)
    window = m.type(w).shape[2:]
    if not all(one.is_constant for one in window):
        raise GraphError(f"weights {m.type(w)}; allowed: a constant window")
    options = window_options(m, n, x, [one.constant for one in window])
    operands = () if bias is None else (bias,)
    return m.add("conv", x, w, *operands, groups=n.attribute("group", 1), **options)


@onnx_rule("ConvTranspose")
def _transposed(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    n.refuse_others(auto_pad="NOTSET", output_shape=None)
    x, w, bias = n.tensor(0), n.tensor(1), n.optional(2)
    rank = m.rank(w) - 2
    flat = n.attribute("pads", [0] * (2 * rank))
    how = TransposedConvolution(
        strides=tuple(n.attribute("strides", [1] * rank)),
        dilation=tuple(n.attribute("dilations", [1] * rank)),
        pads=tuple(zip(flat[:rank], flat[rank:], strict=True)),
        more=tuple(n.attribute("output_padding", [0] * rank)),
        groups=n.attribute("group", 1),
    )
    return transposed_convolution(m, x, w, bias, how)


@onnx_rule("MaxPool", "AveragePool")
def _pool(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    n.refuse_others(storage_order=0)
    x, window = n.tensor(0), n.attribute("kernel_shape")
    options = window_options(m, n, x, window)
    options |= {"window": tuple(window), "ceil": bool(n.attribute("ceil_mode", 0))}
    if n.proto.op_type == "MaxPool":
        found = m.add("max_pool", x, **options)
        return [found, largest_positions(m, x, found, **options)] if n.is_read(1) else found
    return m.add("avg_pool", x, count_pads=bool(n.attribute("count_include_pad", 0)), **options)


@onnx_rule("LpPool")
def _norm_pool(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    """Return the norm of each window, from the mean of powers."""
    n.refuse_others(ceil_mode=0)
    x, window, p = n.tensor(0), n.attribute("kernel_shape"), n.attribute("p", 2)
    options = window_options(m, n, x, window) | {"window": tuple(window), "ceil": False, "count_pads": True}
    power = m.add("square", x) if p == 2 else m.add("pow", m.add("abs", x), float(p))
    total = m.add("mul", m.add("avg_pool", power, **options), float(math.prod(window)))
    return m.add("sqrt", total) if p == 2 else m.add("pow", total, 1.0 / p)


@onnx_rule("GlobalAveragePool", name="mean")
@onnx_rule("GlobalMaxPool", name="max")
def _global(m: OnnxImporter, n: OnnxNode, name: str) -> OnnxResult:
    x = n.tensor(0)
    return m.add(name, x, axes=tuple(range(2, m.rank(x))), keep=True)


@onnx_rule("BatchNormalization")
def _batch_norm(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    if n.attribute("training_mode", 0):
        raise GraphError("a norm of a model in training mode; call model.eval() before the export")
    x, weight, bias, mean, variance = (n.tensor(k) for k in range(5))
    return batch_norm(m, x, weight, bias, mean, variance, n.attribute("epsilon", 1e-5))


@onnx_rule("InstanceNormalization")
def _instance_norm(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x = n.tensor(0)
    channels = m.type(x).shape[1].constant
    # Exporters write a group norm as this one with weights 1 and bias 0, and its own weights behind it.
    weight, bias = (None if _is_all(n.value(k), one) else n.tensor(k) for k, one in ((1, 1), (2, 0)))
    return group_norm(m, x, channels, weight, bias, n.attribute("epsilon", 1e-5))


def _is_all(value: OnnxValue | None, number: float) -> bool:
    return isinstance(value, Known) and value.is_constant and bool((value.array == number).all())


@onnx_rule("GroupNormalization")
def _group_norm(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x, groups = n.tensor(0), n.attribute("num_groups")
    weights = [n.tensor(k) for k in (1, 2)]
    if m.opset < 21:  # one weight for each group
        each = floor_divide(m.type(x).shape[1], Extent.of(groups))
        wide = [m.add("expand", m.reshape(one, (groups, 1)), shape=(groups, each)) for one in weights]
        weights = [m.reshape(one, m.type(x).shape[1:2]) for one in wide]
    return group_norm(m, x, groups, weights[0], weights[1], n.attribute("epsilon", 1e-5))


@onnx_rule("LayerNormalization", name="layernorm")
@onnx_rule("RMSNormalization", name="rmsnorm")
def _row_norm(m: OnnxImporter, n: OnnxNode, name: str) -> OnnxResult:
    if n.is_read(1) or n.is_read(2):
        raise GraphError("mean and deviation of a norm; allowed: its first result")
    x = n.tensor(0)
    first = axis_of(n.attribute("axis", -1), m.rank(x))
    last, num_axes = m.type(x).shape[first:], m.rank(x) - first
    eps = n.attribute("epsilon", 1e-5)
    weights: list[Value] = [n.optional(k) for k in (1, 2)]
    fits = all(one is None or m.type(one).shape == last for one in weights)
    if fits and weights[0] is not None:
        given = [one for one in weights if one is not None]
        return m.add(name, x, *given, eps=eps, num_axes=num_axes)
    return scaled(m, m.add(name, x, eps=eps, num_axes=num_axes), *weights)


@onnx_rule("Softmax", name="softmax")
@onnx_rule("LogSoftmax", name="log_softmax")
def _along(m: OnnxImporter, n: OnnxNode, name: str) -> OnnxResult:
    x = n.tensor(0)
    return m.add(name, x, axis=axis_of(n.attribute("axis", -1), m.rank(x)))


@onnx_rule("Hardmax")
def _hardmax(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    """Return 1 at the first of the largest elements along an axis, 0 elsewhere."""
    x = n.tensor(0)
    axis = axis_of(n.attribute("axis", -1), m.rank(x))
    first = m.add("argmax", x, axis=axis, keep=True)
    length = m.type(x).shape[axis]
    own = m.reshape(m.add("arange", stop=length), [length if k == axis else ONE for k in range(m.rank(x))])
    return str(m.cast(m.add("equal", own, first), m.type(x).dtype))


@onnx_rule("LpNormalization")
def _unit_length(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x = n.tensor(0)
    axis = axis_of(n.attribute("axis", -1), m.rank(x))
    return m.add("div", x, norm(m, x, (axis,), n.attribute("p", 2), keep=True))


@onnx_rule("LRN")
def _local_norm(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    """Divide by a power of the sum of squares over neighbouring channels."""
    x, size = n.tensor(0), n.attribute("size")
    channels = m.type(x).shape[1]
    before = (size - 1) // 2
    pads = [(0, 0)] * m.rank(x)
    pads[1] = (before, size - 1 - before)
    wide = m.add("pad", m.add("square", x), pads=tuple(pads), value=0)
    parts = [m.slice(wide, 1, k, channels + k) for k in range(size)]
    total = reduce(lambda a, b: m.add("add", a, b), parts)
    scale = m.add("mul", total, n.attribute("alpha", 1e-4) / size)
    power = m.add("pow", m.add("add", scale, n.attribute("bias", 1.0)), -n.attribute("beta", 0.75))
    return m.add("mul", x, power)


@onnx_rule("CumSum")
def _cumsum(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x = n.tensor(0)
    axis = axis_of(int(n.number(1)), m.rank(x))
    backward = bool(n.attribute("reverse", 0))
    given = m.add("flip", x, axes=(axis,)) if backward else x
    total = m.add("cumsum", given, axis=axis)
    total = m.add("sub", total, given) if n.attribute("exclusive", 0) else total
    return m.add("flip", total, axes=(axis,)) if backward else total


@onnx_rule("ReduceSum", name="sum")
@onnx_rule("ReduceMean", name="mean")
@onnx_rule("ReduceMax", name="max")
@onnx_rule("ReduceMin", name="min")
@onnx_rule("ReduceProd", name="prod")
@onnx_rule("ReduceSumSquare", name="sum", before="square")
@onnx_rule("ReduceL1", name="sum", before="abs")
@onnx_rule("ReduceL2", name="sum", before="square", after="sqrt")
@onnx_rule("ReduceLogSum", name="sum", after="log")
@onnx_rule("ReduceLogSumExp", name="log_sum_exp")
def _reduction(m: OnnxImporter, n: OnnxNode, name: str, before: str = "", after: str = "") -> OnnxResult:
    x, keep = n.tensor(0), bool(n.attribute("keepdims", 1))
    axes = n.axes(1, m.rank(x))
    if not axes and n.attribute("noop_with_empty_axes", 0):
        return x
    axes = axes or list(range(m.rank(x)))
    if name == "log_sum_exp":
        return log_sum_exp(m, x, axes, keep)
    x = m.add(before, x) if before else x
    found = m.add(name, x, axes=tuple(axes), keep=keep) if axes else x
    return m.add(after, found) if after else found


def _heads(m: OnnxImporter, x: str, count: int | None) -> str:
    """Return [b, l, heads · d] as [b, heads, l, d]."""
    if m.rank(x) == 4:
        return x
    if m.rank(x) != 3 or not count:
        raise GraphError(f"{m.type(x)}; allowed: four axes, or three and a number of heads")
    batch, length, width = m.type(x).shape
    apart = (batch, length, Extent.of(count), floor_divide(width, Extent.of(count)))
    return m.transpose(m.reshape(x, apart), (0, 2, 1, 3))


@onnx_rule("Attention")
def _attention(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    if n.is_read(3) or n.value(6) is not None:
        raise GraphError("its scores, or lengths of keys; allowed: without")
    n.refuse_others(softcap=0.0)
    heads = [n.attribute("q_num_heads"), *[n.attribute("kv_num_heads")] * 2]
    query, key, value = (_heads(m, n.tensor(k), heads[k]) for k in range(3))
    past = [n.optional(k) for k in (4, 5)]
    if past[0] is not None and past[1] is not None:
        key, value = m.add("concat", past[0], key, axis=2), m.add("concat", past[1], value, axis=2)
    scale = n.attribute("scale", 0.0) or m.type(query).shape[-1].constant ** -0.5
    mask = n.optional(3)
    if mask is not None and m.type(mask).dtype == "bool":
        mask = m.add("where", mask, 0.0, -math.inf, dtype=m.type(query).dtype)
    causal = ("first" if past[0] is None else "last") if n.attribute("is_causal", 0) else "none"
    operands = () if mask is None else (mask,)
    found = m.add("attention", query, key, value, *operands, scale=float(scale), causal=causal)
    if m.rank(n.tensor(0)) == 3:
        batch, _, length, _ = m.type(found).shape
        rows = m.transpose(found, (0, 2, 1, 3))
        found = m.reshape(rows, (batch, length, floor_divide(m.type(found).num_elements, batch * length)))
    return [found, key, value]
