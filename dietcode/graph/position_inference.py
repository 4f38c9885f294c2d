"""Types of what operators of a graph read and write at positions; see `dietcode.graph.inference`."""

from __future__ import annotations

from dietcode.graph.inference import Attributes, Operands, Types, need, need_dtype, tensor
from dietcode.graph.tensor_type import INTEGERS, TensorType, axis_of, broadcast


def take(operands: Operands, attributes: Attributes) -> Types:
    """Slices of a tensor at positions along an axis, which may count from the end."""
    x, positions = tensor(operands[0]), need_dtype(tensor(operands[1]), INTEGERS)
    axis = axis_of(attributes["axis"], x.rank)
    return (TensorType(x.dtype, (*x.shape[:axis], *positions.shape, *x.shape[axis + 1 :])),)


def take_along(operands: Operands, attributes: Attributes) -> Types:
    """Elements at positions along an axis, a position for each."""
    x, positions = tensor(operands[0]), need_dtype(tensor(operands[1]), INTEGERS)
    axis_of(attributes["axis"], x.rank)
    need(x.rank == positions.rank, f"{x} at {positions}: allowed: one rank")
    return (TensorType(x.dtype, positions.shape),)


def take_points(operands: Operands, attributes: Attributes) -> Types:
    """Elements at tensors of positions along the first axes, one tensor for each axis."""
    x = tensor(operands[0])
    positions = [need_dtype(tensor(one), INTEGERS) for one in operands[1:]]
    need(0 < len(positions) <= x.rank, f"{len(positions)} tensors of positions for {x}")
    shape = broadcast([one.shape for one in positions])
    return (TensorType(x.dtype, (*shape, *x.shape[len(positions) :])),)


def scatter_along(operands: Operands, attributes: Attributes) -> Types:
    """A tensor with elements changed at positions along an axis, a position for each."""
    x, positions, source = (tensor(one) for one in operands)
    need_dtype(positions, INTEGERS)
    axis_of(attributes["axis"], x.rank)
    fits = x.rank == positions.rank and source.shape == positions.shape and source.dtype == x.dtype
    need(fits, f"{source} to {positions} of {x}; allowed: one rank, a position for each element")
    return (x,)


def scatter_points(operands: Operands, attributes: Attributes) -> Types:
    """A tensor with elements changed at tensors of positions along the first axes, one for each axis."""
    x, source = tensor(operands[0]), tensor(operands[1])
    (taken,) = take_points((operands[0], *operands[2:]), attributes)
    need(source == taken, f"{source} to points of {x}; allowed: {taken}")
    return (x,)
