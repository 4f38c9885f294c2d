"""What a tile reads: operands from wherever their rows and columns lie, and what is prefetched of them.

Sources are frozen. What the loops around a tile fix, a batch index, a block of rows or a tile of columns, is
told to a source by a method that emits what has to happen there, a copy for example, and returns the source
from there on.
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
        What a source that lays the reduction out in its own way adds for it.
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
        What is added of the reduction.
    slot : int64 expression
        Where in the task's partial sums the block lies, in elements.
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
    """A cache line of `buffer` that each step of the reduction asks for.

    A core's own prefetchers start anew with every row and every panel, and know nothing of the tile that
    comes next.

    Attributes
    ----------
    offset, stride : int64 expressions
        Of the element that is asked for where k is 0, and from one step to the next.
    far : bool
        Whether L2 is near enough, since it is not read by the next tile.
    """

    buffer: Any
    offset: Any
    stride: Any
    far: bool = False

    def emit(self, k: Any) -> None:
        """Emit the request of one step."""
        prefetch(self.buffer, self.offset + k * self.stride, FROM_L2 if self.far else 0)


RowFetch: TypeAlias = Callable[[int, ReductionStep], Any]
PanelFetch: TypeAlias = Callable[[int, Any], Any]


class RowSource(ABC):
    """Where the rows of an operand are read."""

    def advance(self, batch: Any, first: Any) -> RowSource:
        """Emit what a batch index begins with, `first` being the task's first; the source within it."""
        return self

    def copy_rows(self, batch: Any, first: Any, last: Any) -> RowSource:
        """Emit what a block of the rows ``first…last`` begins with; the source within it."""
        return self

    @abstractmethod
    def fetch(self, at: Block, rows: list[Any]) -> RowFetch:
        """``(i, step) -> A[rows[i], step]``, where `rows` are flattened indices."""

    def next_rows(self, at: Block) -> Sequence[Prefetch]:
        """What is read after a tile, where it is one piece of memory."""
        return ()

    @contextmanager
    def steps(self, k_range: KRange) -> Iterator[ReductionStep]:
        """The loop, or loops, over a range of the reduction, in its order."""
        with T.serial(k_range.low, k_range.high) as k:
            yield ReductionStep(k)


class ColumnSource(ABC):
    """Where the columns of an operand are read, a vector of them at a time."""

    def pack(self, tile: ColumnTile, k_range: KRange) -> ColumnSource:
        """Emit what a tile of columns begins with; the source within it."""
        return self

    @abstractmethod
    def fetch(self, at: Block, panels: list[Any], cut: bool) -> PanelFetch:
        """``(v, k) -> B[lanes of panels[v], k]``; `cut` where the last column may be within a panel."""

    def next_columns(
        self, now: ColumnTile, after: ColumnTile, k_range: KRange, turn: Any
    ) -> Sequence[Prefetch]:
        """A part of what is read, or packed, once all rows have met the columns of `now`.

        Each row of tiles asks for one vector of it, or a piece as large, until they have asked for all.

        Parameters
        ----------
        now, after : ColumnTile
            The tile of columns, and the one that follows it.
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
        What each step asks for of the columns that follow.
    """

    rows: RowSource
    columns: tuple[ColumnSource, ...]
    next_columns: tuple[Prefetch, ...] = ()
