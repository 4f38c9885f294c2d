"""Arithmetic of ONNX on sizes, as extents: whole numbers, truth values that are 0 or 1, and exact fractions.

A value in floating point is an extent divided by a number. It is known only as long as the file's own
arithmetic rounds nothing: numerators stay below the numbers that the dtype counts without gaps, and a divisor
that is no power of two is followed by ``Floor``, ``Ceil`` or a cast alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from dietcode.graph.extent import ONE, Extent, Ranges, floor_divide, larger, smaller
from dietcode.graph.tensor_type import FLOATS
from dietcode.models.importing.onnx.known import Array, Known, as_extents, known

_COUNTED = {"float32": 2**24, "float64": 2**53}  # up to here a dtype has every whole number
_ZERO = Extent()
_Function = Callable[..., Extent]


class NotKnownError(Exception):
    """A value that calls compute."""


def common_fractions(values: Sequence[Known]) -> tuple[list[Array], int]:
    """Return the extents of values that all have one divisor, and the divisor.

    Raises
    ------
    NotKnownError
        A constant is no such fraction.
    """
    divisors = [one.divisor for one in values]
    constants = {}
    for number, one in enumerate(values):
        if one.is_constant and one.dtype in FLOATS:
            if not bool(np.isfinite(one.array).all()):
                raise NotKnownError
            constants[number] = [Fraction(element) for element in one.array.reshape(-1).tolist()]
            divisors += [element.denominator for element in constants[number]]
    divisor = math.lcm(*divisors)
    if divisor > _COUNTED["float32"]:
        raise NotKnownError
    arrays = []
    for number, one in enumerate(values):
        if number in constants:
            whole = [int(element * divisor) for element in constants[number]]
            arrays.append(as_extents(np.array(whole, object).astype(np.int64).reshape(one.array.shape)))
        else:
            share = Extent.of(divisor // one.divisor)
            arrays.append(_each(lambda extent, share=share: extent * share, as_extents(one.array)))
    return arrays, divisor


def on_extents(node: NodeProto, operands: Sequence[Known | None], ranges: Ranges) -> Known:
    """Return the result of a node whose operands follow from sizes.

    Raises
    ------
    NotKnownError
        Extents cannot say it.
    """
    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    try:
        found = _result(node.op_type, attributes, operands, ranges)
    except ValueError:  # too many terms
        raise NotKnownError from None
    if found.dtype in FLOATS and not found.is_constant:
        most = max(abs(bound) for one in found.array.flat for bound in one.bounds(ranges))
        if most > _COUNTED[found.dtype]:
            raise NotKnownError
    return found


def _result(
    word: str, attributes: Mapping[str, Any], operands: Sequence[Known | None], ranges: Ranges
) -> Known:
    given = [one for one in operands if one is not None]
    first, dtype, functions = given[0], given[0].dtype, _functions(ranges)
    if word in ("Floor", "Ceil"):
        return _rounded(first, dtype, functions[word])
    if word in ("Cast", "CastLike"):
        return _cast(first, attributes["to"] if word == "Cast" else given[1].dtype, functions)
    if word == "Div" and dtype in FLOATS:
        return _quotient(first, given[1])
    conditions, values = (given[:1], given[1:]) if word == "Where" else ([], given)
    arrays, divisor = common_fractions(values)
    if divisor & (divisor - 1):
        raise NotKnownError
    if word in _REDUCTIONS:
        return _reduced(word, attributes, arrays, first, functions)
    if divisor > 1 and word in _WHOLE:
        raise NotKnownError
    if word == "Where":
        dtype, found = values[0].dtype, _each(functions[word], as_extents(conditions[0].array), *arrays)
    elif word == "Clip":
        bounds, found = iter(arrays[1:]), arrays[0]
        for operand, choose in zip(operands[1:], ("Max", "Min"), strict=False):
            found = found if operand is None else _each(functions[choose], found, next(bounds))
    else:
        found = _folded("TruncatedMod" if attributes.get("fmod") else word, arrays, functions)
    if word in _COMPARISONS:
        dtype, divisor = "bool", 1
    return known(found, dtype, divisor=divisor**2 if word == "Mul" else divisor)


def _folded(word: str, arrays: Sequence[Array], functions: Mapping[str, _Function]) -> Array:
    """Return a function of each element of one array, or of two and more from left to right."""
    if word in ("Neg", "Abs", "Sign", "Not"):
        return _each(functions[word], *arrays)
    if word not in functions or len(arrays) < 2:
        raise NotKnownError
    return reduce(lambda a, b: _each(functions[word], a, b), arrays)


_REDUCTIONS = {"ReduceSum": "Add", "ReduceProd": "Mul", "ReduceMax": "Max", "ReduceMin": "Min"}
_COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_WHOLE = ("And", "Div", "Mod", "Not", "Or", "Sign", "Xor")  # of no fractions


def _functions(ranges: Ranges) -> dict[str, _Function]:
    """Return the functions of extents; truth values are 0 and 1."""

    def most(a: Extent, b: Extent) -> Extent:
        return larger(a, b, ranges)

    def least(a: Extent, b: Extent) -> Extent:
        return smaller(a, b, ranges)

    def absolute(a: Extent) -> Extent:
        return most(a, a * -1)

    def is_positive(a: Extent) -> Extent:
        return least(most(a, _ZERO), ONE)

    def truncated(a: Extent, b: Extent) -> Extent:
        low, high = a.bounds(ranges)
        if b.bounds(ranges)[1] < 0:
            return truncated(a * -1, b * -1)
        if low >= 0:
            return floor(a, b)
        if high <= 0:
            return floor(a * -1, b) * -1
        return floor(most(a, _ZERO), b) - floor(most(a * -1, _ZERO), b)

    def floor(a: Extent, b: Extent) -> Extent:
        if b.bounds(ranges)[0] < 1:
            raise NotKnownError
        return floor_divide(a, b)

    def modulo(a: Extent, b: Extent) -> Extent:
        """Return the remainder, with the sign of the divisor."""
        return modulo(a * -1, b * -1) * -1 if b.bounds(ranges)[1] < 0 else a - floor(a, b) * b

    return {
        "Add": operator.add,
        "Sum": operator.add,
        "Sub": operator.sub,
        "Mul": operator.mul,
        "Div": truncated,
        "Mod": modulo,
        "TruncatedMod": lambda a, b: a - truncated(a, b) * b,
        "Floor": floor,
        "Ceil": lambda a, b: floor(a * -1, b) * -1,
        "Max": most,
        "Min": least,
        "Neg": lambda a: a * -1,
        "Abs": absolute,
        "Sign": lambda a: least(most(a, ONE * -1), ONE),
        "Truth": lambda a: least(absolute(a), ONE),
        "Less": lambda a, b: is_positive(b - a),
        "Greater": lambda a, b: is_positive(a - b),
        "LessOrEqual": lambda a, b: ONE - is_positive(a - b),
        "GreaterOrEqual": lambda a, b: ONE - is_positive(b - a),
        "Equal": lambda a, b: ONE - least(absolute(a - b), ONE),
        "And": operator.mul,
        "Or": most,
        "Xor": lambda a, b: absolute(a - b),
        "Not": lambda a: ONE - a,
        "Where": lambda condition, a, b: condition * a + (ONE - condition) * b,
    }


def _each(function: _Function, *arrays: Array) -> Array:
    return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), object)


def _quotient(first: Known, second: Known) -> Known:
    """Return a quotient in floating point, by constants."""
    if not second.is_constant or not second.array.all() or first.divisor & (first.divisor - 1):
        raise NotKnownError
    (numbers,), scale = common_fractions([second])
    divisor = math.lcm(*(one.constant for one in numbers.flat))
    shares = _each(lambda one: Extent.of(divisor // one.constant * scale), numbers)
    found = _each(operator.mul, as_extents(first.array), shares)
    return known(found, first.dtype, divisor=divisor * first.divisor)


def _rounded(value: Known, dtype: str, function: _Function) -> Known:
    by = Extent.of(value.divisor)
    return known(_each(lambda one: function(one, by), value.array), dtype)


def _cast(value: Known, to: int | str, functions: Mapping[str, _Function]) -> Known:
    if to in (TensorProto.FLOAT16, TensorProto.BFLOAT16):  # which count to 2048 and 256 alone
        raise NotKnownError
    dtype = to if isinstance(to, str) else str(helper.tensor_dtype_to_np_dtype(to))
    if dtype == "bool":
        return known(_each(functions["Truth"], value.array), dtype)
    if dtype in ("int32", "int64"):
        return _rounded(value, dtype, functions["Div"])
    if dtype not in FLOATS or value.divisor & (value.divisor - 1):
        raise NotKnownError
    return known(value.array, dtype, divisor=value.divisor)


def _reduced(
    word: str,
    attributes: Mapping[str, Any],
    arrays: Sequence[Array],
    value: Known,
    functions: Mapping[str, _Function],
) -> Known:
    """Return a reduction of a vector."""
    axes = [one.constant for one in arrays[1].flat] if len(arrays) > 1 else attributes.get("axes")
    if not axes and attributes.get("noop_with_empty_axes"):
        raise NotKnownError
    if value.array.ndim != 1 or not value.array.size or list(axes or (0,)) not in ([0], [-1]):
        raise NotKnownError
    if word == "ReduceProd" and value.divisor > 1:
        raise NotKnownError
    found = np.empty((1,), object)
    found[0] = reduce(functions[_REDUCTIONS[word]], value.array)
    keep = attributes.get("keepdims", 1)
    return known(found if keep else found.reshape(()), value.dtype, divisor=value.divisor)
