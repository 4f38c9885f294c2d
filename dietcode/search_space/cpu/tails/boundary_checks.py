"""Out-of-boundary checks (paper, Figure 7a): what the other three are compared with."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.kernel import Accumulators, Block
from dietcode.search_space.cpu.tails.base import Tails
from dietcode.search_space.tir import DTYPE, i64, splat


class BoundaryChecks(Tails):
    """One body for all tiles; every fetch inside the reduction loop asks whether its row or panel exists, and
    so does the write-back. Checks that fixed extents make needless are left out.
    """

    def start_task(self) -> None:
        """Room for one column of vectors."""
        if self.cuts_vectors or self.kernel.spills:
            self.kernel.reserve_spilled(1)

    def tile(self, at: Block) -> None:
        """The only body."""
        kernel = self.kernel
        accumulators = kernel.accumulators(at)
        kernel.start(accumulators, at)
        rows = [at.row + i for i in range(at.rows)]
        panels = [at.panel + v for v in range(at.vectors)]
        row_fetch = kernel.row_fetch(at.batch, rows)
        panel_fetch = kernel.panel_fetch(at.batch, panels, self.cuts_vectors)
        zero = tirx.const(0, DTYPE)

        def checked_row(i: int, k: Any) -> Any:
            value = row_fetch(i, k)
            return tirx.if_then_else(rows[i] < kernel.rows, value, zero) if self.cuts_rows else value

        def checked_panel(v: int, k: Any) -> Any:
            value = panel_fetch(v, k)
            zeros = splat(zero, kernel.lanes)
            return tirx.if_then_else(panels[v] < kernel.panels, value, zeros) if self.cuts_columns else value

        kernel.accumulate(accumulators, checked_row, checked_panel)
        kernel.finish(accumulators, at, lambda: self._write_columns(accumulators, at))

    def _write_columns(self, accumulators: Accumulators, at: Block) -> None:
        for v in range(at.vectors):
            self._write_column([[row[v]] for row in accumulators], at, at.column + v * self.kernel.lanes)

    def _write_column(self, accumulators: Accumulators, at: Block, column: Any) -> None:
        """One column of vectors: whole, cut by the last column, or past it."""
        kernel = self.kernel
        one = Block(at.batch, at.row, column, at.panel, at.rows, 1)
        if not self.cuts_columns:
            self._write_rows(accumulators, one)
            return
        with T.If(column + kernel.lanes <= kernel.columns):
            with T.Then():
                self._write_rows(accumulators, one)
            if self.cuts_vectors:
                with T.Else(), T.If(column < kernel.columns), T.Then():
                    num_rows = tirx.min(i64(at.rows), kernel.rows - at.row)
                    kernel.write_part(accumulators, one, num_rows, kernel.columns - column)

    def _write_rows(self, accumulators: Accumulators, one: Block) -> None:
        kernel = self.kernel
        for i, row in enumerate(accumulators):
            single = Block(one.batch, one.row + i, one.column, one.panel, 1, 1)
            if not self.cuts_rows:
                kernel.write_back([row], single)
                continue
            with T.If(single.row < kernel.rows), T.Then():
                kernel.write_back([row], single)
