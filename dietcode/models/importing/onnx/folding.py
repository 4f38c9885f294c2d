"""Constant folding: what follows from constants and from sizes is computed when a file is read.

By the package's reference functions where all is constant, and on extents elsewhere, so that no size is left
to a call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto, helper
from onnx.reference import ReferenceEvaluator

from dietcode.graph.extent import Ranges
from dietcode.graph.tensor_type import FLOATS
from dietcode.models.importing.onnx.known import MOST_ELEMENTS, Array, Known, known
from dietcode.models.importing.onnx.size_arithmetic import NotKnownError, common_fractions, on_extents

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
    if not given or node.op_type in _NOT_HERE or not _is_small(node, given):
        return None
    try:
        if not all(one.is_constant for one in given):
            moves = node.op_type in _MOVING and not (node.op_type == "Where" and not given[0].is_constant)
            return _moved(node, operands, opset) if moves else (on_extents(node, operands, ranges),)
    except NotKnownError:
        return None
    if any(one.weight and one.array.size > 1 and one.dtype in FLOATS for one in given):
        return None
    arrays = [None if one is None else one.array for one in operands]
    return tuple(known(one) for one in _evaluated(node, arrays, opset))


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


def _moved(node: NodeProto, operands: Sequence[Known | None], opset: int) -> tuple[Known, ...]:
    """Move the positions of elements as the reference functions do, and put the elements in their places."""
    moving = range(len(operands))[_MOVING[node.op_type]]
    moved = [one for number, one in enumerate(operands) if one is not None and number in moving]
    elements, divisor = common_fractions(moved)
    pool = [extent for array in elements for extent in array.flat]
    arrays: list[Array | None] = []
    first = 0
    for number, one in enumerate(operands):
        if one is None or number not in moving:
            if one is not None and not one.is_constant:
                raise NotKnownError
            arrays.append(None if one is None else one.array)
            continue
        arrays.append(np.arange(first, first + one.array.size).reshape(one.array.shape))
        first += one.array.size
    results = []
    for positions in _evaluated(node, arrays, opset):
        found = np.empty(positions.shape, object)
        found.reshape(-1)[:] = [pool[int(one)] for one in positions.flat]
        results.append(known(found, moved[-1].dtype, divisor=divisor))
    return tuple(results)
