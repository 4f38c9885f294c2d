"""Columns of an operand: packed ahead of time, packed by the tasks, or read where they lie."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx

from dietcode.search_space.access import ONE, has_windows, size_of
from dietcode.search_space.cpu.kernel import Kernel
from dietcode.search_space.cpu.panels import pack_panels
from dietcode.search_space.cpu.sources import Block, ColumnSource, ColumnTile, KRange, PanelFetch, Prefetch
from dietcode.search_space.tir import first_lanes, i64, load, load_masked, workspace

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class _Columns(ColumnSource):
    """Base of the three: decides when to prefetch the columns that come next."""

    kernel: Kernel
    operand: str

    def next_columns(
        self, now: ColumnTile, after: ColumnTile, k_range: KRange, turn: Any
    ) -> Sequence[Prefetch]:
        """Prefetch nothing where the columns would evict what is in L2."""
        if self._overflows_l2():
            return ()
        k, tile = self._following(now, after, k_range)
        column = tile.column + tirx.min(turn, self.kernel.vectors - 1) * self.kernel.lanes
        return self._prefetches(ColumnTile(tile.batch, column), k - k_range.low)

    @abstractmethod
    def _prefetches(self, tile: ColumnTile, k: Any) -> Sequence[Prefetch]:
        """Return prefetches of a tile's first vector, from `k` steps behind the first of the loop."""

    def _following(self, now: ColumnTile, after: ColumnTile, k_range: KRange) -> tuple[Any, ColumnTile]:
        """Return the step of the reduction that is next, and its columns: the same, while there are more."""
        if not self.kernel.k_tile:
            return i64(0), after
        bind, high = self.kernel.ops.bind, k_range.high
        more = high < self.kernel.reduction
        return bind(tirx.Select(more, high, i64(0))), ColumnTile(
            bind(tirx.Select(more, now.batch, after.batch)), bind(tirx.Select(more, now.column, after.column))
        )

    def _overflows_l2(self) -> bool:
        """Whether the columns that come next take more than a quarter of L2, of which half is for rows."""
        kernel = self.kernel
        num_steps: Any = i64(kernel.k_tile) if kernel.k_tile else kernel.reduction
        if not isinstance(num_steps, tirx.IntImm):
            return False
        return int(num_steps) * kernel.micro_kernel.columns * _FLOAT_BYTES > kernel.limits.l2_bytes // 4


@dataclass(frozen=True)
class PackedAhead(_Columns):
    """``packed[b, n // lanes, k, n % lanes]``, see `dietcode.search_space.cpu.packing`."""

    def _offset(self, batch: Any, panel: Any) -> Any:
        """Return the offset of a panel."""
        memory, kernel = self.kernel.memory, self.kernel
        start = memory.offset(memory.panels_view, kernel.problem.batch, batch) * kernel.panels
        return (start + panel) * memory.reduction * kernel.lanes

    def fetch(self, at: Block, panels: list[Any], cut: bool) -> PanelFetch:
        """Fetch whole panels."""
        buffer, lanes = self.kernel.memory.buffers[self.operand], self.kernel.lanes
        starts = [self._offset(at.batch, panel) for panel in panels]
        return lambda v, k: load(buffer, [starts[v] + k * lanes], lanes)

    def next_columns(
        self, now: ColumnTile, after: ColumnTile, k_range: KRange, turn: Any
    ) -> Sequence[Prefetch]:
        """Prefetch nothing where the whole operand stays in L2."""
        return () if self._stays_in_l2() else super().next_columns(now, after, k_range, turn)

    def _stays_in_l2(self) -> bool:
        """Whether the whole operand takes less than half of the cache, beside a block of rows."""
        sizes = (self.kernel.columns, self.kernel.reduction)
        if not all(isinstance(size, tirx.IntImm) for size in sizes):
            return False
        return int(sizes[0]) * int(sizes[1]) * _FLOAT_BYTES <= self.kernel.limits.l2_bytes // 2

    def _prefetches(self, tile: ColumnTile, k: Any) -> Sequence[Prefetch]:
        kernel, lanes = self.kernel, self.kernel.lanes
        start = self._offset(tile.batch, tirx.truncdiv(tile.column, lanes)) + k * lanes
        buffer = kernel.memory.buffers[self.operand]
        return (Prefetch(buffer, kernel.ops.bind(start), lanes, far=True),)


