"""Functions of elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from dietcode.errors import ShapeError

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
# log(erfc(x) / t) + x² of t = 2 / (2 + x), from 0 to 10: a least-squares fit, 7.5e-9 of erfc at most.
_ERFC = (
    *(-1.26557542, 1.001758436, 0.3537876668, 0.2296630104, -0.7247127458, 1.694144932),
    *(-3.589213214, 4.272788149, -2.809275537, 0.9798182309, -0.1431835064),
)
_exact_erf, _exact_erfc = (np.frompyfunc(one, 1, 1) for one in (math.erf, math.erfc))


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


def _quotient(ufunc: Callable[..., Any], operands: Operands, attributes: Attributes, out: Array) -> None:
    """Quotients and remainders; of whole numbers none by 0, for which NumPy has 0."""
    x, y = of_one_dtype(operands)
    if out.dtype.kind in "iu" and not y.all():
        raise ShapeError("a whole number divided by 0; allowed: divisors that are not 0")
    ufunc(x, y, out=out)


def _remainder(x: Array, y: Array, out: Array) -> None:
    """Remainders with the sign of the divisor; where they are 0, of the dividend, as in PyTorch."""
    if out.dtype.kind != "f":
        np.remainder(x, y, out=out)
        return
    found = np.fmod(x, y, out=np.empty_like(out))
    is_across = (found != 0) & ((found < 0) != (y < 0))
    np.add(found, y, out=found, where=is_across)
    np.copyto(out, found)


def _relu(operands: Operands, attributes: Attributes, out: Array) -> None:
    _clip(operands, {"low": 0, "high": None}, out)


def _rsqrt(operands: Operands, attributes: Attributes, out: Array) -> None:
    np.sqrt(operands[0], out=out)
    np.reciprocal(out, out=out)


def _sigmoid(operands: Operands, attributes: Attributes, out: Array) -> None:
    np.negative(operands[0], out=out)
    np.exp(out, out=out)
    np.add(out, as_dtype(1, out.dtype), out=out)
    np.reciprocal(out, out=out)


def _clip(operands: Operands, attributes: Attributes, out: Array) -> None:
    """Brings elements between bounds; zeros keep their sign, which maxima may change."""
    x = operands[0]
    for bound, is_beyond in ((attributes["low"], np.less), (attributes["high"], np.greater)):
        if bound is not None:
            edge = as_dtype(bound, out.dtype)
            beyond = is_beyond(x, edge)
            if x is not out:
                np.copyto(out, x)
            np.copyto(out, edge, where=beyond)
            x = out
    if x is not out:
        np.copyto(out, x)


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
            "acos": np.arccos,
            "acosh": np.arccosh,
            "asin": np.arcsin,
            "asinh": np.arcsinh,
            "atan": np.arctan,
            "atanh": np.arctanh,
            "cosh": np.cosh,
            "exp2": np.exp2,
            "expm1": np.expm1,
            "log10": np.log10,
            "log1p": np.log1p,
            "log2": np.log2,
            "sinh": np.sinh,
            "tan": np.tan,
            "trunc": np.trunc,
            "floor": np.floor,
            "ceil": np.ceil,
            "round": np.rint,
            "not": np.logical_not,
            "add": np.add,
            "sub": np.subtract,
            "mul": np.multiply,
            "div": np.true_divide,
            "pow": np.power,
            "atan2": np.arctan2,
            "copysign": np.copysign,
            "hypot": np.hypot,
            "maximum": np.maximum,
            "minimum": np.minimum,
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
    "floor_divide": partial(_quotient, np.floor_divide),
    "fmod": partial(_quotient, np.fmod),
    "remainder": partial(_quotient, _remainder),
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
    """Return the error function: float32 to 1e-7 of it, float64 as the C library has it."""
    if x.dtype != np.float32:
        return np.asarray(_exact_erf(x)).astype(x.dtype)
    bounded = np.clip(x.astype(np.float64), -4, 4)
    square = bounded * bounded
    return np.asarray(bounded * _polynomial(_ERF_ABOVE, square) / _polynomial(_ERF_BELOW, square), np.float32)


def _complement(x: Array) -> Array:
    """Return 1 - erf(x) of float64, to 1e-8 of it."""
    size = np.abs(x)
    t = 2 / (2 + size)
    tail = t * np.exp(_polynomial(_ERFC, t) - size * size)
    return np.asarray(np.where(x < 0, 2 - tail, tail))


def _polynomial(coefficients: Sequence[float], x: Array) -> Array:
    result = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result *= x
        result += coefficient
    return result


def _erfc(operands: Operands, attributes: Attributes) -> tuple[Array, ...]:
    x = operands[0]
    found = _exact_erfc(x) if x.dtype == np.float64 else _complement(x.astype(np.float64))
    return (np.asarray(found).astype(x.dtype),)


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
    if attributes["form"] == "erf":  # 1 + erf would lose the digits of what is far below 0
        wide = x.astype(np.float64)
        return (np.asarray(0.5 * wide * _complement(wide * -math.sqrt(0.5))).astype(x.dtype),)
    inner = np.tanh(number(math.sqrt(2 / math.pi)) * (x + number(0.044715) * x * x * x))
    return (np.asarray(number(0.5) * x * (number(1) + inner)),)


FUNCTIONS: dict[str, Callable[[Operands, Attributes], tuple[Array, ...]]] = {
    **{name: _allocating(name) for name in WRITERS},
    "erf": quiet(_erf),
    "erfc": quiet(_erfc),
    "silu": quiet(_silu),
    "gelu": quiet(_gelu),
}
