"""Products, attention, convolutions, norms and reductions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dietcode.graph.extent import ONE, Extent, floor_divide, larger
from dietcode.graph.tensor_type import GraphError, axis_of
from dietcode.models.importing.context import Imported, Importer, dtype_name, rule
from dietcode.models.importing.exact_sums import exact_sums
from dietcode.models.importing.grouped import convolution_of_groups
from dietcode.models.importing.pooling import each, pairs
from dietcode.models.importing.resizing import transposed
from dietcode.models.importing.spelled_out import (
    batch_norm,
    group_norm,
    log_sum_exp,
    norm,
    per_channel,
    scaled,
)

_MOST_BYTES = 8192  # products in a sum of products of signed bytes that is exact


def _axes(m: Importer, x: str, dims: Any) -> tuple[int, ...]:
    rank = m.rank(x)
    if dims is None or dims == []:
        return tuple(range(rank))
    return tuple(axis_of(axis, rank) for axis in (dims if isinstance(dims, list | tuple) else [dims]))


def _reduction(m: Importer, a: Mapping[str, Any], fake: Any, name: str) -> Imported:
    x = m.tensor(next(iter(a.values())))
    dtype = dtype_name(fake.dtype)
    x = str(m.cast(x, "bool" if name in ("any", "all") else dtype))
    return m.add(name, x, axes=_axes(m, x, a.get("dim")), keep=bool(a.get("keepdim", False)))


for _name in ("sum", "mean", "prod", "any", "all"):
    _kinds = (f"aten.{_name}.{kind}" for kind in ("default", "dim", "dims", "dim_IntList", "dim_int"))
    rule(*_kinds, name=_name)(_reduction)
for _word, _name in {"amax": "max", "amin": "min"}.items():
    rule(f"aten.{_word}.default", f"aten.{_name}.default", name=_name)(_reduction)


def _with_position(m: Importer, a: Mapping[str, Any], fake: Any, name: str) -> Imported:
    x, axis, keep = m.tensor(a["self"]), a["dim"], a["keepdim"]
    position = m.add(f"arg{name}", x, axis=axis, keep=keep)
    return m.add(name, x, axes=_axes(m, x, axis), keep=keep), position


def _position_of(m: Importer, a: Mapping[str, Any], fake: Any, name: str) -> Imported:
    x = m.tensor(a["self"])
    if a["dim"] is None:
        x = m.reshape(x, (m.type(x).num_elements,))
    return m.add(name, x, axis=a["dim"] or 0, keep=a["keepdim"])


for _name in ("max", "min"):
    rule(f"aten.{_name}.dim", name=_name)(_with_position)
    rule(f"aten.arg{_name}.default", name=f"arg{_name}")(_position_of)


def _variance(m: Importer, x: str, a: Mapping[str, Any]) -> str:
    """Return variances, less the square of what the rounded mean is off: of much where means are large."""
    axes = _axes(m, x, a.get("dim"))
    correction = a.get("correction")
    correction = (1 if a.get("unbiased", True) else 0) if correction is None else correction
    keep = bool(a.get("keepdim", False))
    below = m.add("sub", x, m.add("mean", x, axes=axes, keep=True))
    squares = m.add("mean", m.add("square", below), axes=axes, keep=keep)
    off = m.add("square", m.add("mean", below, axes=axes, keep=keep))
    spread = m.add("clip", m.add("sub", squares, off), low=0.0)
    if correction == 0:
        return spread
    count = ONE
    for axis in axes:
        count = count * m.type(x).shape[axis]
    freedom = larger(count - int(correction), Extent(), m.graph.ranges)
    if count.is_constant:
        return m.add("mul", spread, count.constant / freedom.constant if freedom.constant else math.inf)
    both = (m.cast(m.add("extent", value=one), m.type(x).dtype) for one in (count, freedom))
    return m.add("mul", spread, m.add("div", *both))


@rule("aten.var.correction", "aten.var.dim", "aten.var.default", is_root=False)
@rule("aten.std.correction", "aten.std.dim", "aten.std.default", is_root=True)
@rule("aten.var_mean.correction", "aten.var_mean.dim", "aten.var_mean.default", is_root=False)
@rule("aten.std_mean.correction", "aten.std_mean.dim", "aten.std_mean.default", is_root=True)
def _spread(m: Importer, a: Mapping[str, Any], fake: Any, *, is_root: bool) -> Imported:
    """Return variances or deviations, and the means where these are results too."""
    x = m.tensor(a["self"])
    variance = _variance(m, x, a)
    found = m.add("sqrt", variance) if is_root else variance
    if not isinstance(fake, tuple | list):
        return found
    return found, m.add("mean", x, axes=_axes(m, x, a.get("dim")), keep=bool(a.get("keepdim", False)))


@rule("aten.linalg_vector_norm.default", "aten.norm.ScalarOpt_dim")
def _length(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    order = a.get("ord", a.get("p"))
    x = m.tensor(a["self"])
    return norm(m, x, _axes(m, x, a["dim"]), 2.0 if order is None else order, bool(a["keepdim"]))


@rule("aten.dist.default")
def _distance(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    apart = m.add("sub", m.tensor(a["self"]), m.tensor(a["other"]))
    return norm(m, apart, tuple(range(m.rank(apart))), a["p"], keep=False)


@rule("aten.logsumexp.default")
def _logsumexp(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x = m.tensor(a["self"])
    axes, keep = _axes(m, x, a["dim"]), bool(a["keepdim"])
    return log_sum_exp(m, x, axes, keep)


@rule("aten.cumsum.default", name="cumsum")
@rule("aten.cumprod.default", name="cumprod")
@rule("aten.softmax.int", "aten._softmax.default", name="softmax")
@rule("aten.log_softmax.int", "aten._log_softmax.default", name="log_softmax")
def _along_axis(m: Importer, a: Mapping[str, Any], fake: Any, *, name: str) -> Imported:
    return m.add(name, m.cast(m.tensor(a["self"]), dtype_name(fake.dtype)), axis=a["dim"])


@rule("aten.layer_norm.default", "aten.native_layer_norm.default")
def _layer_norm(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x, num_axes = m.tensor(a["input"]), len(a["normalized_shape"])
    weight, bias = m.value(a["weight"]), m.value(a["bias"])
    if weight is None and bias is not None:
        found = m.add("add", m.add("layernorm", x, eps=a["eps"], num_axes=num_axes), bias)
    else:
        operands = [one for one in (weight, bias) if one is not None]
        found = m.add("layernorm", x, *operands, eps=a["eps"], num_axes=num_axes)
    return (found, None, None) if isinstance(fake, tuple | list) else found


@rule("aten.rms_norm.default")
def _rms_norm(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    weight = m.value(a["weight"])
    eps = 1.1920928955078125e-07 if a["eps"] is None else a["eps"]
    operands = () if weight is None else (weight,)
    return m.add("rmsnorm", m.tensor(a["input"]), *operands, eps=eps, num_axes=len(a["normalized_shape"]))


@rule("aten.group_norm.default")
def _group_norm(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return group_norm(
        m, m.tensor(a["input"]), a["num_groups"], m.value(a["weight"]), m.value(a["bias"]), a["eps"]
    )


@rule("aten.instance_norm.default")
def _instance_norm(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    if not a["use_input_stats"]:
        raise GraphError("instance_norm with running statistics; allowed: those of the input")
    x = m.tensor(a["input"])
    channels = m.type(x).shape[1].constant
    return group_norm(m, x, channels, m.value(a["weight"]), m.value(a["bias"]), a["eps"])


@rule("aten.batch_norm.default", "aten._native_batch_norm_legit_no_training.default")
def _batch_norm(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    if a.get("training"):
        raise GraphError("batch_norm of a model in training mode; call model.eval() before the export")
    x, weight, bias = m.tensor(a["input"]), m.value(a["weight"]), m.value(a["bias"])
    mean, variance = m.tensor(a["running_mean"]), m.tensor(a["running_var"])
    result = batch_norm(m, x, weight, bias, mean, variance, a["eps"])
    return (result, None, None) if isinstance(fake, tuple | list) else result


@rule("aten._native_batch_norm_legit.no_stats")
def _norm_of_a_batch(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """Return the norm of each channel by the batch's own statistics, as of a layer that keeps none."""
    x = m.tensor(a["input"])
    type_, order = m.type(x), [1, 0, *range(2, m.rank(x))]
    channels = m.transpose(x, order)
    rows = m.reshape(channels, (type_.shape[1], floor_divide(type_.num_elements, type_.shape[1])))
    normed = m.reshape(m.add("layernorm", rows, eps=a["eps"], num_axes=1), m.type(channels).shape)
    parts = (per_channel(m, m.value(a[name]), type_.rank) for name in ("weight", "bias"))
    return scaled(m, m.transpose(normed, order), *parts), None, None