@dataclass(frozen=True)
class ColumnsInPlace(_Columns):
    """Columns next to each other where the operand lies, by masked loads at their end."""

    def fetch(self, at: Block, panels: list[Any], cut: bool) -> PanelFetch:
        """Fetch by the strides of the operand."""
        problem, memory, lanes = self.kernel.problem, self.kernel.memory, self.kernel.lanes
        view, buffer = memory.views[self.operand], memory.buffers[self.operand]
        start = memory.offset(view, problem.batch, at.batch)
        starts = [start + memory.offset(view, problem.columns, panel * lanes) for panel in panels]

        def fetch(v: int, k: Any) -> Any:
            offset = starts[v] + memory.offset(view, problem.reduction, k)
            if not cut:
                return load(buffer, [offset], lanes)
            mask = first_lanes(self.kernel.columns - panels[v] * lanes, lanes)
            return load_masked(buffer, offset, lanes, mask)

        return fetch

    def _prefetches(self, tile: ColumnTile, k: Any) -> Sequence[Prefetch]:
        """Prefetch where columns or steps are next to each other."""
        kernel, problem, memory = self.kernel, self.kernel.problem, self.kernel.memory
        view, buffer = memory.views[self.operand], memory.buffers[self.operand]
        across, along = view.stride(problem.columns), view.stride(problem.reduction)
        if has_windows(problem, self.operand) or across is None or along is None:
            return ()
        start = memory.offset(view, problem.batch, tile.batch) + tile.column * memory.value(across)
        if across == ONE:
            stride = memory.value(along)
            return (Prefetch(buffer, kernel.ops.bind(start + k * stride), stride, far=True),)
        if along == ONE and across == size_of(problem, problem.reduction) and not kernel.k_tile:
            return (Prefetch(buffer, kernel.ops.bind(start), kernel.lanes, far=True),)
        return ()


@dataclass(frozen=True)
class PackedByTasks(ColumnsInPlace):
    """Columns that each task packs, one tile of them at a time, right before they are read.

    Attributes
    ----------
    buffer : Buffer
        ``[vectors, k_tile or reduction, lanes]``.
    first_column : int64 expression
        Of the tile in the buffer.
    """

    buffer: Any = None
    first_column: Any = None

    @property
    def pitch(self) -> Any:
        """Steps of the reduction that a panel has room for, int64."""
        return i64(self.kernel.k_tile) if self.kernel.k_tile else self.kernel.reduction

    def pack(self, tile: ColumnTile, k_range: KRange) -> PackedByTasks:
        """Pack a tile; return the source with that tile."""
        pack_panels(self.kernel, self.operand, self.buffer, self.pitch, tile, k_range)
        return replace(self, first_column=tile.column)

    def fetch(self, at: Block, panels: list[Any], cut: bool) -> PanelFetch:
        """Fetch whole panels."""
        lanes, low, pitch = self.kernel.lanes, at.k_range.low, self.pitch
        first = tirx.truncdiv(self.first_column, lanes)
        return lambda v, k: load(self.buffer, [((panels[v] - first) * pitch + (k - low)) * lanes], lanes)


@contextmanager
def open_columns(kernel: Kernel, operand: str) -> Iterator[ColumnSource]:
    """Yield the source of a task's columns, with a buffer for what the task packs."""
    if kernel.problem.column_operand_constant:
        yield PackedAhead(kernel, operand)
    elif kernel.micro_kernel.direct:
        yield ColumnsInPlace(kernel, operand)
    else:
        source = PackedByTasks(kernel, operand)
        with workspace(source.pitch * kernel.micro_kernel.columns) as buffer:
            yield replace(source, buffer=buffer)
