"""Products, attention, norms, reductions and recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from dietcode.errors import ShapeError
from dietcode.runtime.host.pointwise import Array, Attributes, Operands, quiet

Results: TypeAlias = tuple[Array, ...]
_WIDE = 128  # elements of a row from which NumPy's functions of whole rows are worth their call


def _axes(x: Array, attributes: Attributes) -> tuple[int, ...]:
    return tuple(attributes["axes"]) or tuple(range(x.ndim))


def _reduction(
    function: Callable[..., Any], adds_up: bool, operands: Operands, attributes: Attributes
) -> Results:
    x = operands[0]
    options = {"dtype": x.dtype} if adds_up else {}  # NumPy adds small whole numbers up in larger ones
    found = function(x, axis=_axes(x, attributes), keepdims=attributes["keep"], **options)
    return (np.asarray(found).astype(x.dtype, copy=False),)


def _extreme(function: Callable[..., Any], operands: Operands, attributes: Attributes) -> Results:
    _need_some(operands[0], _axes(operands[0], attributes))
    return _reduction(function, False, operands, attributes)


def _need_some(x: Array, axes: Sequence[int]) -> None:
    """Refuse extremes of nothing, as PyTorch does.

    Raises
    ------
    ShapeError
    """
    empty = next((axis for axis in axes if x.ndim and not x.shape[axis]), None)
    if empty is not None:
        raise ShapeError(f"an extreme along axis {empty} of 0 elements; allowed: at least 1")


def _mean(x: Array, axis: Any, keepdims: bool, dtype: Any = None) -> Any:
    """Return the mean; NumPy warns of one of nothing."""
    total = np.sum(x, axis=axis, keepdims=keepdims, dtype=dtype)
    return np.divide(total, x.dtype.type(math.prod(x.shape[one] for one in axis)))


def _position(function: Callable[..., Any], operands: Operands, attributes: Attributes) -> Results:
    _need_some(operands[0], (attributes["axis"],))
    found = function(operands[0], axis=attributes["axis"], keepdims=attributes["keep"])
    return (np.asarray(found).astype(np.int64, copy=False),)


def _softmax(operands: Operands, attributes: Attributes) -> Results:
    x, axis = operands[0], attributes["axis"]
    return (_weights(x, axis, attributes["masked_rows"]),)


def _weights(x: Array, axis: int, masked_rows: str) -> Array:
    """Return a softmax, whose rows of -inf alone are 0 or NaN."""
    largest = x.max(axis=axis, keepdims=True, initial=-np.inf)
    if masked_rows == "zero":
        largest = np.where(np.isneginf(largest), x.dtype.type(0), largest)
    powers = np.exp(x - largest)
    total = powers.sum(axis=axis, keepdims=True)
    visible = total != 0 if masked_rows == "zero" else True
    return np.asarray(np.divide(powers, total, out=powers, where=visible))


def _log_softmax(operands: Operands, attributes: Attributes) -> Results:
    x, axis = operands[0], attributes["axis"]
    lower = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    return (lower - np.log(np.exp(lower).sum(axis=axis, keepdims=True)),)


def _accumulated(function: Any, operands: Operands, attributes: Attributes) -> Results:
    """Running results of a ufunc, row by row where rows are wide, which NumPy's own do element by element."""
    x, axis = operands[0], attributes["axis"]
    if not x.ndim:
        return (x.copy(),)
    if x.dtype == np.float32 and function in (np.add, np.multiply):  # rounded once, as in PyTorch
        (wide,) = _accumulated(function, [x.astype(np.float64)], attributes)
        return ((wide + 0.0 if function is np.add else wide).astype(np.float32),)  # sums begin with 0
    width = math.prod(x.shape[axis % x.ndim + 1 :])
    if x.shape[axis] < 2 or width < _WIDE or x.size < x.shape[axis] * 4 * _WIDE:
        return (function.accumulate(x, axis=axis, dtype=x.dtype),)
    result = np.empty(x.shape, x.dtype)
    rows, given = np.moveaxis(result, axis, 0), np.moveaxis(x, axis, 0)
    rows[0] = given[0]
    for before, one, row in zip(rows, given[1:], rows[1:], strict=False):
        function(before, one, out=row)
    return (result,)


def _scaled(x: Array, rest: Sequence[Any]) -> Array:
    for one, apply in zip(rest, (np.multiply, np.add), strict=False):
        if one is not None:
            apply(x, one, out=x)
    return x


def _layernorm(operands: Operands, attributes: Attributes) -> Results:
    x = operands[0]
    axes = tuple(range(x.ndim - attributes["num_axes"], x.ndim))
    centred = x - _mean(x, axes, keepdims=True)
    variance = _mean(np.square(centred), axes, keepdims=True)
    centred /= np.sqrt(variance + x.dtype.type(attributes["eps"]))
    return (_scaled(centred, operands[1:]),)


def _rmsnorm(operands: Operands, attributes: Attributes) -> Results:
    x = operands[0]
    axes = tuple(range(x.ndim - attributes["num_axes"], x.ndim))
    mean = _mean(np.square(x), axes, keepdims=True)
    return (_scaled(x / np.sqrt(mean + x.dtype.type(attributes["eps"])), operands[1:]),)


def _matmul(operands: Operands, attributes: Attributes) -> Results:
    return (np.asarray(np.matmul(*operands)),)


