"""Where the elements of a tensor lie: strides of index letters, and of flattened roles. Pure arithmetic.

Every access of a kernel is ``offset + Σ letter·stride``; a window only scales the strides and moves the
offset. Letters of a role that follow each other in memory as they do in the role are one group, so that a
flattened index needs no division there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.search_space.problem import Problem, Window


@dataclass(frozen=True)
class Size:
    """A product of a number and of the extents of dynamic letters.

    Attributes
    ----------
    factor : int
    letters : tuple of str
        Sorted.
    """

    factor: int
    letters: tuple[str, ...] = ()

    def __mul__(self, other: Size) -> Size:
        if not self.factor * other.factor:
            return ZERO
        return Size(self.factor * other.factor, tuple(sorted(self.letters + other.letters)))

    @property
    def is_fixed(self) -> bool:
        """Whether it is a number."""
        return not self.letters

    def value(self, extents: Mapping[str, Any]) -> Any:
        """The product for given extents; scalars, arrays or expressions alike."""
        result: Any = self.factor
        for letter in self.letters:
            result = extents[letter] * result
        return result


ZERO, ONE = Size(0), Size(1)


def size_of(problem: Problem, letters: tuple[str, ...] | str) -> Size:
    """Product of the extents of `letters`."""
    fixed = [problem.extents[letter] for letter in letters]
    factor = math.prod(extent for extent in fixed if extent is not None)
    return Size(factor, tuple(sorted(k for k, extent in zip(letters, fixed, strict=True) if extent is None)))


@dataclass(frozen=True)
class Group:
    """Letters of a role that one index runs over.

    Attributes
    ----------
    letters : str
    extent, stride : Size
        Of the group's index, in elements.
    """

    letters: str
    extent: Size
    stride: Size


@dataclass(frozen=True)
class View:
    """How one tensor is addressed.

    Attributes
    ----------
    strides : dict of str to Size
        Elements from one value of a letter to the next; letters that are not there do not move.
    steps : dict of str to Size
        The same for the tensor's own axes, those under windows too.
    size : Size
        Elements of the tensor.
    """

    problem: Problem
    strides: dict[str, Size]
    steps: dict[str, Size]
    size: Size

    def groups(self, letters: tuple[str, ...], apart: str = "") -> list[Group]:
        """The fewest groups whose indices address the tensor, outer first.

        ``[b, s, k]`` by letters ``(b, s) -> one group of extent b·s and stride k``.

        Parameters
        ----------
        apart : str
            Letters that stay groups of their own.
        """
        groups: list[Group] = []
        for letter in letters:
            extent, stride = size_of(self.problem, letter), self.strides.get(letter, ZERO)
            if extent == ONE:
                continue
            joins = letter not in apart and bool(groups) and groups[-1].letters not in set(apart)
            if joins and groups[-1].stride == stride * extent:
                last = groups.pop()
                groups.append(Group(last.letters + letter, last.extent * extent, stride))
            else:
                groups.append(Group(letter, extent, stride))
        return groups

    def stride(self, letters: tuple[str, ...]) -> Size | None:
        """Elements from one flattened index to the next; None where that is no constant step."""
        groups = self.groups(letters)
        if not groups:
            return ZERO
        return groups[0].stride if len(groups) == 1 else None


def view_of(problem: Problem, tensor: str, letters: str | None = None) -> View:
    """How `tensor`, or a row-major tensor of these `letters`, is addressed."""
    strides: dict[str, Size] = {}
    steps: dict[str, Size] = {}
    step = ONE
    for letter in reversed(problem.subscripts[tensor] if letters is None else letters):
        window, steps[letter] = problem.window_over(letter), step
        if window is None:
            strides[letter] = step
        else:
            strides[window.output] = step * Size(window.stride)
            strides[window.kernel] = step * Size(window.dilation)
        step = step * size_of(problem, letter)
    return View(problem, strides, steps, step)


def padded_windows(problem: Problem, tensor: str) -> tuple[Window, ...]:
    """Windows over `tensor` that may see zeros outside of it."""
    return tuple(w for w in problem.windows if w.axis in problem.subscripts[tensor] and w.padding)


def windows_of(problem: Problem, tensor: str) -> bool:
    """Whether a window slides over an axis of `tensor`."""
    return any(window.axis in problem.subscripts[tensor] for window in problem.windows)


def must_gather(problem: Problem) -> bool:
    """Whether the row operand has to be copied before one step leads from row to row, and one along the
    reduction.
    """
    view = view_of(problem, problem.row_operand)
    steps = view.stride(problem.rows), view.stride(problem.reduction)
    return windows_of(problem, problem.row_operand) or None in steps


def can_read_directly(problem: Problem) -> bool:
    """Whether a column operand that is not constant has its columns next to each other."""
    if problem.column_operand_constant or windows_of(problem, problem.column_operand):
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
        Over the axis of lines; None where a line is seen as a whole.
    channels : tuple of str
        Reduction letters of each place of a line.
    """

    along: Window
    across: Window | None
    channels: tuple[str, ...]


def lines_of(problem: Problem) -> Lines | None:
    """How the row operand's lines are seen, None where windows do not lead along one axis of rows."""
    letters = problem.subscripts[problem.row_operand]
    windows = {w.output: w for w in problem.windows if w.axis in letters}
    along = windows.pop(problem.rows[-1], None) if problem.rows else None
    if along is None or len(windows) > 1:
        return None
    across = next(iter(windows.values()), None)
    channels = tuple(k for k in letters[letters.index(along.axis) :] if k in problem.reduction)
    kernels = (along.kernel,) if across is None else (across.kernel, along.kernel)
    if problem.reduction != kernels + channels:
        return None
    # The packed layout has the column operand's batch letters in their order.
    moves = across is not None and across.output in problem.subscripts[problem.column_operand]
    return None if moves else Lines(along, across, channels)


def can_window(problem: Problem) -> bool:
    """Whether micro-kernels with `MicroKernel.window` can compute it."""
    return lines_of(problem) is not None
