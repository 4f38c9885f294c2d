"""Functions of elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
Operands: TypeAlias = Sequence[Any]
Attributes: TypeAlias = Mapping[str, Any]
Writer: TypeAlias = Callable[[Operands, Attributes, Array], None]

# erf(x) / x as a quotient of polynomials of x², from 0 to 16: a least-squares fit, 2.5e-8 of it at most.
_ERF_ABOVE = (
    *(1.1283791394123535, 0.19354644381828096, 0.053101750926891476),
    *(0.0038833386247654565, 0.00028455530122159126, 1.986646984753014e-06),
)
_ERF_BELOW = (
    *(1.0, 0.5048586275471295, 0.1153504056975663),
    *(0.015207269420717496, 0.0011855489357866422, 3.7418187828141176e-05),
)
_exact_erf = np.frompyfunc(math.erf, 1, 1)


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function during which NumPy warns of no overflow and no division by 0."""
    return np.errstate(all="ignore")(function)


def as_dtype(value: Any, dtype: np.dtype[Any]) -> Array:
    """Return a number as an array of a dtype, wrapped around where it is out of its range; arrays stay."""
    if isinstance(value, np.ndarray):
        return value
    return np.asarray(value).astype(dtype)


def of_one_dtype(operands: Operands) -> list[Array]:
    """Return operands with numbers in the dtype of the tensors: NumPy's promotion depends on its version."""
    dtype = next(one.dtype for one in operands if isinstance(one, np.ndarray))
    return [as_dtype(one, dtype) for one in operands]


def _ufunc(ufunc: Callable[..., Any], operands: Operands, attributes: Attributes, out: Array) -> None:
    ufunc(*of_one_dtype(operands), out=out)


def _relu(operands: Operands, attributes: Attributes, out: Array) -> None:
    np.maximum(operands[0], as_dtype(0, out.dtype), out=out)


def _rsqrt(operands: Operands, attributes: Attributes, out: Array) -> None:
    np.sqrt(operands[0], out=out)
    np.reciprocal(out, out=out)


def _sigmoid(operands: Operands, attributes: Attributes, out: Array) -> None:
    np.negative(operands[0], out=out)
    np.exp(out, out=out)
    np.add(out, as_dtype(1, out.dtype), out=out)
    np.reciprocal(out, out=out)


def _clip(operands: Operands, attributes: Attributes, out: Array) -> None:
    result = operands[0]
    for bound, choose in ((attributes["low"], np.maximum), (attributes["high"], np.minimum)):
        if bound is not None:
            result = choose(result, as_dtype(bound, out.dtype), out=out)
    if result is not out:
        np.copyto(out, result)


def _cast(operands: Operands, attributes: Attributes, out: Array) -> None:
    np.copyto(out, operands[0], casting="unsafe")


def _where(operands: Operands, attributes: Attributes, out: Array) -> None:
    condition, first, second = operands
    condition = condition if condition.dtype == bool else condition != 0
    if out is first:
        np.copyto(out, second, where=~condition, casting="unsafe")
        return
    if out is condition:
        condition = condition.copy()
    np.copyto(out, second, casting="unsafe")
    np.copyto(out, first, where=condition, casting="unsafe")


_WRITERS: dict[str, Writer] = {
    **{
        name: partial(_ufunc, ufunc)
        for name, ufunc in {
            "neg": np.negative,
            "abs": np.absolute,
            "sign": np.sign,
            "square": np.square,
            "sqrt": np.sqrt,
            "exp": np.exp,
            "log": np.log,
            "tanh": np.tanh,
            "sin": np.sin,
            "cos": np.cos,
            "atan": np.arctan,
            "floor": np.floor,
            "ceil": np.ceil,
            "round": np.rint,
            "not": np.logical_not,
            "add": np.add,
            "sub": np.subtract,
            "mul": np.multiply,
            "div": np.true_divide,
            "pow": np.power,
            "maximum": np.maximum,
            "minimum": np.minimum,
            "floor_divide": np.floor_divide,
            "remainder": np.remainder,
            "less": np.less,
            "less_equal": np.less_equal,
            "equal": np.equal,
            "not_equal": np.not_equal,
            "and": np.logical_and,
            "or": np.logical_or,
            "xor": np.logical_xor,
            "bit_and": np.bitwise_and,
            "bit_or": np.bitwise_or,
            "bit_xor": np.bitwise_xor,
            "shift_left": np.left_shift,
            "shift_right": np.right_shift,
        }.items()
    },
    "relu": _relu,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "clip": _clip,
    "cast": _cast,
    "where": _where,
}
WRITERS: dict[str, Writer] = {name: quiet(writer) for name, writer in _WRITERS.items()}
_TRUTH = frozenset({"less", "less_equal", "equal", "not_equal"})


def _result_dtype(name: str, operands: Operands, attributes: Attributes) -> Any:
    if name in _TRUTH:
        return np.dtype(attributes.get("dtype") or bool)
    if attributes.get("dtype"):
        return np.dtype(attributes["dtype"])
    return next(one.dtype for one in operands[name == "where" :] if isinstance(one, np.ndarray))


def _allocating(name: str) -> Callable[[Operands, Attributes], tuple[Array, ...]]:
    writer = WRITERS[name]

    def compute(operands: Operands, attributes: Attributes) -> tuple[Array, ...]:
        shape = np.broadcast_shapes(*(one.shape for one in operands if isinstance(one, np.ndarray)))
        out = np.empty(shape, _result_dtype(name, operands, attributes))
        writer(operands, attributes, out)
        return (out,)

    return compute


def erf(x: Array) -> Array:
    """Return the error function: float32 to 4e-7 of it, float64 as the C library has it."""
    if x.dtype != np.float32:
        return np.asarray(_exact_erf(x)).astype(x.dtype)
    bounded = np.clip(x, np.float32(-4), np.float32(4))
    square = bounded * bounded
    above, below = np.zeros_like(square), np.zeros_like(square)
    for polynomial, coefficients in ((above, _ERF_ABOVE), (below, _ERF_BELOW)):
        for coefficient in reversed(coefficients):
            np.multiply(polynomial, square, out=polynomial)
            np.add(polynomial, np.float32(coefficient), out=polynomial)
    return np.asarray(np.clip(bounded * above / below, np.float32(-1), np.float32(1)))


def _erf(operands: Operands, attributes: Attributes) -> tuple[Array, ...]:
    return (erf(operands[0]),)


def _silu(operands: Operands, attributes: Attributes) -> tuple[Array, ...]:
    out = np.empty_like(operands[0])
    WRITERS["sigmoid"](operands, attributes, out)
    np.multiply(out, _finite_below(operands[0]), out=out)
    return (out,)


def _finite_below(x: Array) -> Array:
    """Return -inf as the least number: what falls to 0 faster than it does makes 0 of it, as in kernels."""
    return np.asarray(np.maximum(x, np.finfo(x.dtype).min))


def _gelu(operands: Operands, attributes: Attributes) -> tuple[Array, ...]:
    x = _finite_below(operands[0])
    number = x.dtype.type
    if attributes["form"] == "erf":
        inner = erf(np.asarray(x * number(math.sqrt(0.5))))
    else:
        inner = np.tanh(number(math.sqrt(2 / math.pi)) * (x + number(0.044715) * x * x * x))
    return (np.asarray(number(0.5) * x * (number(1) + inner)),)


FUNCTIONS: dict[str, Callable[[Operands, Attributes], tuple[Array, ...]]] = {
    **{name: _allocating(name) for name in WRITERS},
    "erf": quiet(_erf),
    "silu": quiet(_silu),
    "gelu": quiet(_gelu),
}