def _linear(operands: Operands, attributes: Attributes) -> Results:
    product = np.asarray(np.matmul(operands[0], operands[1].T))
    if len(operands) > 2 and operands[2] is not None:
        product += operands[2]
    return (product,)


def _attention(operands: Operands, attributes: Attributes) -> Results:
    """Attention of q [..., h, l, d] to k [..., g, s, d] and v [..., g, s, e].

    The queries of a group of heads are rows of one product, so that keys and values are not repeated.
    """
    q, k, v = operands[:3]
    num_queries, num_keys = q.shape[-2], k.shape[-2]
    heads = q.shape[-3] if q.ndim > 2 else 1
    groups = k.shape[-3] if k.ndim > 2 else 1
    grouped = groups not in (1, heads)
    if grouped:
        q = q.reshape(*q.shape[:-3], groups, heads // groups * num_queries, q.shape[-1])
    scores = np.matmul(q * q.dtype.type(attributes["scale"]), np.swapaxes(k, -1, -2))
    if grouped:
        scores = scores.reshape(*scores.shape[:-3], heads, num_queries, num_keys)
    if len(operands) > 3 and operands[3] is not None:
        scores += operands[3]
    if attributes["causal"] != "none":
        last = 0 if attributes["causal"] == "first" else num_keys - num_queries
        visible = np.tri(num_queries, num_keys, last, dtype=bool)
        np.copyto(scores, -np.inf, where=~visible)
    powers = _weights(scores, -1, attributes["masked_rows"])
    if grouped:
        powers = powers.reshape(*powers.shape[:-3], groups, -1, num_keys)
    result = np.matmul(powers, v)
    return (result.reshape(*result.shape[:-3], heads, num_queries, v.shape[-1]) if grouped else result,)


def _sigmoid(x: Array) -> Array:
    return np.asarray(np.reciprocal(np.exp(-x) + x.dtype.type(1)))


def _lstm(gates: Array, h: Array, c: Array, u: Array, own_bias: Array) -> tuple[Array, Array]:
    i, f, g, o = np.split(gates + h @ u.T + own_bias, 4, axis=-1)
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


def _gru(gates: Array, h: Array, u: Array, own_bias: Array) -> Array:
    r, z, n = np.split(gates, 3, axis=-1)
    own_r, own_z, own_n = np.split(h @ u.T + own_bias, 3, axis=-1)
    z = _sigmoid(z + own_z)
    return np.asarray((z.dtype.type(1) - z) * np.tanh(n + _sigmoid(r + own_r) * own_n) + z * h)


def _plain_cell(gates: Array, h: Array, u: Array, own_bias: Array, bounded: bool) -> Array:
    total = gates + h @ u.T + own_bias
    return np.asarray(np.tanh(total) if bounded else np.maximum(total, total.dtype.type(0)))


def _recurrent(operands: Operands, attributes: Attributes) -> Results:
    """One direction of a layer over x [l, b, i]; gates are in the order i, f, g, o or r, z, n.

    The reset gate of a GRU multiplies the product with the state and its bias, as PyTorch has it.
    """
    states = 2 if attributes["cell"] == "lstm" else 1
    x, *begin = operands[: 1 + states]
    w, u, *biases = operands[1 + states :]
    first, second = [*biases, None, None][:2]
    gates = x @ w.T
    gates = gates if first is None else gates + first
    return _recurrence([gates, *begin, u, second], attributes)


def _recurrence(operands: Operands, attributes: Attributes) -> Results:
    """The steps of a layer over gates [l, b, gates · h] of its input."""
    lstm = attributes["cell"] == "lstm"
    gates, *begin = operands[: 3 if lstm else 2]
    u, bias = [*operands[1 + len(begin) :], None][:2]
    bias = np.zeros(len(u), gates.dtype) if bias is None else bias
    h, c = begin[0], begin[-1]
    result = np.empty((*gates.shape[:2], h.shape[1]), gates.dtype)
    for step in range(len(gates))[:: -1 if attributes["reverse"] else 1]:
        if lstm:
            h, c = _lstm(gates[step], h, c, u, bias)
        elif attributes["cell"] == "gru":
            h = _gru(gates[step], h, u, bias)
        else:
            h = _plain_cell(gates[step], h, u, bias, attributes["cell"] == "rnn_tanh")
        result[step] = h
    return (result, h.copy(), c.copy()) if lstm else (result, h.copy())


_FUNCTIONS: Mapping[str, Callable[[Operands, Attributes], Results]] = {
    "sum": partial(_reduction, np.sum, True),
    "mean": partial(_reduction, _mean, True),
    "prod": partial(_reduction, np.prod, True),
    "max": partial(_extreme, np.max),
    "min": partial(_extreme, np.min),
    "any": partial(_reduction, np.any, False),
    "all": partial(_reduction, np.all, False),
    "argmax": partial(_position, np.argmax),
    "argmin": partial(_position, np.argmin),
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "cumsum": partial(_accumulated, np.add),
    "cumprod": partial(_accumulated, np.multiply),
    "cummax": partial(_accumulated, np.maximum),
    "cummin": partial(_accumulated, np.minimum),
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
    "matmul": _matmul,
    "linear": _linear,
    "attention": _attention,
    "recurrent": _recurrent,
    "recurrence": _recurrence,
}
FUNCTIONS = {name: quiet(function) for name, function in _FUNCTIONS.items()}
