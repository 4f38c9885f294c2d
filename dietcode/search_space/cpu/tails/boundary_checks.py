"""Out-of-boundary checks (paper, Figure 7a): what the other three are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.kernel import Accumulators, Kernel
from dietcode.search_space.cpu.output import Output
from dietcode.search_space.cpu.sources import (
    Block,
    ColumnSource,
    KRange,
    PanelFetch,
    Prefetch,
    Product,
    ReductionStep,
    RowFetch,
    RowSource,
)
from dietcode.search_space.cpu.tails.base import Tails
from dietcode.search_space.tir import DTYPE, i64, splat


@dataclass(frozen=True)
class _CheckedRows(RowSource):
    """Zero for rows that do not exist."""

    kernel: Kernel
    source: RowSource

    def fetch(self, at: Block, rows: list[Any]) -> RowFetch:
        """Fetch with one check for each element."""
        fetch, zero = self.source.fetch(at, rows), tirx.const(0, DTYPE)
        return lambda i, step: tirx.if_then_else(rows[i] < self.kernel.rows, fetch(i, step), zero)

    @contextmanager
    def k_loop(self, k_range: KRange) -> Iterator[ReductionStep]:
        """Emit the loops of the source."""
        with self.source.k_loop(k_range) as step:
            yield step

    def next_rows(self, at: Block) -> Sequence[Prefetch]:
        """Prefetch as the source does: an address past its end does no harm."""
        return self.source.next_rows(at)


@dataclass(frozen=True)
class _CheckedColumns(ColumnSource):
    """Zero for panels that do not exist."""

    kernel: Kernel
    source: ColumnSource

    def fetch(self, at: Block, panels: list[Any], cut: bool) -> PanelFetch:
        """Fetch with one check for each vector."""
        kernel, fetch = self.kernel, self.source.fetch(at, panels, cut)
        zeros = splat(tirx.const(0, DTYPE), kernel.lanes)
        return lambda v, k: tirx.if_then_else(panels[v] < kernel.panels, fetch(v, k), zeros)


class BoundaryChecks(Tails):
    """One body for all tiles: every fetch in the reduction loop, and the write-back, checks what exists.

    Checks that fixed extents make needless are left out.
    """

    @property
    def spilled_vectors(self) -> int:
        """One column of vectors."""
        return int(self.cuts_vectors or self.kernel.spills)

    def tile(self, at: Block, products: Sequence[Product], output: Output) -> None:
        """Emit the only body."""
        accumulators = output.accumulators(at, products)
        output.start(accumulators, at)
        output.prefetch(at)
        rows = [at.row + i for i in range(at.rows)]
        panels = [at.panel + v for v in range(at.vectors)]
        checked = [self._checked(product) for product in products]
        self.kernel.accumulate(accumulators, checked, at, rows, panels, self.cuts_vectors)
        output.finish(accumulators, at, lambda: self._write_columns(accumulators, at, output))

    def _checked(self, product: Product) -> Product:
        rows, columns = product.rows, product.columns
        if self.cuts_rows:
            rows = _CheckedRows(self.kernel, rows)
        if self.cuts_columns:
            columns = tuple(_CheckedColumns(self.kernel, source) for source in columns)
        return replace(product, rows=rows, columns=columns)

    def _write_columns(self, accumulators: Accumulators, at: Block, output: Output) -> None:
        for v in range(at.vectors):
            column = [[[row[v]] for row in own] for own in accumulators]
            self._write_column(
                column, replace(at, column=at.column + v * self.kernel.lanes, vectors=1), output
            )

    def _write_column(self, accumulators: Accumulators, at: Block, output: Output) -> None:
        """Write one column of vectors: whole, cut by the last column, or past it."""
        kernel = self.kernel
        if not self.cuts_columns:
            self._write_rows(accumulators, at, output)
            return
        with T.If(at.column + kernel.lanes <= kernel.columns):
            with T.Then():
                self._write_rows(accumulators, at, output)
            if self.cuts_vectors:
                with T.Else(), T.If(at.column < kernel.columns), T.Then():
                    num_rows = tirx.min(i64(at.rows), kernel.rows - at.row)
                    output.write_part(accumulators, at, num_rows, kernel.columns - at.column)

    def _write_rows(self, accumulators: Accumulators, at: Block, output: Output) -> None:
        for i in range(at.rows):
            one, row = [[own[i]] for own in accumulators], replace(at, row=at.row + i, rows=1)
            if not self.cuts_rows:
                output.write_back(one, row)
                continue
            with T.If(row.row < self.kernel.rows), T.Then():
                output.write_back(one, row)
