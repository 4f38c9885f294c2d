"""A block in float64 NumPy, written from the definitions; compiled code is compared with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dietcode.search_space.block_problem import BlockProblem
from dietcode.workload.block import BlockNode
from dietcode.workload.dtypes import STORAGE, widened
from dietcode.workload.pooling import POOLINGS, pool_axes

FloatArray = npt.NDArray[np.float64]


def block_reference(problem: BlockProblem, arrays: Mapping[str, Any]) -> dict[str, FloatArray]:
    """Compute a block.

    Parameters
    ----------
    arrays : mapping of str to array
        The inputs by tensor name; others are ignored.

    Returns
    -------
    dict of str to float64 array
        Each output, as callers see it: a table with the rows that are written.
    """
    values: dict[str, FloatArray] = {n: exact(arrays[n], problem.dtype(n)) for n in problem.inputs}
    extents = {
        index: extent
        for name in problem.inputs
        for index, extent in zip(problem.indices[name], values[name].shape, strict=True)
    }
    with np.errstate(all="ignore"):
        for name, node in problem.nodes.items():
            own = [problem.indices[o] if isinstance(o, str) else "" for o in node.operands]
            operands = [values[o] if isinstance(o, str) else o for o in node.operands]
            values[name] = compute(node, *aligned(node, operands, own), own)
            if node.operator in POOLINGS:
                extents |= dict(zip(problem.indices[name], values[name].shape, strict=True))
    found = {
        name: np.broadcast_to(values[name], [extents[k] for k in problem.indices[name]])
        for name in problem.outputs
    }
    tables = {name: values[table].copy() for name, (table, _) in problem.into.items()}
    for name, table in tables.items():
        positions = np.asarray(arrays[problem.into[name][1]])
        exist = (positions >= 0) & (positions < len(table))
        table[positions[exist]] = found[name][exist]
    return found | tables


def exact(array: Any, dtype: str) -> FloatArray:
    """Return a tensor in float64; of bfloat16 the bits are held as integers, or the values are given."""
    given = np.asarray(array)
    is_bits = dtype == "bfloat16" and given.dtype == STORAGE[dtype]
    return np.asarray(widened(given, dtype) if is_bits else given, dtype=np.float64)


def along(value: FloatArray, own: str, whole: str) -> FloatArray:
    """Return a value of some of the indices `whole` with an axis of extent 1 for each of the others."""
    return value[tuple(slice(None) if index in own else None for index in whole)]


def aligned(node: BlockNode, operands: Sequence[Any], own: Sequence[str]) -> tuple[list[Any], str]:
    """Return operands with an axis for each index of the result, and these indices.

    Products and slices take their operands as they are.

    Parameters
    ----------
    operands : sequence of array or float
    own : sequence of str
        Indices of each; none of a number.
    """
    whole = max(own, key=len)
    if node.operator in _AS_THEY_ARE:
        return list(operands), whole
    return [
        o if isinstance(o, float) else along(o, k, whole) for o, k in zip(operands, own, strict=True)
    ], whole


def compute(node: BlockNode, operands: Sequence[Any], indices: str, own: Sequence[str]) -> FloatArray:
    """Return the result of one node.

    Parameters
    ----------
    operands : sequence of float64 array or scalar
        With an axis for each of `indices`, of extent 1 where an operand lacks the index.
    own : sequence of str
        Indices of each operand.
    """
    if node.operator in _AS_THEY_ARE:
        return np.asarray(_AS_THEY_ARE[node.operator](node, operands, own))
    if node.operator in _ALONG_ROW:
        axes = tuple(indices.index(index) for index in node.attribute("axis"))
        return np.asarray(_ALONG_ROW[node.operator](node, operands, axes, indices))
    if node.operator == "clip":
        low, high = (node.attribute(bound) for bound in ("low", "high"))
        return np.asarray(np.clip(operands[0], low, high))
    if node.operator == "gelu":
        return _gelu(operands[0], node.attribute("form"))
    return np.asarray(_POINTWISE[node.operator](*operands))


def _gelu(x: FloatArray, form: str) -> FloatArray:
    if form == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return np.asarray(x * 0.5 * (1 + np.tanh(inner)))
    from scipy.special import ndtr

    return np.asarray(x * ndtr(x))


def _sigmoid(x: FloatArray) -> FloatArray:
    return np.asarray(1 / (1 + np.exp(-x)))


_POINTWISE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "less": lambda a, b: np.less(a, b).astype(np.result_type(a, b)),
    "less_equal": lambda a, b: np.less_equal(a, b).astype(np.result_type(a, b)),
    "where": lambda condition, a, b: np.where(condition != 0, a, b),
    "neg": np.negative,
    "abs": np.abs,
    "square": np.square,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "relu": lambda x: np.where(x < 0, 0.0, x),  # -0 stays
    "silu": lambda x: x * _sigmoid(x),
}


def _softmax(node: BlockNode, operands: Sequence[Any], axes: tuple[int, ...], indices: str) -> FloatArray:
    z = operands[0] * node.attribute("scale")
    if len(operands) > 1:
        z = z + operands[1]
    if node.attribute("causal"):
        query, (key,) = indices.index(node.attribute("causal")), axes
        seen = _count_along(z, key) <= _count_along(z, query) + (z.shape[key] - z.shape[query])
        z = np.where(seen, z, -np.inf)
    highest = z.max(axis=axes, keepdims=True)
    e = np.exp(z - np.where(np.isneginf(highest), 0.0, highest))
    total = e.sum(axis=axes, keepdims=True)
    is_nan = node.attribute("masked_rows") == "nan"
    return np.asarray(e / total if is_nan else e / np.where(total == 0, 1.0, total))


def _layernorm(node: BlockNode, operands: Sequence[Any], axes: tuple[int, ...], indices: str) -> FloatArray:
    x = operands[0]
    y = x - x.mean(axis=axes, keepdims=True)
    y = y / np.sqrt(x.var(axis=axes, keepdims=True) + node.attribute("eps"))
    if len(operands) > 1:
        y = y * operands[1]
    return np.asarray(y + operands[2] if len(operands) > 2 else y)


def _rmsnorm(node: BlockNode, operands: Sequence[Any], axes: tuple[int, ...], indices: str) -> FloatArray:
    x = operands[0]
    y = x / np.sqrt(np.mean(x * x, axis=axes, keepdims=True) + node.attribute("eps"))
    return np.asarray(y * operands[1] if len(operands) > 1 else y)


def _count_along(x: FloatArray, axis: int) -> Any:
    """Return positions along an axis, with extent 1 along the others."""
    return np.arange(x.shape[axis]).reshape([-1 if at == axis else 1 for at in range(x.ndim)])


def _pool(node: BlockNode, operands: Sequence[Any], own: Sequence[str]) -> FloatArray:
    """Return the largest element, or the mean, of the windows over some axes."""
    x = np.asarray(operands[0])
    slides = {own[0].index(one.axis): one for one in pool_axes(node, own[0])}
    sides = [
        (slides[at].padding, slides[at].padding_after) if at in slides else (0, 0) for at in range(x.ndim)
    ]
    strides = tuple(slice(None, None, slides[at].stride if at in slides else 1) for at in range(x.ndim))

    def windows(value: FloatArray, outside: float) -> FloatArray:
        padded = np.pad(value, sides, constant_values=outside)
        shape = tuple(one.window for one in slides.values())
        view = np.lib.stride_tricks.sliding_window_view(padded, shape, axis=tuple(slides))
        return np.asarray(view[strides])

    within = tuple(range(-len(slides), 0))
    if node.operator == "maxpool":
        return np.asarray(windows(x, -np.inf).max(axis=within))
    total = windows(x, 0.0).sum(axis=within)
    counted = windows(np.ones_like(x), float(node.attribute("count_include_pad")))
    return np.asarray(total / counted.sum(axis=within))


def _rotate(node: BlockNode, operands: Sequence[Any], own: Sequence[str]) -> FloatArray:
    by, x = node.attribute("by"), operands[0]
    width = node.attribute("within") or x.shape[-1]
    y: FloatArray = np.array(x)  # columns past the last whole group stay
    whole = x.shape[-1] // width * width
    groups = np.roll(x[..., :whole].reshape(*x.shape[:-1], -1, width), by, axis=-1)
    if node.attribute("negate"):
        groups[..., :by] *= -1
    y[..., :whole] = groups.reshape(*x.shape[:-1], whole)
    return y


_AS_THEY_ARE: dict[str, Callable[..., Any]] = {  # operands keep their own axes
    "einsum": lambda node, operands, own: np.einsum(
        f"{own[0]},{own[1]}->{node.attribute('dims')}", *operands, optimize=True
    ),
    "gather": lambda node, operands, own: np.take(
        operands[0], np.asarray(operands[1]).astype(np.int64), axis=0, mode="clip"
    ),
    "relabel": lambda node, operands, own: operands[0],
    "transpose": lambda node, operands, own: operands[0].transpose(
        [own[0].index(index) for index in node.attribute("dims")]
    ),
    "maxpool": _pool,
    "avgpool": _pool,
    "rotate": _rotate,
    "slice": lambda node, operands, own: np.take(
        operands[0], node.attribute("at"), axis=own[0].index(node.attribute("axis"))
    ),
}
_ALONG_ROW: dict[str, Callable[..., Any]] = {
    "hide": lambda node, operands, axes, indices: np.where(
        _count_along(operands[0], axes[0]) < operands[1], operands[0], -np.inf
    ),
    "sum": lambda node, operands, axes, indices: operands[0].sum(axis=axes),
    "mean": lambda node, operands, axes, indices: operands[0].mean(axis=axes),
    "max": lambda node, operands, axes, indices: operands[0].max(axis=axes),
    "min": lambda node, operands, axes, indices: operands[0].min(axis=axes),
    "softmax": _softmax,
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
}
