"""Local padding (paper, Figure 7d)."""

from __future__ import annotations

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.ahead import ask_for_output, next_rows
from dietcode.search_space.cpu.kernel import Block
from dietcode.search_space.cpu.tails.base import Tails
from dietcode.search_space.tir import i64


class LocalPadding(Tails):
    """A tile that reaches past an edge *fetches* from clamped rows and panels, computes the whole tile
    without a check, and writes back only what exists.

    The clamped values are computed and thrown away, so nothing leaks between rows, NaN included. A tile that
    lies inside takes a second copy of the loop with constant strides.
    """

    def start_task(self) -> None:
        """Room for one tile."""
        self.kernel.reserve_spilled(self.kernel.vectors)

    def tile(self, at: Block) -> None:
        """Two copies of the body."""
        kernel, tile = self.kernel, self.kernel.tile
        accumulators = kernel.accumulators(at)
        kernel.start(accumulators, at)
        ask_for_output(kernel, at)
        rows = [at.row + i for i in range(at.rows)]
        panels = [at.panel + v for v in range(at.vectors)]
        inside = tirx.all(at.row + tile.rows <= kernel.rows, at.column + tile.columns <= kernel.columns)
        with T.If(inside):
            with T.Then():
                kernel.accumulate(
                    accumulators,
                    kernel.row_fetch(at.batch, rows),
                    kernel.panel_fetch(at.batch, panels),
                    next_rows(kernel, at),
                )
                kernel.finish(accumulators, at, lambda: kernel.write_back(accumulators, at))
            with T.Else():
                rows = [tirx.min(row, kernel.rows - 1) for row in rows]
                panels = [tirx.min(panel, kernel.panels - 1) for panel in panels]
                kernel.accumulate(
                    accumulators,
                    kernel.row_fetch(at.batch, rows),
                    kernel.panel_fetch(at.batch, panels, self.cuts_vectors),
                )
                num_rows = tirx.min(i64(tile.rows), kernel.rows - at.row)
                num_columns = tirx.min(i64(tile.columns), kernel.columns - at.column)
                kernel.finish(
                    accumulators, at, lambda: kernel.write_part(accumulators, at, num_rows, num_columns)
                )
