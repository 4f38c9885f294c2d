"""How a task keeps the lines that a window sees, so that each element of the row operand is copied once.

    for batch index, of which the last letter is the window's place p across lines:
      copy the lines that p - 1 did not see
      for column tile, row tile:
        for r, (s, c): acc += lines[slot(p, r)][q + s][c] · packed_B[…, (r, s, c), lanes]

Lines lie in a ring: line ``h``, counted with the padding, in slot ``h mod height``, where `height` lines are
what the window spans. A line has the padding at its ends, so that no tile sees an edge of the operand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import lines_of, size_of
from dietcode.search_space.cpu.copying import copy_runs
from dietcode.search_space.cpu.kernel import Block, Kernel
from dietcode.search_space.partition import ceildiv
from dietcode.search_space.tir import DTYPE, i64, load, store, workspace


@contextmanager
def kept_lines(kernel: Kernel) -> Iterator[KeptLines]:
    """A task's ring of lines, while its user runs; their ends are zero already."""
    lines = KeptLines(kernel)
    with workspace(lines.height * lines.pitch) as lines.buffer:
        lines.clear_ends()
        yield lines


class KeptLines:
    """The lines of one task, see the module's description.

    Attributes
    ----------
    height, pitch : int64 expressions
        Lines of the ring, and elements of each.
    buffer : Buffer
        ``[height, pitch]``.
    """

    buffer: Any = None
    _first: Any = None  # slot of the first line that is seen at this batch index
    _next: Any = None  # where in the operand the lines begin that are seen next
    _place: Any = None  # in the buffer, of row 0 at this step of the reduction

    def __init__(self, kernel: Kernel) -> None:
        lines = lines_of(kernel.problem)
        assert lines is not None
        self.kernel, self.along, self.across = kernel, lines.along, lines.across
        self._axes = (self.along.axis, *lines.channels)  # of a line
        self._width = self._extent(*lines.channels)
        self._length = kernel.ops.bind(self._extent(self.along.axis) * self._width)
        self._end = self._width * self.along.padding
        self.pitch = kernel.ops.bind(self._length + 2 * self._end)
        self.height: Any = i64(1)
        if self.across is not None:
            self.height = (self._extent(self.across.kernel) - 1) * self.across.dilation + 1

    def _extent(self, *letters: str) -> Any:
        return self.kernel.memory.value(size_of(self.kernel.problem, letters))

    def _clear(self, place: Any, length: Any) -> None:
        with T.serial(i64(0), length) as k:
            store(self.buffer, tirx.const(0, DTYPE), [place + k], 1)

    def clear_ends(self) -> None:
        """Write the padding of every line; nothing else is written there."""
        if self.along.padding:
            with T.serial(i64(0), self.height) as slot:
                self._clear(slot * self.pitch, self._end)
                self._clear(slot * self.pitch + self._end + self._length, self._end)

    def see(self, batch: Any, first: Any) -> None:
        """Copy what is seen at `batch` and was not at the batch index before it, if that was not before
        `first`.
        """
        problem, memory, bind = self.kernel.problem, self.kernel.memory, self.kernel.ops.bind
        source = bind(memory.offset(memory.views[problem.row_operand], problem.batch, batch))
        if self.across is None:
            self._copy(source, self._end)
            return
        across = self.across
        position = bind(tirx.truncmod(batch, self._extent(across.output)))
        top = bind(position * across.stride)
        self._first = bind(tirx.truncmod(top, self.height))
        starts = tirx.any(batch == first, position == 0)
        step = memory.value(memory.views[problem.row_operand].steps[across.axis])
        self._next = bind(source + (self.height - across.padding) * step)
        known = tirx.Select(starts, i64(0), tirx.max(self.height - across.stride, i64(0)))
        with T.serial(bind(known), self.height) as line:
            place = bind(self._slot(line) * self.pitch + self._end)
            index = bind(top + line - across.padding)
            with T.If(tirx.all(index >= 0, index < self._extent(across.axis))):
                with T.Then():
                    self._copy(bind(source + (line - across.padding) * step), place)
                with T.Else():
                    self._clear(place, self._length)

    def _copy(self, source: Any, place: Any) -> None:
        operand = self.kernel.problem.row_operand
        view = self.kernel.memory.views[operand]
        runs = replace(view, strides=view.steps).groups(self._axes)
        copy_runs(self.kernel, operand, source, self.buffer, place, runs)

    def _slot(self, line: Any) -> Any:
        """Slot of a line, counted from the first that is seen now."""
        slot = self._first + line
        return tirx.Select(slot < self.height, slot, slot - self.height)

    @contextmanager
    def steps(self) -> Iterator[Any]:
        """Loops over the reduction, in its order."""
        bind, along = self.kernel.ops.bind, self.along
        kernel_width = self._extent(along.kernel)
        with self._lines() as (line, start):
            if along.dilation == 1:  # places of the window follow each other in memory
                length = kernel_width * self._width
                first = bind(line * length)
                with T.serial(i64(0), length) as k:
                    self._place = start + k
                    yield first + k
                return
            with T.serial(i64(0), kernel_width) as s:
                begin = bind(start + s * (self._width * along.dilation))
                first = bind((line * kernel_width + s) * self._width)
                with T.serial(i64(0), self._width) as k:
                    self._place = begin + k
                    yield first + k

    @contextmanager
    def _lines(self) -> Iterator[tuple[Any, Any]]:
        """Places of the window across lines, and where its line begins."""
        if self.across is None:
            yield i64(0), i64(0)
            return
        with T.serial(i64(0), self._extent(self.across.kernel)) as line:
            yield line, self.kernel.ops.bind(self._slot(line * self.across.dilation) * self.pitch)

    def next_part(self, at: Block) -> list[tuple[Any, Any, Any]]:
        """A tile's part of the lines that are seen next, for `ahead.next_rows` to ask for: only few of them
        would be there before a copy waits for them.
        """
        if self.across is None:
            return []
        operand, memory = self.kernel.problem.row_operand, self.kernel.memory
        step = memory.value(memory.views[operand].steps[self.along.axis])
        step = step * (self.along.stride * self.across.stride)
        pace = ceildiv(step * at.rows, self.kernel.reduction, self.kernel.ops)
        return [(memory.buffers[operand], self._next + at.row * step, pace)]

    def load(self, row: Any) -> Any:
        """``A[row, k]`` at this step of the reduction."""
        return load(self.buffer, [row * (self._width * self.along.stride) + self._place], 1)
