"""Copies of what tiles read: whole reductions of a row, next to each other, with the zeros of windows.

Each task has its own copies, so that they are read while they are in a near cache.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ONE, ZERO, Group, Size, has_windows, size_of
from dietcode.search_space.cpu.kernel import Kernel
from dietcode.search_space.problem import Window
from dietcode.search_space.tir import DTYPE, i64, load, prefetch, store

_PREFETCH_DISTANCE = 1024  # elements


def split_index(kernel: Kernel, indices: tuple[str, ...], flattened: Any) -> dict[str, Any]:
    """Return the value of each index of a role from the flattened one."""
    result: dict[str, Any] = {}
    for axis, index in reversed(list(enumerate(indices))):
        extent = kernel.memory.value(size_of(kernel.problem, index))
        result[index] = tirx.truncmod(flattened, extent) if axis else flattened
        flattened = tirx.truncdiv(flattened, extent)
    return result


@dataclass(frozen=True)
class WindowStarts:
    """The starts of the windows over an operand for one position of the output.

    Attributes
    ----------
    windows : tuple of Window
    begins : dict of str to int64 expression
        Along the operand's axis, by the window's index of the reduction.
    padding : int64 expression
        Elements of padding before the operand's first element.
    """

    kernel: Kernel
    windows: tuple[Window, ...]
    begins: dict[str, Any]
    padding: Any

    @classmethod
    def of(cls, kernel: Kernel, operand: str, index: dict[str, Any]) -> WindowStarts:
        """Return the windows at an index of the output."""
        problem, memory = kernel.problem, kernel.memory
        windows = tuple(w for w in problem.windows if w.axis in problem.indices[operand])
        begins = {w.kernel: kernel.ops.bind(index[w.output] * w.stride - w.padding) for w in windows}
        padding: Any = i64(0)
        for window in windows:
            padding = padding + memory.value(memory.views[operand].axis_strides[window.axis]) * window.padding
        return cls(kernel, windows, begins, padding)

    def _extent(self, index: str) -> Any:
        return self.kernel.memory.value(size_of(self.kernel.problem, index))

    def inside(self) -> Any:
        """Return whether the whole windows lie inside."""
        conditions = []
        for window in self.windows:
            begin = self.begins[window.kernel]
            last = begin + (self._extent(window.kernel) - 1) * window.dilation
            conditions += [begin >= 0, last < self._extent(window.axis)]
        return tirx.all(*conditions)

    def holds(self, window: Window, position: Any) -> Any:
        """Return whether one position of a window lies inside."""
        index = self.begins[window.kernel] + position * window.dilation
        return tirx.all(index >= 0, index < self._extent(window.axis))


@dataclass(frozen=True)
class Copy:
    """Copies from an operand to a buffer.

    Attributes
    ----------
    operand : str
        Tensor that is read.
    target : Buffer
        What is written.
    """

    kernel: Kernel
    operand: str
    target: Any

    def row(self, batch: Any, row: Any, offset: Any) -> None:
        """Emit ``target[offset + k] = A[batch, row, k]`` for all k."""
        problem, memory, bind = self.kernel.problem, self.kernel.memory, self.kernel.ops.bind
        view = memory.views[self.operand]
        start = memory.offset(view, problem.batch, batch) + memory.offset(view, problem.rows, row)
        offset = bind(offset)
        groups = view.groups(problem.reduction)
        if not has_windows(problem, self.operand):
            self.groups(bind(start), offset, groups)
            return
        index = split_index(self.kernel, problem.rows, row) | split_index(self.kernel, problem.batch, batch)
        windows = WindowStarts.of(self.kernel, self.operand, index)
        source = bind(start - windows.padding)
        with T.If(windows.inside()):
            with T.Then():
                self.groups(source, offset, groups)
            with T.Else():
                self._windows(windows, source, offset)

    def groups(self, source: Any, offset: Any, groups: list[Group]) -> None:
        """Copy a whole reduction, group by group."""
        value = self.kernel.memory.value
        *outer, last = groups or [Group("", ONE, ONE)]  # no group where the whole reduction is one step
        with ExitStack() as loops:
            length = value(last.extent)
            index: Any = i64(0)
            for group in outer:
                step = loops.enter_context(T.serial(i64(0), value(group.extent)))
                source = source + step * value(group.stride)
                index = index * value(group.extent) + step
            self._group(source, last, offset + index * length)

    def _group(self, source: Any, group: Group, offset: Any) -> None:
        """Copy along one group."""
        length, lanes = self.kernel.memory.value(group.extent), self.kernel.limits.lanes
        if group.stride != ONE or not group.extent.is_fixed:
            self.run(source, length, group.stride, offset)
            return
        self._vectors(source, tirx.truncdiv(length, lanes), offset)
        done = group.extent.factor // lanes * lanes
        if 0 < done < group.extent.factor:
            last = group.extent.factor - lanes  # overlaps what is copied already
            self._some(source, offset, last, lanes)
            return
        while done < group.extent.factor:
            width = 1 << ((group.extent.factor - done).bit_length() - 1)
            self._some(source, offset, done, width)
            done += width

    def run(self, source: Any, length: Any, stride: Size, offset: Any) -> None:
        """Copy a run: whole vectors, then element by element.

        Parameters
        ----------
        source, offset : int64 expressions
            Offsets in the operand and in the target.
        length : int64 expression
            Elements.
        stride : Size
            Elements of the operand from one to the next.
        """
        whole, step = i64(0), self.kernel.memory.value(stride)
        if stride == ONE:
            whole = self.kernel.ops.bind(tirx.truncdiv(length, self.kernel.limits.lanes))
            self._vectors(source, whole, offset)
        with T.serial(whole * self.kernel.limits.lanes, length) as k:
            value = load(self.kernel.memory.buffers[self.operand], [source + k * step], 1)
            store(self.target, value, [offset + k], 1)

    def _vectors(self, source: Any, number: Any, offset: Any) -> None:
        lanes = self.kernel.limits.lanes
        with T.serial(i64(0), number) as v:
            prefetch(self.kernel.memory.buffers[self.operand], source + v * lanes + _PREFETCH_DISTANCE)
            self._some(source, offset, v * lanes, lanes)

    def _some(self, source: Any, offset: Any, first: Any, lanes: int) -> None:
        value = load(self.kernel.memory.buffers[self.operand], [source + first], lanes)
        store(self.target, value, [offset + first], lanes)

    def _windows(self, windows: WindowStarts, source: Any, offset: Any) -> None:
        """Copy what lies inside, and write zeros for the rest."""
        problem, memory = self.kernel.problem, self.kernel.memory
        view = memory.views[self.operand]
        by_index = {window.kernel: window for window in windows.windows}
        last = max(axis for axis, index in enumerate(problem.reduction) if index in by_index)
        outer, inner = problem.reduction[: last + 1], problem.reduction[last + 1 :]
        with ExitStack() as loops:
            flattened: Any = i64(0)
            conditions = []
            for index in outer:
                extent = memory.value(size_of(problem, index))
                step = loops.enter_context(T.serial(i64(0), extent))
                source = source + step * memory.value(view.strides.get(index, ZERO))
                flattened = flattened * extent + step
                if index in by_index:
                    conditions.append(windows.holds(by_index[index], step))
            length = memory.value(size_of(problem, inner))
            begin = self.kernel.ops.bind(offset + flattened * length)
            with T.If(tirx.all(*conditions)):
                with T.Then():
                    self.groups(source, begin, view.groups(inner))
                with T.Else():
                    self.clear(begin, length)

    def clear(self, offset: Any, length: Any) -> None:
        """Write zeros."""
        with T.serial(i64(0), length) as k:
            store(self.target, tirx.const(0, DTYPE), [offset + k], 1)
