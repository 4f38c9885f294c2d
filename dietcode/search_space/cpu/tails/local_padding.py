"""Local padding (paper, Figure 7d)."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.output import Output
from dietcode.search_space.cpu.sources import Block, Product
from dietcode.search_space.cpu.tails.base import Tails
from dietcode.search_space.tir import i64


class LocalPadding(Tails):
    """A tile that reaches past an edge *fetches* from clamped rows and panels, computes the whole tile
    without a check, and writes back only what exists.

    Results of clamped values are dropped, so that nothing leaks between rows, NaN included. A tile that
    lies inside takes a second copy of the loop with constant strides.
    """

    @property
    def spilled_vectors(self) -> int:
        """Vectors of a tile."""
        return self.kernel.vectors

    def tile(self, at: Block, products: Sequence[Product], output: Output) -> None:
        """Emit two copies of the body."""
        kernel, micro_kernel = self.kernel, self.kernel.micro_kernel
        accumulators = output.accumulators(at, products)
        output.start(accumulators, at)
        output.prefetch(at)
        rows = [at.row + i for i in range(at.rows)]
        panels = [at.panel + v for v in range(at.vectors)]
        inside = tirx.all(
            at.row + micro_kernel.rows <= kernel.rows, at.column + micro_kernel.columns <= kernel.columns
        )
        with T.If(inside):
            with T.Then():
                kernel.accumulate(accumulators, products, at, rows, panels)
                output.finish(accumulators, at, lambda: output.write_back(accumulators, at))
            with T.Else():
                rows = [tirx.min(row, kernel.rows - 1) for row in rows]
                panels = [tirx.min(panel, kernel.panels - 1) for panel in panels]
                kernel.accumulate(
                    accumulators, products, at, rows, panels, cut=self.cuts_vectors, next_rows=False
                )
                num_rows = tirx.min(i64(at.rows), kernel.rows - at.row)
                num_columns = tirx.min(i64(micro_kernel.columns), kernel.columns - at.column)
                output.finish(
                    accumulators, at, lambda: output.write_part(accumulators, at, num_rows, num_columns)
                )
