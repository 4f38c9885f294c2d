"""Where the elements of an operand lie, and whether a window sees one there.

An element of an operand is at a line (a row or a column) and a step of the reduction. Its address is the sum
of what both contribute; and so is its position along an axis that a window slides over, ``output·stride +
kernel·dilation - padding``, with zeros outside of ``0 … extent - 1``. So what lines contribute is computed
once, ahead of the reduction, and what a step does once for all lines.

Indices are split in 32 bits where fixed extents show that these are enough.
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

_SMALL = 1 << 30  # twice as much fits 32 bits still
_PAST = 1 << 12  # no piece of the reduction reaches so far past its end


@dataclass(frozen=True)
class Part:
    """What a line, or a step, contributes.

    Attributes
    ----------
    place : int32 or int64 expression
        To the address, in elements; of a line it may be negative.
    shifts : tuple of int32 or int64 expressions
        To the position along the axis of each of `Addresses.windows`.
    """

    place: Any
    shifts: tuple[Any, ...]


class Addresses:
    """Addresses of one operand.

    Attributes
    ----------
    windows : tuple of Window
        Over the operand, with padding: the others see nothing outside of their axes.
    splits_lines, splits_steps : bool
        Whether an index of a line, or of a step, has to be divided: worth doing once.
    """

    def __init__(
        self,
        problem: Problem,
        memory: Memory,
        name: str,
        letters: tuple[str, ...],
        batch: tuple[str, ...] | None = None,
    ) -> None:
        """Of rows or columns of these letters, by default in all batches of the problem."""
        self.problem, self.memory, self.letters = problem, memory, letters
        self.batch = problem.batch if batch is None else batch
        self.view = memory.views[name]
        self.windows = padded_windows(problem, name)
        self._apart = "".join(window.output + window.kernel for window in self.windows)
        self.splits_lines, self.splits_steps = (
            len(self.view.groups(role, self._apart)) > 1 for role in (letters, problem.reduction)
        )

    def of_line(self, batch: Any, line: Any) -> Part:
        """Of a flattened batch index and a row or column, int64; the paddings are in it."""
        place, found = self._split(self.batch, batch)
        own, more = self._split(self.letters, line)
        place, found = place + own, found | more
        for window in self.windows:
            place = place - self._value(self.view.steps[window.axis]) * window.padding
        return Part(
            place,
            tuple(self._position(w, found.get(w.output), w.stride) - w.padding for w in self.windows),
        )

    def of_step(self, step: Any) -> Part:
        """Of a step of the reduction, int64."""
        reduction = self.problem.reduction
        size = size_of(self.problem, reduction)
        is_small = self.splits_steps and size.is_fixed and size.factor < _SMALL
        place, found = self._split(reduction, narrow(step) if is_small else step)
        return Part(place, tuple(self._position(w, found.get(w.kernel), w.dilation) for w in self.windows))

    def at(self, batch: Any, line: Any, step: Any) -> tuple[Any, Any | None]:
        """As `join`, of indices."""
        return self.join(self.of_line(batch, line), self.of_step(step))

    def join(self, line: Part, step: Part) -> tuple[Any, Any | None]:
        """The place of an element, and whether its windows see one there; None where they always do."""
        exists: Any | None = None
        for window, first, second in zip(self.windows, line.shifts, step.shifts, strict=True):
            position = first + second
            extent = self._value(size_of(self.problem, window.axis)).astype(str(position.ty))
            exists = both(exists, tirx.And(position >= 0, position < extent))
        return wide(line.place) + wide(step.place), exists

    def shift_dtype(self, window: Window) -> str:
        """What positions along a window's axis are computed in."""
        axis, kernel = (size_of(self.problem, letter) for letter in (window.axis, window.kernel))
        span = axis.factor + 2 * window.padding + window.stride + (kernel.factor + _PAST) * window.dilation
        return "int32" if axis.is_fixed and kernel.is_fixed and span < _SMALL else "int64"

    def _value(self, size: Size) -> Any:
        return self.memory.value(size)

    def _split(self, letters: tuple[str, ...], index: Any) -> tuple[Any, dict[str, Any]]:
        """Elements to a flattened index of a role, and the index of each letter that is apart."""
        groups = self.memory.indices(self.view, letters, index, self._apart)
        spans = [(group.extent.factor + _PAST) * group.stride.factor for group, _ in groups]
        is_small = str(index.ty) == "int32" and all(group.stride.is_fixed for group, _ in groups)
        is_small = is_small and sum(spans) < _SMALL
        place: Any = tirx.IntImm("int32", 0) if is_small else i64(0)
        found: dict[str, Any] = {}
        for group, index_of in groups:
            # In a buffer: the simplifier would divide anew, in 64 bits, wherever it is used.
            own = once("index", index_of) if len(groups) > 1 else index_of
            found[group.letters] = own
            stride = self._value(group.stride)
            place = place + (own * stride.astype("int32") if is_small else wide(own) * stride)
        return place, found

    def _position(self, window: Window, index: Any | None, step: int) -> Any:
        dtype = self.shift_dtype(window)
        return tirx.IntImm(dtype, 0) if index is None else index.astype(dtype) * tirx.IntImm(dtype, step)


def first_step(problem: Problem, steps: int, piece: Any) -> Any:
    """Where a piece of the reduction, of so many steps, begins.

    Under windows, pieces of the same channels follow each other, place by place: they read the same lines of
    memory again, in the data and where channels are outer in the kernel.

    Parameters
    ----------
    piece : int64 expression
        Each piece has another first step; together they are all.
    """
    kernels = tuple(k for k in problem.reduction if any(k == window.kernel for window in problem.windows))
    leads = bool(kernels) and problem.reduction[: len(kernels)] == kernels
    places, channels = size_of(problem, kernels), size_of(problem, problem.reduction[len(kernels) :])
    if not (leads and places.is_fixed and channels.is_fixed) or channels.factor % steps:
        return piece * steps
    block = once("channel_block", tirx.truncdiv(piece, i64(places.factor)))
    place = once("window_place", tirx.truncmod(piece, i64(places.factor)))
    return place * channels.factor + block * steps
