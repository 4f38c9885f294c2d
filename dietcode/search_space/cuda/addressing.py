"""Offsets of the elements of an operand, and whether a window has one there.

An element of an operand is at a line (a row or a column) and a step of the reduction. Its offset is the sum
of a part that depends on the line and one that depends on the step; so is its position along an axis that a
window slides over, ``output·stride + kernel·dilation - padding``, with zeros outside of ``0 … extent - 1``.
The part of a line is computed once, ahead of the reduction, and the part of a step once for all lines.

Indices are split in 32 bits where fixed extents show that 32 bits are enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from dietcode.search_space.access import Size, padded_windows, size_of
from dietcode.search_space.cuda.building import both, narrow, once, wide
from dietcode.search_space.memory import Memory
from dietcode.search_space.problem import Problem, Window
from dietcode.search_space.tir import i64

_SMALL = 1 << 30  # twice as much still fits 32 bits
_PAST = 1 << 12  # no tile reaches so far past the end of the reduction


@dataclass(frozen=True)
class Part:
    """The part of an offset, and of positions, that a line or a step contributes.

    Attributes
    ----------
    place : int32 or int64 expression
        In elements; that of a line may be negative.
    shifts : tuple of int32 or int64 expressions
        Of the position along the axis of each of `Addresses.windows`.
    """

    offset: Any
    shifts: tuple[Any, ...]


class Addresses:
    """The offsets of one operand.

    Parameters
    ----------
    problem, memory
        What is computed, and its tensors.
    name : str
        The operand.
    indices : tuple of str
        Of its lines: rows or columns.
    batch : tuple of str, optional
        Of the batch; by default all of the problem's.

    Attributes
    ----------
    windows : tuple of Window
        Over the operand, with padding: the others stay within their axes.
    splits_lines, splits_steps : bool
        Whether an index of a line, or of a step, has to be divided: worth doing once.
    """

    def __init__(
        self,
        problem: Problem,
        memory: Memory,
        name: str,
        indices: tuple[str, ...],
        batch: tuple[str, ...] | None = None,
    ) -> None:
        self.problem, self.memory, self.indices = problem, memory, indices
        self.batch = problem.batch if batch is None else batch
        self.view = memory.views[name]
        self.windows = padded_windows(problem, name)
        self._apart = "".join(window.output + window.kernel for window in self.windows)
        self.splits_lines, self.splits_reduction = (
            len(self.view.groups(role, self._apart)) > 1 for role in (indices, problem.reduction)
        )

    def of_line(self, batch: Any, line: Any) -> Part:
        """Return the part of a flattened batch index and a row or column, int64, paddings included."""
        offset, found = self._split(self.batch, batch)
        own, more = self._split(self.indices, line)
        offset, found = offset + own, found | more
        for window in self.windows:
            offset = offset - self._value(self.view.axis_strides[window.axis]) * window.padding
        return Part(
            offset,
            tuple(self._position(w, found.get(w.output), w.stride) - w.padding for w in self.windows),
        )

    def of_step(self, step: Any) -> Part:
        """Return the part of a step of the reduction, int64."""
        reduction = self.problem.reduction
        size = size_of(self.problem, reduction)
        is_small = self.splits_reduction and size.is_fixed and size.factor < _SMALL
        offset, found = self._split(reduction, narrow(step) if is_small else step)
        return Part(offset, tuple(self._position(w, found.get(w.kernel), w.dilation) for w in self.windows))

    def at(self, batch: Any, line: Any, step: Any) -> tuple[Any, Any | None]:
        """Return what `join` does, for a batch index, a line and a step."""
        return self.join(self.of_line(batch, line), self.of_step(step))

    def join(self, line: Part, step: Part) -> tuple[Any, Any | None]:
        """Return the offset of an element, and whether windows have one there; None where they always do."""
        exists: Any | None = None
        for window, first, second in zip(self.windows, line.shifts, step.shifts, strict=True):
            position = first + second
            extent = self._value(size_of(self.problem, window.axis)).astype(str(position.ty))
            exists = both(exists, tirx.And(position >= 0, position < extent))
        return wide(line.offset) + wide(step.offset), exists

    def shift_dtype(self, window: Window) -> str:
        """Return the dtype in which positions along a window's axis are computed."""
        axis, kernel = (size_of(self.problem, index) for index in (window.axis, window.kernel))
        span = (
            axis.factor
            + window.padding
            + window.end
            + window.stride
            + (kernel.factor + _PAST) * window.dilation
        )
        return "int32" if axis.is_fixed and kernel.is_fixed and span < _SMALL else "int64"

    def _value(self, size: Size) -> Any:
        return self.memory.value(size)

    def _split(self, indices: tuple[str, ...], index: Any) -> tuple[Any, dict[str, Any]]:
        """Return the offset of a flattened index of a role, and the values of the indices under windows."""
        groups = self.memory.indices(self.view, indices, index, self._apart)
        spans = [(group.extent.factor + _PAST) * group.stride.factor for group, _ in groups]
        is_small = str(index.ty) == "int32" and all(group.stride.is_fixed for group, _ in groups)
        is_small = is_small and sum(spans) < _SMALL
        offset: Any = tirx.IntImm("int32", 0) if is_small else i64(0)
        found: dict[str, Any] = {}
        for group, index_of in groups:
            # In a buffer: the simplifier would divide anew, in 64 bits, wherever it is used.
            own = once("index", index_of) if len(groups) > 1 else index_of
            found[group.indices] = own
            stride = self._value(group.stride)
            offset = offset + (own * stride.astype("int32") if is_small else wide(own) * stride)
        return offset, found

    def _position(self, window: Window, index: Any | None, step: int) -> Any:
        dtype = self.shift_dtype(window)
        return tirx.IntImm(dtype, 0) if index is None else index.astype(dtype) * tirx.IntImm(dtype, step)


def first_step(problem: Problem, k_tile: int, k_outer: Any) -> Any:
    """Return the first step of a tile of the reduction.

    Under windows, tiles of the same channels follow each other, one position of the window after the other:
    they read the same lines of memory again, in the data and where channels are outer in the kernel.

    Parameters
    ----------
    k_tile : int
        Steps of a tile.
    k_outer : int64 expression
        Number of the tile; each has another first step.
    """
    kernels = tuple(k for k in problem.reduction if any(k == window.kernel for window in problem.windows))
    leads = bool(kernels) and problem.reduction[: len(kernels)] == kernels
    num_positions, channels = size_of(problem, kernels), size_of(problem, problem.reduction[len(kernels) :])
    if not (leads and num_positions.is_fixed and channels.is_fixed) or channels.factor % k_tile:
        return k_outer * k_tile
    block = once("channel_block", tirx.truncdiv(k_outer, i64(num_positions.factor)))
    position = once("window_place", tirx.truncmod(k_outer, i64(num_positions.factor)))
    return position * channels.factor + block * k_tile