@rule("aten.matmul.default", "aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.dot.default")
def _matmul(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    first, second = (m.tensor(one) for one in list(a.values())[:2])
    if dtype_name(fake.dtype) == "int32" and all(_is_of_bytes(m, one) for one in (first, second)):
        return _product_of_bytes(m, first, second)
    return m.add("matmul", first, second)


def _is_of_bytes(m: Importer, x: str) -> bool:
    """Whether whole numbers are signed bytes, in whatever dtype."""
    while m.type(x).dtype != "int8":
        node = next((one for one in reversed(m.graph.nodes) if x in one.results), None)
        if node is None or node.operator not in ("cast", "transpose", "reshape"):
            return False
        if not str(m.type(node.operands[0]).dtype).startswith("int"):
            return False
        x = str(node.operands[0])
    return True


@rule("aten._int_mm.default")
def _product_of_signed_bytes(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    return _product_of_bytes(m, m.tensor(a["self"]), m.tensor(a["mat2"]))


def _product_of_bytes(m: Importer, first: str, second: str) -> str:
    """Return an exact product, by kernels of float32 where a sum has few enough products."""
    depth = m.type(first).shape[-1]
    if not depth.is_constant or depth.constant > _MOST_BYTES:
        return m.add("matmul", *(m.cast(one, "int32") for one in (first, second)))
    rows, columns = (str(m.cast(one, "float32")) for one in (first, second))
    return exact_sums(m, rows, depth.constant, lambda one: m.add("matmul", one, columns), most=128)


@rule("aten._trilinear.default")
def _trilinear(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    """The sum of products of three tensors over some of their axes, as bilinear layers have it."""
    if (a["expand1"], a["expand2"], a["expand3"], a["sumdim"]) == ([1, 3], [0], [1, 2], [2, 3]):
        return _bilinear(m, *(m.tensor(a[one]) for one in ("i1", "i2", "i3")))
    product = ""
    for tensor, expand in (("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")):
        x = m.tensor(a[tensor])
        for axis in sorted(a[expand]):
            shape = m.type(x).shape
            x = m.reshape(x, (*shape[:axis], ONE, *shape[axis:]))
        product = m.add("mul", product, x) if product else x
    return m.add("sum", product, axes=tuple(a["sumdim"]))


def _bilinear(m: Importer, first: str, weight: str, second: str) -> str:
    """Return the sums of x [n, i], w [o, i, j] and y [n, j] by a product of w and y: less memory."""
    rows, depth = m.type(first).shape
    outputs, _, columns = m.type(weight).shape
    wide = m.add("linear", second, m.reshape(weight, (outputs * depth, columns)))
    wide = m.reshape(wide, (rows, outputs, depth))
    return m.add("sum", m.add("mul", wide, m.reshape(first, (rows, ONE, depth))), axes=(-1,))


@rule("aten.cdist.default", "aten._cdist_forward.default")
def _distances(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    x, y, power = m.tensor(a["x1"]), m.tensor(a["x2"]), a["p"]
    first, second = m.type(x).shape, m.type(y).shape
    x = m.reshape(x, (*first[:-1], ONE, first[-1]))
    y = m.reshape(y, (*second[:-2], ONE, *second[-2:]))
    apart = m.add("sub", x, y)
    return norm(m, apart, (-1,), power, keep=False)


@rule("aten.addmm.default", "aten.addmv.default", "aten.baddbmm.default")
@rule("aten.addbmm.default", summed=True)
def _addmm(m: Importer, a: Mapping[str, Any], fake: Any, summed: bool = False) -> Imported:
    names = list(a)
    product = m.add("matmul", m.tensor(a[names[1]]), m.tensor(a[names[2]]))
    if summed:
        product = m.add("sum", product, axes=(0,))
    added = m.tensor(a["self"])
    alpha, beta = m.value(a["alpha"]), m.value(a["beta"])
    product = product if alpha == 1 else m.add("mul", product, alpha)
    if beta == 0:  # what is added may be NaN then
        return product
    added = added if beta == 1 else m.add("mul", added, beta)
    return m.add("add", product, added)


@rule("aten.linear.default")
def _linear(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    operands = [m.tensor(a["input"]), m.tensor(a["weight"])]
    bias = m.value(a["bias"])
    return m.add("linear", *operands, *(() if bias is None else (bias,)))


@rule("aten.scaled_dot_product_attention.default")
def _attention(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    q, k, v = (m.tensor(a[name]) for name in ("query", "key", "value"))
    if a["dropout_p"]:
        raise GraphError("attention with dropout; call model.eval() before the export")
    depth = m.type(q).shape[-1]
    scale = a["scale"] if a["scale"] is not None else depth.constant**-0.5
    mask = m.value(a["attn_mask"])
    if isinstance(mask, str) and m.type(mask).dtype == "bool":
        mask = m.add("where", mask, 0.0, -math.inf, dtype=m.type(q).dtype)
    causal = "first" if a["is_causal"] else "none"
    operands = () if mask is None else (mask,)
    return m.add("attention", q, k, v, *operands, scale=float(scale), causal=causal)


@rule(
    *("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default", "aten.convolution.default"),
    *("aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding"),
)
def _convolution(m: Importer, a: Mapping[str, Any], fake: Any) -> Imported:
    if a.get("transposed"):
        return transposed(m, a, fake)
    x, w, bias = m.tensor(a["input"]), m.tensor(a["weight"]), m.value(a["bias"])
    rank = m.rank(w) - 2
    alone = m.rank(x) == rank + 1
    x = m.reshape(x, (1, *m.type(x).shape)) if alone else x
    dilation = each(a["dilation"], rank)
    if a["padding"] == "same":
        spans = [d * (k.constant - 1) for d, k in zip(dilation, m.type(w).shape[2:], strict=True)]
        pads = tuple((span // 2, span - span // 2) for span in spans)
    else:
        pads = pairs([0] if a["padding"] == "valid" else a["padding"], rank)
    operands = () if bias is None else (bias,)
    options: dict[str, Any] = {"strides": each(a["stride"], rank), "dilation": dilation, "pads": pads}
    if isinstance(a["groups"], int):
        result = m.add("conv", x, w, *operands, **options, groups=a["groups"])
    else:
        result = convolution_of_groups(m, x, w, bias, m.extent(a["groups"]), **options)
    return m.reshape(result, m.type(result).shape[1:]) if alone else result
