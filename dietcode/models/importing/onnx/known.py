"""Values that are known before any call: constants, and sizes that follow from the dimensions.

Arithmetic of shapes is computed here, by the package's reference functions where all is constant and on
extents elsewhere, so that no size is left to a call.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from onnx import NodeProto, helper
from onnx.reference import ReferenceEvaluator

from dietcode.graph.extent import Extent, Ranges, floor_divide, larger, remainder, smaller
from dietcode.graph.tensor_type import DTYPES, HALVES, GraphError

Array: TypeAlias = "np.ndarray[Any, Any]"
MOST_ELEMENTS = 256  # of what is computed here; larger constants are weights


@dataclass(frozen=True, eq=False)
class Known:
    """A value that is known.

    Attributes
    ----------
    array : array
        Its elements; of extents where they follow from dimensions.
    dtype : str
    weight : str
        The weight of the graph that it is; may be empty.
    """

    array: Array
    dtype: str
    weight: str = ""

    @property
    def is_constant(self) -> bool:
        """Whether it follows from no dimension."""
        return bool(self.array.dtype != object)


class NotKnownError(Exception):
    """A value that calls compute."""


def known(array: Any, dtype: str = "", weight: str = "") -> Known:
    """Return a known value; extents that are all constant become numbers.

    Raises
    ------
    GraphError
        Models do not have its dtype.
    """
    array = np.asarray(array)
    if array.dtype.name in HALVES:
        array = array.astype(np.float32)
    if array.dtype == object:
        if all(one.is_constant for one in array.flat):
            array = np.array([one.constant for one in array.flat], dtype).reshape(array.shape)
    elif not dtype:
        dtype = str(array.dtype)
    if dtype not in DTYPES:
        raise GraphError(f"dtype {dtype}; allowed: {', '.join(DTYPES)} (convert with model.float())")
    return Known(array, dtype, weight)


def sizes_of(shape: Sequence[Extent]) -> Known:
    """Return a shape as a vector."""
    array = np.empty(len(shape), object)
    array[:] = list(shape)
    return known(array, "int64")


def as_extents(array: Array) -> Array:
    """Return whole numbers as extents."""
    if array.dtype == object:
        return array
    found = np.empty(array.shape, object)
    found.reshape(-1)[:] = [Extent.of(int(one)) for one in array.flat]
    return found


# Operators that move elements: which of their operands these are in; the others have to be constant.
_MOVING: Mapping[str, slice] = {
    **{
        name: slice(0, 1)
        for name in ("Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze")
    },
    **{name: slice(0, 1) for name in ("Tile", "Transpose", "Unsqueeze")},
    "Concat": slice(0, None),
    "Where": slice(1, None),
}
_ARITHMETIC: Mapping[str, Callable[[Extent, Extent], Extent]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
}
_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "Equal": operator.eq,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
}
_REDUCTIONS = {"ReduceSum": operator.add, "ReduceProd": operator.mul}
# What may be much larger than its operands is computed where its size has been looked at.
_NOT_HERE = (
    *("ConstantOfShape", "OneHot", "Pad", "Range", "Resize", "Shape", "Size"),
    *("AveragePool", "Conv", "MaxPool"),
)


def computed(
    node: NodeProto, operands: Sequence[Known | None], opset: int, ranges: Ranges
) -> tuple[Known, ...] | None:
    """Return the results of a node, or None where they are left to the graph.

    Parameters
    ----------
    node : onnx.NodeProto
    operands : sequence of Known or None
    opset : int
        The version of the operators.
    ranges : mapping of str to (int, int)
        Of the dimensions.
    """
    given = [one for one in operands if one is not None]
    named = any(one.weight and one.array.size > 1 and one.dtype.startswith("float") for one in given)
    if not given or named or node.op_type in _NOT_HERE or not _is_small(node, given):
        return None
    try:
        if all(one.is_constant for one in given):
            arrays = [None if one is None else one.array for one in operands]
            return tuple(known(one) for one in _evaluated(node, arrays, opset))
        if all(one.dtype in ("int32", "int64", "bool") for one in given):
            return _on_extents(node, operands, opset, ranges)
    except NotKnownError:
        pass
    return None


def _is_small(node: NodeProto, given: Sequence[Known]) -> bool:
    if any(one.array.size > MOST_ELEMENTS for one in given):
        return False
    if node.op_type not in ("Expand", "Tile"):
        return True
    if len(given) < 2 or not given[1].is_constant:
        return False
    counts = [abs(int(one)) for one in given[1].array.flat]
    return math.prod(max(one, 1) for one in counts) * max(given[0].array.size, 1) <= MOST_ELEMENTS


def _evaluated(node: NodeProto, arrays: Sequence[Array | None], opset: int) -> list[Array]:
    """Return what the reference functions of the package compute."""
    plain = NodeProto()
    plain.CopyFrom(node)
    del plain.input[:], plain.output[:]
    plain.input.extend("" if one is None else f"x{number}" for number, one in enumerate(arrays))
    plain.output.extend(f"y{number}" if name else "" for number, name in enumerate(node.output))
    feeds = {f"x{number}": one for number, one in enumerate(arrays) if one is not None}
    graph = helper.make_graph(
        [plain],
        "node",
        [
            helper.make_value_info(name, helper.make_tensor_type_proto(_element(one), one.shape))
            for name, one in feeds.items()
        ],
        [
            helper.make_value_info(name, helper.make_tensor_type_proto(1, None))
            for name in plain.output
            if name
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    with np.errstate(all="ignore"):
        return [np.asarray(one) for one in ReferenceEvaluator(model).run(None, feeds)]


def _element(array: Array) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def _on_extents(
    node: NodeProto, operands: Sequence[Known | None], opset: int, ranges: Ranges
) -> tuple[Known, ...]:
    """Return results of arithmetic on sizes; raises `NotKnownError` where extents cannot say them."""
    word = node.op_type
    given = [one for one in operands if one is not None]
    dtype = given[-1].dtype
    arrays = [as_extents(one.array) for one in given]
    if word in _MOVING:
        return _moved(node, operands, opset)
    if word == "Cast":
        to = helper.tensor_dtype_to_np_dtype(helper.get_attribute_value(node.attribute[0]))
        if str(to) not in ("int32", "int64"):
            raise NotKnownError
        return (known(arrays[0], str(to)),)
    if word in _COMPARISONS and len(arrays) == 2:
        compare = np.frompyfunc(lambda a, b: _decided(word, a, b, ranges), 2, 1)
        return (known(np.asarray(compare(*arrays)).astype(bool)),)
    if word in _REDUCTIONS:
        return (_reduced(node, given, arrays[0]),)
    return (known(_elementwise(word, arrays, ranges), dtype),)


def _elementwise(word: str, arrays: Sequence[Array], ranges: Ranges) -> Array:
    def bounded(choose: Callable[[Extent, Extent, Ranges], Extent]) -> Callable[[Extent, Extent], Extent]:
        return lambda a, b: choose(a, b, ranges)

    def whole(divide: Callable[[Extent, Extent], Extent]) -> Callable[[Extent, Extent], Extent]:
        def quotient(a: Extent, b: Extent) -> Extent:
            # Rounded towards zero and down are the same where nothing is negative.
            if a.bounds(ranges)[0] < 0 or b.bounds(ranges)[0] < 1:
                raise NotKnownError
            return divide(a, b)

        return quotient

    functions: dict[str, Callable[..., Extent]] = {
        **_ARITHMETIC,
        "Div": whole(floor_divide),
        "Mod": whole(remainder),
        "Min": bounded(smaller),
        "Max": bounded(larger),
    }
    if word == "Neg":
        return np.asarray(np.frompyfunc(lambda a: a * -1, 1, 1)(arrays[0]), object)
    if word not in functions or len(arrays) < 2:
        raise NotKnownError
    combine = np.frompyfunc(functions[word], 2, 1)
    return np.asarray(reduce(combine, arrays), object)


def _decided(word: str, first: Extent, second: Extent, ranges: Ranges) -> bool:
    low, high = (first - second).bounds(ranges)
    answers = {_COMPARISONS[word](low, 0), _COMPARISONS[word](high, 0)}
    if word == "Equal" and low < 0 < high:
        raise NotKnownError
    if len(answers) > 1:
        raise NotKnownError
    return answers.pop()


def _reduced(node: NodeProto, given: Sequence[Known], array: Array) -> Known:
    attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    axes = [int(one) for one in given[1].array.flat] if len(given) > 1 else attributes.get("axes")
    if array.ndim != 1 or list(axes or (0,)) not in ([0], [-1]) or attributes.get("noop_with_empty_axes"):
        raise NotKnownError
    total = reduce(_REDUCTIONS[node.op_type], array.flat, Extent.of(int(node.op_type == "ReduceProd")))
    found = np.empty((1,), object)
    found[0] = total
    return known(found if attributes.get("keepdims", 1) else found.reshape(()), given[0].dtype)


def _moved(node: NodeProto, operands: Sequence[Known | None], opset: int) -> tuple[Known, ...]:
    """Move the positions of elements as the reference functions do, and put the elements in their places."""
    moving = range(len(operands))[_MOVING[node.op_type]]
    pool: list[Extent] = []
    arrays: list[Array | None] = []
    dtype = "int64"
    for number, one in enumerate(operands):
        if one is None or number not in moving:
            if one is not None and not one.is_constant:
                raise NotKnownError
            arrays.append(None if one is None else one.array)
            continue
        dtype = one.dtype
        arrays.append(np.arange(len(pool), len(pool) + one.array.size).reshape(one.array.shape))
        pool += list(as_extents(one.array).flat)
    results = []
    for positions in _evaluated(node, arrays, opset):
        found = np.empty(positions.shape, object)
        found.reshape(-1)[:] = [pool[int(one)] for one in positions.flat]
        results.append(known(found, dtype))
    return tuple(results)
