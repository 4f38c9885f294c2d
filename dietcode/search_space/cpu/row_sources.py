"""Sources of rows: the operand itself, or a copy of a block of rows next to each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ONE, must_gather, size_of
from dietcode.search_space.cpu.copying import Copy
from dietcode.search_space.cpu.kernel import Kernel
from dietcode.search_space.cpu.sources import Block, Prefetch, RowFetch, RowSource
from dietcode.search_space.partition import ceildiv
from dietcode.search_space.tir import i64, load, workspace


@dataclass(frozen=True)
class RowsInPlace(RowSource):
    """Rows where the operand lies."""

    kernel: Kernel
    operand: str

    def fetch(self, at: Block, rows: list[Any]) -> RowFetch:
        """Fetch by the strides of the operand."""
        problem, memory = self.kernel.problem, self.kernel.memory
        view, buffer = memory.views[self.operand], memory.buffers[self.operand]
        start = memory.offset(view, problem.batch, at.batch)
        starts = [start + memory.offset(view, problem.rows, row) for row in rows]
        return lambda i, step: load(buffer, [starts[i] + memory.offset(view, problem.reduction, step.k)], 1)

    def next_rows(self, at: Block) -> Sequence[Prefetch]:
        """Prefetch the rows below, where they follow each other in memory."""
        problem, memory = self.kernel.problem, self.kernel.memory
        view, reduction = memory.views[self.operand], size_of(problem, problem.reduction)
        if (
            self.kernel.k_tile
            or view.stride(problem.reduction) != ONE
            or view.stride(problem.rows) != reduction
        ):
            return ()
        start = memory.offset(view, problem.batch, at.batch)
        start = start + memory.offset(view, problem.rows, at.row + at.rows)
        return (Prefetch(memory.buffers[self.operand], start, at.rows),)


@dataclass(frozen=True)
class GatheredRows(RowSource):
    """Rows that each task copies next to each other first.

    Attributes
    ----------
    buffer : Buffer
        ``[num_rows, reduction]``, or ``[ranges, num_rows, k_tile]``.
    num_rows, first_row : int64 expressions
        Rows that there is room for, and the first one in the buffer.
    k_tile : int
        Where it is not 0, rows lie range by range of the reduction.
    """

    kernel: Kernel
    operand: str
    buffer: Any
    num_rows: Any
    k_tile: int
    first_row: Any = None

    def copy_rows(self, batch: Any, first: Any, last: Any) -> GatheredRows:
        """Copy the block; return the source of its rows."""
        copy = Copy(self.kernel, self.operand, self.buffer)
        if self.k_tile:
            self._copy_ranges(copy, batch, first, last)
        else:
            with T.serial(first, last) as row:
                copy.row(batch, row, (row - first) * self.kernel.reduction)
        return replace(self, first_row=first)

    def _copy_ranges(self, copy: Copy, batch: Any, first: Any, last: Any) -> None:
        """Emit ``buffer[range, row - first, k - low] = A[row, k]`` for rows ``first…last``, all ranges."""
        problem, memory, bind = self.kernel.problem, self.kernel.memory, self.kernel.ops.bind
        view = memory.views[self.operand]
        start = bind(memory.offset(view, problem.batch, batch))
        stride = view.stride(problem.reduction)
        assert stride is not None
        with self.kernel.k_ranges() as now, T.serial(first, last) as row:
            source = bind(start + memory.offset(view, problem.rows, row) + now.low * memory.value(stride))
            offset = bind(now.low * self.num_rows + (row - first) * i64(self.k_tile))
            copy.run(source, now.high - now.low, stride, offset)

    def fetch(self, at: Block, rows: list[Any]) -> RowFetch:
        """Fetch from the copy."""
        low = self._low(at)
        return lambda i, step: load(self.buffer, [self._offset(at, rows[i]) + (step.k - low)], 1)

    def next_rows(self, at: Block) -> Sequence[Prefetch]:
        """Prefetch the rows below."""
        if self.kernel.k_tile and not self.k_tile:
            return ()
        offset = self._offset(at, at.row + at.rows) - self._low(at) * at.rows
        return (Prefetch(self.buffer, offset, at.rows),)

    def _low(self, at: Block) -> Any:
        """Return the first step of the reduction of the part that is read now."""
        return at.k_range.low if self.k_tile else 0

    def _offset(self, at: Block, row: Any) -> Any:
        """Return the offset of a row, or of the part of it that is read now."""
        pitch = i64(self.k_tile) if self.k_tile else self.kernel.reduction
        return self._low(at) * self.num_rows + (row - self.first_row) * pitch


@contextmanager
def gathered_rows(kernel: Kernel, operand: str, num_rows: Any) -> Iterator[GatheredRows]:
    """Yield a source with a buffer for the copies of one task.

    Rows that have to be gathered in any case are copied as a whole, others range by range.
    """
    k_tile = 0 if must_gather(kernel.problem) else kernel.k_tile
    num_rows, length = kernel.ops.bind(num_rows), kernel.reduction
    if k_tile:
        length = ceildiv(kernel.reduction, k_tile, kernel.ops) * k_tile
    with workspace(num_rows * length) as buffer:
        yield GatheredRows(kernel, operand, buffer, num_rows, k_tile)
