"""Products, convolutions, pooling, norms and reductions of ONNX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

from dietcode.graph.extent import ONE, Extent, Ranges, floor_divide, larger
from dietcode.graph.graph import Value
from dietcode.graph.tensor_type import FLOATS, GraphError, axis_of
from dietcode.models.importing.onnx.context import (
    OnnxImporter,
    OnnxNode,
    OnnxResult,
    OnnxValue,
    onnx_rule,
)
from dietcode.models.importing.onnx.known import Known
from dietcode.models.importing.pooling import largest_positions, positions
from dietcode.models.importing.resampled import (
    TransposedConvolution,
    transposed_convolution,
)
from dietcode.models.importing.spelled_out import batch_norm, bound_of, group_norm, log_sum_exp, norm, scaled


@onnx_rule("MatMul")
def _matmul(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    return m.add("matmul", n.tensor(0), n.tensor(1))


def _turned(m: OnnxImporter, x: str, turn: bool) -> str:
    return m.transpose(x, (1, 0)) if turn else x


@onnx_rule("Gemm")
def _gemm(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x, w, bias = n.tensor(0), n.tensor(1), n.optional(2)
    alpha, beta = n.attribute("alpha", 1.0), n.attribute("beta", 1.0)
    if m.type(x).dtype not in FLOATS and not (alpha == beta == 1):
        raise GraphError(f"alpha {alpha}, beta {beta} of {m.type(x)}; allowed: 1 of whole numbers")
    x, w = _turned(m, x, bool(n.attribute("transA", 0))), _turned(m, w, not n.attribute("transB", 0))
    columns = m.type(w).shape[:1]
    if bias is not None and alpha == beta == 1 and m.type(bias).shape == columns:
        return m.add("linear", x, w, bias)
    product = m.add("linear", x, w)
    product = product if alpha == 1 else m.add("mul", product, alpha)
    if bias is None or beta == 0:
        return product
    return m.add("add", product, bias if beta == 1 else m.add("mul", bias, beta))


def _same_total(extent: Extent, span: int, stride: int, ranges: Ranges) -> Extent:
    """Return how many elements are missing where one window begins at each stride."""
    windows = floor_divide(extent + (stride - 1), Extent.of(stride))
    missing = (windows - 1) * stride + (span + 1) - extent
    return Extent.of(span) if stride == 1 else larger(missing, Extent(), ranges)


def _window_options(n: OnnxNode, rank: int) -> dict[str, Any]:
    options = {"strides": n.attribute("strides"), "dilation": n.attribute("dilations")}
    return {name: tuple(value or [1] * rank) for name, value in options.items()}


def windowed(
    m: OnnxImporter, n: OnnxNode, x: str, window: list[int], value: float = 0
) -> tuple[str, dict[str, Any]]:
    """Return what windows over the last axes move over, and their strides, dilation and pads.

    Pads that change with the sizes are put around x.

    Parameters
    ----------
    m : OnnxImporter
    n : OnnxNode
    x : str
    window : list of int
    value : float
        Of pads.
    """
    rank = len(window)
    options, mode = _window_options(n, rank), n.attribute("auto_pad", "NOTSET")
    flat = n.attribute("pads", [0] * (2 * rank))
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        flat = flat if mode == "NOTSET" else [0] * (2 * rank)
        return x, options | {"pads": tuple(zip(flat[:rank], flat[rank:], strict=True))}
    pads = []
    for number, size in enumerate(window):
        span, stride = (size - 1) * options["dilation"][number], options["strides"][number]
        axis = m.rank(x) - rank + number
        total = _same_total(m.type(x).shape[axis], span, stride, m.graph.ranges)
        if total.is_constant:
            less, more = total.constant // 2, total.constant - total.constant // 2
            pads.append((less, more) if mode == "SAME_UPPER" else (more, less))
        else:
            x = _padded_alike(m, x, axis, total, mode == "SAME_UPPER", value)
            pads.append((0, 0))
    return x, options | {"pads": tuple(pads)}


def _padded_alike(m: OnnxImporter, x: str, axis: int, total: Extent, more_after: bool, value: float) -> str:
    """Return x with a number put on both sides alike along an axis; of an odd total, more after or before.

    The most that it may be is put there, and what is too much is taken away: so sizes stay short.
    """
    low, high = total.bounds(m.graph.ranges)
    before = floor_divide(total + (0 if more_after else 1), Extent.of(2))
    least, most = ((bound + (not more_after)) // 2 for bound in (low, high))
    start = Extent() if least == most else Extent.of(most) - before
    pads = [(most, high - high // 2) if k == axis else (0, 0) for k in range(m.rank(x))]
    length = m.type(x).shape[axis] + total
    return m.slice(m.add("pad", x, pads=tuple(pads), value=value), axis, start, start + length)


@onnx_rule("Conv")
def _convolution(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    w, bias = n.tensor(1), n.optional(2)
    n.ignore("kernel_shape")  # which the weights have
    x, options = windowed(m, n, n.tensor(0), m.constant_shape(w, 2))
    operands = () if bias is None else (bias,)
    return m.add("conv", x, w, *operands, groups=n.attribute("group", 1), **options)


@onnx_rule("ConvTranspose")
def _transposed(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x, w, bias = n.tensor(0), n.tensor(1), n.optional(2)
    n.ignore("kernel_shape")
    window = m.constant_shape(w)[2:]
    rank = len(window)
    options, mode = _window_options(n, rank), n.attribute("auto_pad", "NOTSET")
    flat, sizes = n.attribute("pads", [0] * (2 * rank)), n.attribute("output_shape")
    pads = list(zip(flat[:rank], flat[rank:], strict=True)) if mode == "NOTSET" else [(0, 0)] * rank
    more = tuple(n.attribute("output_padding", [0] * rank))
    wanted: list[Extent] = []
    if sizes is not None:
        wanted = [Extent.of(one) for one in sizes[-rank:]]
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * s for size, s in zip(m.type(x).shape[2:], options["strides"], strict=True)]
    cuts = {}
    for k, size in enumerate(wanted):
        span = (window[k] - 1) * options["dilation"][k]
        total = (m.type(x).shape[2 + k] - 1) * options["strides"][k] + (more[k] + span + 1) - size
        less = floor_divide(total, Extent.of(2))
        before = less if mode == "SAME_UPPER" else total - less
        pads[k] = (0, 0)
        if total.is_constant:  # below zero it puts zeros around
            pads[k] = (before.constant, (total - before).constant)
        elif total.bounds(m.graph.ranges)[0] >= 0:
            cuts[2 + k] = (before, before + size)
        else:
            raise GraphError(f"an output of {size} from {m.type(x)}, whose own may be less; allowed: no more")
    how = TransposedConvolution(pads=tuple(pads), more=more, groups=n.attribute("group", 1), **options)
    y = transposed_convolution(m, x, w, bias, how)
    for axis, (start, stop) in cuts.items():
        y = m.slice(y, axis, start, stop)
    return y


@onnx_rule("MaxPool", "AveragePool")
def _pool(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    largest, window = n.proto.op_type == "MaxPool", n.attribute("kernel_shape")
    # Windows that follow from auto_pad are as many, whether or not sizes are rounded up.
    x, ceil = n.tensor(0), bool(n.attribute("ceil_mode", 0)) and n.attribute("auto_pad", "NOTSET") == "NOTSET"
    wide, options = windowed(m, n, x, window, bound_of(m.type(x).dtype, -1) if largest else 0)
    options |= {"window": tuple(window), "ceil": ceil}
    if largest:
        found, columns_first = m.add("max_pool", wide, **options), bool(n.attribute("storage_order", 0))
        if not n.is_read(1):
            return found
        places = positions(m, x, columns_first)
        if wide != x:
            places, _ = windowed(m, n, places, window, -1)
        return [found, largest_positions(m, wide, found, places, **options)]
    counts_pads = bool(n.attribute("count_include_pad", 0))
    if wide == x or counts_pads:
        return m.add("avg_pool", wide, count_pads=counts_pads, **options)
    ones, _ = windowed(m, n, m.add("full", shape=m.type(x).shape, value=1.0, dtype=m.type(x).dtype), window)
    shares = (m.add("avg_pool", one, count_pads=False, **options) for one in (wide, ones))
    return m.add("div", *shares)


@onnx_rule("LpPool")
def _norm_pool(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    """Return the norm of each window, from the mean of powers."""
    if n.attribute("auto_pad", "NOTSET") == "NOTSET":
        n.refuse_others(ceil_mode=0)
    n.ignore("ceil_mode")
    window, p = n.attribute("kernel_shape"), n.attribute("p", 2)
    x, options = windowed(m, n, n.tensor(0), window)
    options |= {"window": tuple(window), "ceil": False, "count_pads": True}
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
    n.ignore("momentum", "spatial")  # the former is of training, the latter of files that were converted
    x, weight, bias, mean, variance = (n.tensor(k) for k in range(5))
    return batch_norm(m, x, weight, bias, mean, variance, n.attribute("epsilon", 1e-5))


@onnx_rule("InstanceNormalization")
def _instance_norm(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x = n.tensor(0)
    (channels,) = m.constant_shape(n.value(1))
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
    n.ignore("stash_type")  # half precision is computed in float32 as it is
    x = n.tensor(0)
    first = axis_of(n.attribute("axis", -1), m.rank(x))
    last, num_axes = m.type(x).shape[first:], m.rank(x) - first
    eps = n.attribute("epsilon", 1e-5)
    weights: list[Value] = [n.optional(k) for k in (1, 2)]
    fits = all(one is None or m.type(one).shape == last for one in weights)
    if fits and weights[0] is not None:
        given = [one for one in weights if one is not None]
        found = m.add(name, x, *given, eps=eps, num_axes=num_axes)
    else:
        found = scaled(m, m.add(name, x, eps=eps, num_axes=num_axes), *weights)
    if not (n.is_read(1) or n.is_read(2)):
        return found
    axes = tuple(range(first, m.rank(x)))
    mean = m.add("mean", x, axes=axes, keep=True)
    variance = m.add("mean", m.add("square", m.add("sub", x, mean)), axes=axes, keep=True)
    return [found, mean, m.add("rsqrt", m.add("add", variance, eps))]


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
    length = norm(m, x, (axis,), n.attribute("p", 2), keep=True)
    # Of length 0 are elements that are all 0, and stay so.
    return m.add("div", x, m.add("where", m.add("equal", length, 0.0), 1.0, length, dtype=m.type(x).dtype))


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
    if n.attribute("exclusive", 0):  # of what is before: a 0 comes first, and the last is not needed
        given = m.add("pad", given, pads=tuple((int(k == axis), -int(k == axis)) for k in range(m.rank(x))))
    total = m.add("cumsum", given, axis=axis)
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
    axes, reduces_all = n.axes(1, m.rank(x)), not n.attribute("noop_with_empty_axes", 0)
    if not axes:
        axes = list(range(m.rank(x))) if reduces_all else []
    if name == "log_sum_exp":
        return log_sum_exp(m, _never_empty(m, x, axes, -1), axes, keep) if axes else x
    x = m.add(before, x) if before else x
    if axes:
        x = _never_empty(m, x, axes, {"max": -1, "min": 1}.get(name, 0))
        x = m.add(name, x, axes=tuple(axes), keep=keep)
    return m.add(after, x) if after else x


def _never_empty(m: OnnxImporter, x: str, axes: Sequence[int], side: int) -> str:
    """Return a tensor with the least (`side` -1) or largest number of its dtype along axes that may be empty.

    The largest of no elements is the least number that there is.
    """
    type_ = m.type(x)
    if not side:
        return x
    pads = [(0, int(k in axes and e.bounds(m.graph.ranges)[0] < 1)) for k, e in enumerate(type_.shape)]
    return (
        m.add("pad", x, pads=tuple(pads), value=bound_of(type_.dtype, side))
        if any(after for _, after in pads)
        else x
    )


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
    n.ignore("softmax_precision", "qk_matmul_output_mode")
    heads = [n.attribute("q_num_heads"), *[n.attribute("kv_num_heads")] * 2]
    query, key, value = (_heads(m, n.tensor(k), heads[k]) for k in range(3))
    past = [n.optional(k) for k in (4, 5)]
    causal = ("first" if past[0] is None else "last") if n.attribute("is_causal", 0) else "none"
    lengths = [m.type(one).shape[2] for one in (query, key)]
    if causal == "last" and lengths[0] != lengths[1]:
        raise GraphError(f"{lengths[0]} causal queries, {lengths[1]} keys behind past ones; allowed: as many")
    if past[0] is not None and past[1] is not None:
        key, value = m.add("concat", past[0], key, axis=2), m.add("concat", past[1], value, axis=2)
    scale = n.attribute("scale", 0.0) or m.constant_shape(query, 3)[0] ** -0.5
    mask = n.optional(3)
    if mask is not None and m.type(mask).dtype == "bool":
        mask = m.add("where", mask, 0.0, -math.inf, dtype=m.type(query).dtype)
    operands = () if mask is None else (mask,)
    found = m.add("attention", query, key, value, *operands, scale=float(scale), causal=causal)
    if m.rank(n.tensor(0)) == 3:
        batch, _, length, _ = m.type(found).shape
        rows = m.transpose(found, (0, 2, 1, 3))
        found = m.reshape(rows, (batch, length, floor_divide(m.type(found).num_elements, batch * length)))
    return [found, key, value]
