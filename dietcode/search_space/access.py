"""Layouts of tensors in memory: strides of indices, and of flattened roles. Pure arithmetic.

Every access of a kernel is ``offset + Σ index·stride``; a window only scales the strides and moves the
offset. Indices of a role that are neighbours in memory as in the role are one group, so that a flattened
index needs no division there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.search_space.problem import AnyProblem, Problem, Window


@dataclass(frozen=True)
class Size:
    """A product of a number and of the extents of dynamic indices.

    Attributes
    ----------
    factor : int
    indices : tuple of str
        Sorted.
    """

    factor: int
    indices: tuple[str, ...] = ()

    def __mul__(self, other: Size) -> Size:
        if not self.factor * other.factor:
            return ZERO
        return Size(self.factor * other.factor, tuple(sorted(self.indices + other.indices)))

    @property
    def is_fixed(self) -> bool:
        """Whether it is a number."""
        return not self.indices

    def value(self, extents: Mapping[str, Any]) -> Any:
        """Return the product for given extents: scalars, arrays or expressions."""
        result: Any = self.factor
        for index in self.indices:
            result = extents[index] * result
        return result


ZERO, ONE = Size(0), Size(1)


def size_of(problem: AnyProblem, indices: tuple[str, ...] | str) -> Size:
    """Return the product of the extents of `indices`."""
    fixed = [problem.extents[index] for index in indices]
    factor = math.prod(extent for extent in fixed if extent is not None)
    return Size(factor, tuple(sorted(k for k, extent in zip(indices, fixed, strict=True) if extent is None)))


@dataclass(frozen=True)
class Group:
    """Indices of a role that one index runs over.

    Attributes
    ----------
    indices : str
    extent, stride : Size
        Of the group's index, in elements.
    """

    indices: str
    extent: Size
    stride: Size


@dataclass(frozen=True)
class View:
    """The layout of one tensor.

    Attributes
    ----------
    strides : dict of str to Size
        Elements from one value of an index to the next; 0 for indices that are not listed.
    axis_strides : dict of str to Size
        The same for the tensor's own axes, those under windows too.
    size : Size
        Elements of the tensor.
    """

    problem: AnyProblem
    strides: dict[str, Size]
    axis_strides: dict[str, Size]
    size: Size

    def groups(self, indices: tuple[str, ...], apart: str = "") -> list[Group]:
        """Return the fewest groups whose indices address the tensor, outer first.

        ``[b, s, k]`` by indices ``(b, s) -> one group of extent b·s and stride k``.

        Parameters
        ----------
        apart : str
            Indices that stay groups of their own.
        """
        groups: list[Group] = []
        for index in indices:
            extent, stride = size_of(self.problem, index), self.strides.get(index, ZERO)
            if extent == ONE:
                continue
            joins = index not in apart and bool(groups) and groups[-1].indices not in set(apart)
            if joins and groups[-1].stride == stride * extent:
                last = groups.pop()
                groups.append(Group(last.indices + index, last.extent * extent, stride))
            else:
                groups.append(Group(index, extent, stride))
        return groups

    def stride(self, indices: tuple[str, ...]) -> Size | None:
        """Return the elements from one flattened index to the next; None where they are not constant."""
        groups = self.groups(indices)
        if not groups:
            return ZERO
        return groups[0].stride if len(groups) == 1 else None


def view_of(problem: AnyProblem, tensor: str, indices: str | None = None) -> View:
    """Return the layout of `tensor`, or of a row-major tensor of these `indices`."""
    strides: dict[str, Size] = {}
    axis_strides: dict[str, Size] = {}
    stride = ONE
    for index in reversed(problem.indices[tensor] if indices is None else indices):
        window, axis_strides[index] = problem.window_over(index), stride
        if window is None:
            strides[index] = stride
        else:
            strides[window.output] = stride * Size(window.stride)
            strides[window.kernel] = stride * Size(window.dilation)
        stride = stride * size_of(problem, index)
    return View(problem, strides, axis_strides, stride)


def padded_windows(problem: Problem, tensor: str) -> tuple[Window, ...]:
    """Return the windows over `tensor` that may read zeros outside of it."""
    return tuple(w for w in problem.windows if w.axis in problem.indices[tensor] and w.padding)


def has_windows(problem: Problem, tensor: str) -> bool:
    """Whether a window slides over an axis of `tensor`."""
    return any(window.axis in problem.indices[tensor] for window in problem.windows)


def must_gather(problem: Problem) -> bool:
    """Whether the row operand has to be copied to have constant strides along rows and reduction."""
    view = view_of(problem, problem.row_operand)
    strides = view.stride(problem.rows), view.stride(problem.reduction)
    return has_windows(problem, problem.row_operand) or None in strides


def can_read_directly(problem: Problem) -> bool:
    """Whether a column operand that is not constant has its columns next to each other."""
    if problem.column_operand_constant or has_windows(problem, problem.column_operand):
        return False
    view = view_of(problem, problem.column_operand)
    return view.stride(problem.columns) == ONE and view.stride(problem.reduction) is not None


@dataclass(frozen=True)
class Lines:
    """A row operand as lines that a window slides along, and another from line to line.

    Attributes
    ----------
    along : Window
        Over the axis of a line.
    across : Window or None
        Over the axis of lines; None where a window spans a whole line.
    channels : tuple of str
        Reduction indices of each position of a line.
    """

    along: Window
    across: Window | None
    channels: tuple[str, ...]


def lines_of(problem: Problem) -> Lines | None:
    """Return the row operand as lines; None where windows do not slide along one axis of rows."""
    indices = problem.indices[problem.row_operand]
    windows = {w.output: w for w in problem.windows if w.axis in indices}
    along = windows.pop(problem.rows[-1], None) if problem.rows else None
    if along is None or len(windows) > 1:
        return None
    across = next(iter(windows.values()), None)
    channels = tuple(k for k in indices[indices.index(along.axis) :] if k in problem.reduction)
    kernels = (along.kernel,) if across is None else (across.kernel, along.kernel)
    if problem.reduction != kernels + channels:
        return None
    # The packed layout has the column operand's batch indices in their order.
    moves = across is not None and across.output in problem.indices[problem.column_operand]
    return None if moves else Lines(along, across, channels)


def can_window(problem: Problem) -> bool:
    """Whether micro-kernels with `MicroKernel.window` can compute the problem."""
    return lines_of(problem) is not None
