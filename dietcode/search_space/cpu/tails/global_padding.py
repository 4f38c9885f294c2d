"""Global padding (paper, Figure 7b)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.copying import copy_row
from dietcode.search_space.cpu.kernel import Accumulators, Block
from dietcode.search_space.cpu.tails.base import Tails
from dietcode.search_space.partition import ceildiv
from dietcode.search_space.tir import DTYPE, i64, load, store, workspace


class GlobalPadding(Tails):
    """The row operand is copied into whole tiles, tiles run without a check, and the output is copied out.

    The epilogue is applied in the copy, where only what exists is touched. The packed operand is whole
    vectors already; a tile's panels past the last one are clamped, and end in padded columns.
    """

    _rows: Any = None  # padded row operand, [batch, padded rows, reduction]
    _output: Any = None  # padded output, [batch, padded rows, padded columns]
    _padded_rows: Any = None
    _padded_columns: Any = None

    def _padded(self, size: Any, extent: int) -> Any:
        return ceildiv(size, extent, self.kernel.ops) * extent

    @contextmanager
    def around_tasks(self) -> Iterator[None]:
        """Pad before, unpad after."""
        kernel, tile = self.kernel, self.kernel.tile
        self._padded_rows = self._padded(kernel.rows, tile.rows)
        self._padded_columns = self._padded(kernel.columns, tile.columns)
        rows = kernel.batch * self._padded_rows
        with (
            workspace(rows * kernel.reduction) as self._rows,
            workspace(rows * self._padded_columns) as self._output,
        ):
            self._pad()
            yield
            self._unpad()

    def _pad(self) -> None:
        """Copy the row operand, zero past its end."""
        kernel = self.kernel
        with kernel.tasks() as task:
            rows = kernel.ops.bind(self._padded_rows)
            with T.serial(*kernel.part(kernel.batch * rows, task, kernel.limits.num_cores)) as index:
                batch, row = self._split(index, rows)
                place = kernel.ops.bind(index * kernel.reduction)
                with T.If(row < kernel.rows):
                    with T.Then():
                        copy_row(kernel, batch, row, self._rows, place)
                    with T.Else(), T.serial(i64(0), kernel.reduction) as k:
                        store(self._rows, tirx.const(0, DTYPE), [place + k], 1)

    def tile(self, at: Block) -> None:
        """The plain body between the two workspaces."""
        kernel = self.kernel
        accumulators = kernel.accumulators(at)
        kernel.start(accumulators, at)
        panels = [tirx.min(at.panel + v, kernel.panels - 1) for v in range(at.vectors)]
        start = at.batch * self._padded_rows + at.row
        kernel.accumulate(
            accumulators,
            lambda i, k: load(self._rows, [(start + i) * kernel.reduction + k], 1),
            kernel.panel_fetch(at.batch, panels, self.cuts_vectors),
        )
        kernel.finish(accumulators, at, lambda: self._set_down(accumulators, at))

    def _set_down(self, accumulators: Accumulators, at: Block) -> None:
        kernel = self.kernel
        for i, row in enumerate(accumulators):
            place = self._place(at.batch, at.row + i, at.column)
            for v, accumulator in enumerate(row):
                value = load(accumulator, [0], kernel.lanes)
                store(self._output, value, [place + v * kernel.lanes], kernel.lanes)

    def _place(self, batch: Any, row: Any, column: Any) -> Any:
        return (batch * self._padded_rows + row) * self._padded_columns + column

    def _unpad(self) -> None:
        """Copy what exists of the output, epilogue applied."""
        kernel, lanes = self.kernel, self.kernel.lanes
        vectors = 0 if kernel.spills else tirx.truncdiv(kernel.columns, lanes)
        with kernel.tasks() as task:
            rows, whole = kernel.ops.bind(kernel.rows), kernel.ops.bind(vectors)
            with T.serial(*kernel.part(kernel.batch * rows, task, kernel.limits.num_cores)) as index:
                batch, row = self._split(index, rows)
                with T.serial(i64(0), whole) as v:
                    self._copy_out(batch, row, v * lanes, lanes)
                if self.cuts_vectors or kernel.spills:
                    with T.serial(whole * lanes, kernel.columns) as column:
                        self._copy_out(batch, row, column, 1)

    def _copy_out(self, batch: Any, row: Any, column: Any, lanes: int) -> None:
        value = load(self._output, [self._place(batch, row, column)], lanes)
        self.kernel.write(value, batch, row, column, lanes)

    def _split(self, index: Any, rows: Any) -> tuple[Any, Any]:
        bind = self.kernel.ops.bind
        return bind(tirx.truncdiv(index, rows)), bind(tirx.truncmod(index, rows))
