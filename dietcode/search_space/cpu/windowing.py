"""A source of rows with a buffer of the lines under a window: each element of the operand is copied once.

    for batch index, of which the last is the window's position p across lines:
      copy the lines that were not under the window at p - 1
      for column tile, row tile:
        for r, (s, c): acc += lines[slot(p, r)][q + s][c] · packed_B[…, (r, s, c), lanes]

Lines lie in a ring: line ``h``, counted with the padding, in slot ``h mod height``, where `height` lines are
what the window spans. A line has the padding at its ends, so that no tile sees an edge of the operand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import Lines, lines_of, size_of
from dietcode.search_space.cpu.copying import Copy
from dietcode.search_space.cpu.kernel import Kernel
from dietcode.search_space.cpu.sources import Block, KRange, Prefetch, ReductionStep, RowFetch, RowSource
from dietcode.search_space.partition import ceildiv
from dietcode.search_space.tir import i64, load, workspace


@dataclass(frozen=True)
class LineBuffer(RowSource):
    """The lines of one task, see the module's description.

    Attributes
    ----------
    lines : Lines
        The operand as lines.
    length, pitch, height : int64 expressions
        Elements of a line without and with its padding, and lines of the ring.
    copy : Copy
        To the ring, ``[height, pitch]``.
    first_slot : int64 expression
        Slot of the first line under the window at this batch index.
    next_line : int64 expression
        Offset in the operand of the lines that come next.
    """

    kernel: Kernel
    operand: str
    lines: Lines
    length: Any
    pitch: Any
    height: Any
    copy: Copy
    first_slot: Any = None
    next_line: Any = None

    def _extent(self, *indices: str) -> Any:
        return self.kernel.memory.value(size_of(self.kernel.problem, indices))

    @property
    def _width(self) -> Any:
        """Elements of one position of a line, int64."""
        return self._extent(*self.lines.channels)

    @property
    def _end(self) -> Any:
        """Elements of the padding before a line, int64."""
        return self._width * self.lines.along.padding

    def clear_ends(self) -> None:
        """Write the padding of every line, which nothing overwrites."""
        along = self.lines.along
        if along.padding or along.end:
            with T.serial(i64(0), self.height) as slot:
                if along.padding:
                    self.copy.clear(slot * self.pitch, self._end)
                if along.end:
                    self.copy.clear(slot * self.pitch + self._end + self.length, self._width * along.end)

    def advance(self, batch: Any, first: Any) -> LineBuffer:
        """Copy the lines under the window at `batch`, but for those that the previous batch index has copied.

        The task's batch indices begin at `first`.
        """
        problem, memory, bind = self.kernel.problem, self.kernel.memory, self.kernel.ops.bind
        view, across = memory.views[self.operand], self.lines.across
        source = bind(memory.offset(view, problem.batch, batch))
        if across is None:
            self._copy_line(source, self._end)
            return self
        position = bind(tirx.truncmod(batch, self._extent(across.output)))
        top = bind(position * across.stride)
        first_slot = bind(tirx.truncmod(top, self.height))
        starts = tirx.any(batch == first, position == 0)
        stride = memory.value(view.axis_strides[across.axis])
        next_line = bind(source + (self.height - across.padding) * stride)
        now = replace(self, first_slot=first_slot, next_line=next_line)
        known = tirx.Select(starts, i64(0), tirx.max(self.height - across.stride, i64(0)))
        with T.serial(bind(known), self.height) as line:
            offset = bind(now._slot(line) * self.pitch + self._end)
            index = bind(top + line - across.padding)
            with T.If(tirx.all(index >= 0, index < self._extent(across.axis))):
                with T.Then():
                    self._copy_line(bind(source + (line - across.padding) * stride), offset)
                with T.Else():
                    self.copy.clear(offset, self.length)
        return now

    def _copy_line(self, source: Any, offset: Any) -> None:
        view = self.kernel.memory.views[self.operand]
        axes = (self.lines.along.axis, *self.lines.channels)
        self.copy.groups(source, offset, replace(view, strides=view.axis_strides).groups(axes))

    def _slot(self, line: Any) -> Any:
        """Return the slot of a line, counted from the first under the window."""
        slot = self.first_slot + line
        return tirx.Select(slot < self.height, slot, slot - self.height)

    @contextmanager
    def k_loop(self, k_range: KRange) -> Iterator[ReductionStep]:
        """Emit loops over the reduction; the offset of a step is that of row 0 in the ring."""
        bind, along = self.kernel.ops.bind, self.lines.along
        kernel_width, width = self._extent(along.kernel), self._width
        with self._window_lines() as (line, start):
            if along.dilation == 1:  # positions of the window follow each other in memory
                length = kernel_width * width
                first = bind(line * length)
                with T.serial(i64(0), length) as k:
                    yield ReductionStep(first + k, start + k)
                return
            with T.serial(i64(0), kernel_width) as s:
                begin = bind(start + s * (width * along.dilation))
                first = bind((line * kernel_width + s) * width)
                with T.serial(i64(0), width) as k:
                    yield ReductionStep(first + k, begin + k)

    @contextmanager
    def _window_lines(self) -> Iterator[tuple[Any, Any]]:
        """Yield the position of the window across lines, and the offset of its line."""
        across = self.lines.across
        if across is None:
            yield i64(0), i64(0)
            return
        with T.serial(i64(0), self._extent(across.kernel)) as line:
            yield line, self.kernel.ops.bind(self._slot(line * across.dilation) * self.pitch)

    def next_rows(self, at: Block) -> Sequence[Prefetch]:
        """Prefetch a tile's part of the lines that come next, which a copy would wait for otherwise."""
        if self.lines.across is None:
            return ()
        memory, along = self.kernel.memory, self.lines.along
        step = memory.value(memory.views[self.operand].axis_strides[along.axis])
        step = step * (along.stride * self.lines.across.stride)
        pace = ceildiv(step * at.rows, self.kernel.reduction, self.kernel.ops)
        return (Prefetch(memory.buffers[self.operand], self.next_line + at.row * step, pace),)

    def fetch(self, at: Block, rows: list[Any]) -> RowFetch:
        """Fetch from the ring."""
        pitch = self._width * self.lines.along.stride
        return lambda i, step: load(self.copy.target, [rows[i] * pitch + step.offset], 1)


@contextmanager
def line_buffer(kernel: Kernel, operand: str) -> Iterator[LineBuffer]:
    """Yield a task's ring of lines, whose ends are zero already."""
    lines, bind = lines_of(kernel.problem), kernel.ops.bind
    assert lines is not None

    def extent(*indices: str) -> Any:
        return kernel.memory.value(size_of(kernel.problem, indices))

    width = extent(*lines.channels)
    length = bind(extent(lines.along.axis) * width)
    along = lines.along
    ends = width * (along.padding + along.end) if along.padding != along.end else 2 * (width * along.padding)
    pitch = bind(length + ends)
    height: Any = i64(1)
    if lines.across is not None:
        height = (extent(lines.across.kernel) - 1) * lines.across.dilation + 1
    with workspace(height * pitch) as ring:
        source = LineBuffer(kernel, operand, lines, length, pitch, height, Copy(kernel, operand, ring))
        source.clear_ends()
        yield source
