"""Loop partitioning (paper, Figure 7c)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.kernel import Accumulators, Kernel
from dietcode.search_space.cpu.limits import MOST_VECTORS
from dietcode.search_space.cpu.output import Output
from dietcode.search_space.cpu.sources import Block, Product
from dietcode.search_space.cpu.tails.base import Tails
from dietcode.search_space.partition import ceildiv
from dietcode.search_space.tir import i64


def tail_heights(remainders: frozenset[int]) -> list[int]:
    """Return the heights in the binary decompositions of all `remainders`, the tallest first.

    ``{5} -> [4, 1]``; ``{0, 1, … 5} -> [4, 2, 1]``.
    """
    tallest = max(remainders).bit_length()
    return [
        1 << bit for bit in reversed(range(tallest)) if any(remainder >> bit & 1 for remainder in remainders)
    ]


class LoopPartitioning(Tails):
    """Tiles inside take the plain body; what is left over is computed exactly, by smaller register tiles.

    Left-over rows are decomposed in binary, left-over columns into whole vectors. Bodies that fixed extents
    make impossible are not generated.
    """

    @property
    def spilled_vectors(self) -> int:
        """Vectors of a tile, where none can be written in vectors."""
        return self.kernel.vectors if self.kernel.spills else 0

    def tile(self, at: Block, products: Sequence[Product], output: Output) -> None:
        """Emit all rows at once where they exist, else smaller bodies of them."""
        bodies = _Bodies(self, products, output, output.accumulators(at, products))
        left: Any = self.kernel.ops.bind(self.kernel.rows - at.row) if self.cuts_rows else None
        _either(
            _has_whole(self.kernel.rows, at.rows),
            self.cuts_rows,
            lambda: left >= at.rows,
            lambda: bodies.all_rows(at),
            lambda: bodies.some_rows(at, left),
        )


@dataclass(frozen=True)
class _Bodies:
    """The bodies of one tile.

    Attributes
    ----------
    accumulators : Accumulators
        Of the whole tile; its smaller bodies share them, as each is an allocation.
    """

    tails: Tails
    products: Sequence[Product]
    output: Output
    accumulators: Accumulators

    @property
    def kernel(self) -> Kernel:
        """The kernel of the tails."""
        return self.tails.kernel

    def some_rows(self, at: Block, left: Any) -> None:
        """Emit a body for each power of two in `left`, below those of all larger ones."""
        for rows in tail_heights(self.tails.row_remainders):
            with T.If(tirx.truncmod(tirx.truncdiv(left, rows), 2) == 1), T.Then():
                offset = tirx.truncdiv(left, 2 * rows) * (2 * rows)
                slot = at.slot + offset * self.kernel.micro_kernel.columns
                self.all_rows(replace(at, row=at.row + offset, rows=rows, slot=slot))

    def all_rows(self, at: Block) -> None:
        """Emit all columns at once where they exist, else the vectors that do."""
        kernel = self.kernel
        width = kernel.micro_kernel.columns
        _either(
            _has_whole(kernel.columns, width),
            self.tails.cuts_columns,
            lambda: at.column + width <= kernel.columns,
            lambda: self._whole(at),
            lambda: self._vectors(at),
        )

    def _whole(self, at: Block) -> None:
        accumulators = self._compute(at, cut=False)
        self.output.finish(accumulators, at, lambda: self.output.write_back(accumulators, at))

    def _vectors(self, at: Block) -> None:
        """Emit a body for each number of vectors where they are few, else one that is repeated."""
        kernel, left = self.kernel, self.kernel.columns - at.column
        if kernel.vectors > MOST_VECTORS:
            with T.serial(i64(0), ceildiv(left, kernel.lanes, kernel.ops)) as v:
                slot, column = at.slot + v * kernel.lanes, at.column + v * kernel.lanes
                self._cut(replace(at, column=column, panel=at.panel + v, vectors=1, slot=slot))
            return
        remainders = self.tails.column_remainders
        possible = sorted(
            {-(-remainder // kernel.lanes) for remainder in remainders if remainder}, reverse=True
        )
        with ExitStack() as chain:
            for vectors in possible[:-1]:
                chain.enter_context(T.If(left > (vectors - 1) * kernel.lanes))
                with T.Then():
                    self._cut(replace(at, vectors=vectors))
                chain.enter_context(T.Else())
            self._cut(replace(at, vectors=possible[-1]))

    def _cut(self, at: Block) -> None:
        """Emit a block whose last vector the last column may cut."""
        kernel, tails, output = self.kernel, self.tails, self.output
        accumulators = self._compute(at, cut=tails.cuts_vectors)

        def write() -> None:
            left = kernel.columns - at.column
            width = at.vectors * kernel.lanes
            _either(
                any(remainder % kernel.lanes == 0 for remainder in tails.column_remainders if remainder),
                tails.cuts_vectors,
                lambda: left >= width,
                lambda: output.write_back(accumulators, at),
                lambda: output.write_columns(accumulators, at, left),
            )

        output.finish(accumulators, at, write)

    def _compute(self, at: Block, cut: bool) -> Accumulators:
        """Emit a block that reads nothing past the last row or panel; return its accumulators."""
        accumulators = [[row[: at.vectors] for row in own[: at.rows]] for own in self.accumulators]
        self.output.start(accumulators, at)
        self.output.prefetch(at)
        rows = [at.row + i for i in range(at.rows)]
        panels = [at.panel + v for v in range(at.vectors)]
        is_whole = at.rows == self.kernel.micro_kernel.rows
        self.kernel.accumulate(accumulators, self.products, at, rows, panels, cut, next_rows=is_whole)
        return accumulators


def _has_whole(size: Any, extent: int) -> bool:
    """Return whether a whole tile may fit `size`."""
    return not isinstance(size, tirx.IntImm) or int(size) >= extent


def _either(
    may_be_whole: bool,
    may_be_cut: bool,
    is_whole: Callable[[], Any],
    whole: Callable[[], None],
    cut: Callable[[], None],
) -> None:
    """Emit one of two bodies, or a branch between them where both are possible."""
    if not may_be_cut:
        whole()
    elif not may_be_whole:
        cut()
    else:
        with T.If(is_whole()):
            with T.Then():
                whole()
            with T.Else():
                cut()
