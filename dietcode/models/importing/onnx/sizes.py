"""Operators of ONNX whose results have a size that depends on values, at most that of an operand."""

from __future__ import annotations

from dietcode.graph.tensor_type import axis_of
from dietcode.models.importing.onnx.context import OnnxImporter, OnnxNode, OnnxResult, onnx_rule
from dietcode.models.importing.spelled_out import flattened


@onnx_rule("NonZero")
def _nonzero(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    x = n.tensor(0)
    wide = m.reshape(x, (1,)) if m.rank(x) == 0 else x
    found = m.add("nonzero", wide, size=m.new_size(m.type(x).num_elements))
    return m.slice(m.transpose(found, (1, 0)), 0, 0, m.rank(x))  # no row for a scalar, which has no axis


@onnx_rule("Compress")
def _compress(m: OnnxImporter, n: OnnxNode) -> OnnxResult:
    """Return the slices along an axis, or the elements, where a condition holds; it may be shorter."""
    x, mask, axis = n.tensor(0), n.tensor(1), n.attribute("axis")
    if axis is None:
        x, axis = flattened(m, x, 0, m.rank(x) - 1), 0
    size = m.new_size(m.type(mask).num_elements)
    found = m.add("nonzero", mask, size=size)
    return m.add("take", x, m.reshape(found, (size,)), axis=axis_of(axis, m.rank(x)))
