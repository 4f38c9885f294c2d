"""The sources of what a tile reads: rows and columns of operands, wherever they lie, and their prefetches.

Sources are frozen. A batch index, a block of rows or a tile of columns, which the loops around a tile fix, is
passed to a method of the source that emits what has to happen there, a copy for example, and returns the
source for what is inside that loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from tvm.tirx.script.builder import ir as T

from dietcode.search_space.tir import FROM_L2, prefetch


@dataclass(frozen=True)
class KRange:
    """The range ``low…high`` of the flattened reduction that is computed now."""

    low: Any
    high: Any


@dataclass(frozen=True)
class ReductionStep:
    """One step of the reduction.

    Attributes
    ----------
    k : int64 expression
        Its flattened index.
    offset : int64 expression
        Offset of the step, for a source that has a layout of its own.
    """

    k: Any
    offset: Any = 0


@dataclass(frozen=True)
class Block:
    """Rows and vectors of the output that are accumulated in registers at once.

    Attributes
    ----------
    batch, row, column, panel : int64 expressions
        Flattened batch index, first row, first column, index of the first panel.
    rows, vectors : int
        Extents.
    k_range : KRange
        The range of the reduction that is added.
    slot : int64 expression
        Offset of the block among the task's partial sums, in elements.
    """

    batch: Any
    row: Any
    column: Any
    panel: Any
    rows: int
    vectors: int
    k_range: KRange
    slot: Any = 0


@dataclass(frozen=True)
class ColumnTile:
    """A tile of columns: its flattened batch index and its first column."""

    batch: Any
    column: Any


@dataclass(frozen=True)
class Prefetch:
    """A cache line of `buffer` that each step of the reduction prefetches.

    A core's own prefetchers start anew with every row and every panel, and cannot know the next tile.

    Attributes
    ----------
    offset, stride : int64 expressions
        Offset of the element where k is 0, and elements from one step to the next.
    far : bool
        Whether L2 is near enough, since the next tile does not read it.
    """

    buffer: Any
    offset: Any
    stride: Any
    far: bool = False

    def emit(self, k: Any) -> None:
        """Emit the prefetch of one step."""
        prefetch(self.buffer, self.offset + k * self.stride, FROM_L2 if self.far else 0)


RowFetch: TypeAlias = Callable[[int, ReductionStep], Any]
PanelFetch: TypeAlias = Callable[[int, Any], Any]


class RowSource(ABC):
    """A source of the rows of an operand."""

    def advance(self, batch: Any, first: Any) -> RowSource:
        """Emit the begin of a batch index, `first` being the task's first; return the source within it."""
        return self

    def copy_rows(self, batch: Any, first: Any, last: Any) -> RowSource:
        """Emit the begin of a block of the rows ``first…last``; return the source within it."""
        return self

    @abstractmethod
    def fetch(self, at: Block, rows: list[Any]) -> RowFetch:
        """Return ``(i, step) -> A[rows[i], step]``, where `rows` are flattened indices."""

    def next_rows(self, at: Block) -> Sequence[Prefetch]:
        """Return prefetches of what is read after a tile, where that is contiguous."""
        return ()

    @contextmanager
    def k_loop(self, k_range: KRange) -> Iterator[ReductionStep]:
        """Emit the loop, or loops, over a range of the reduction, in its order."""
        with T.serial(k_range.low, k_range.high) as k:
            yield ReductionStep(k)


class ColumnSource(ABC):
    """A source of the columns of an operand, a vector of them at a time."""

    def pack(self, tile: ColumnTile, k_range: KRange) -> ColumnSource:
        """Emit the begin of a tile of columns; return the source within it."""
        return self

    @abstractmethod
    def fetch(self, at: Block, panels: list[Any], cut: bool) -> PanelFetch:
        """Return ``(v, k) -> B[lanes of panels[v], k]``; `cut`: the last column may be within a panel."""

    def next_columns(
        self, now: ColumnTile, after: ColumnTile, k_range: KRange, turn: Any
    ) -> Sequence[Prefetch]:
        """Return prefetches of a part of the columns that are read, or packed, after those of `now`.

        Each row of tiles prefetches one vector, or as many bytes, until all are there.

        Parameters
        ----------
        now, after : ColumnTile
            The tile of columns, and the one that follows it.
        k_range : KRange
            The range of the reduction that is computed now.
        turn : int64 expression
            How many tiles of rows came before this one.
        """
        return ()


@dataclass(frozen=True)
class Product:
    """Rows times columns, as one tile computes it: ``acc[j] += A · B[j]`` for each of its column operands.

    Attributes
    ----------
    rows : RowSource
    columns : tuple of ColumnSource
        One for each set of accumulators.
    next_columns : tuple of Prefetch
        What each step prefetches of the columns that follow.
    """

    rows: RowSource
    columns: tuple[ColumnSource, ...]
    next_columns: tuple[Prefetch, ...] = ()
