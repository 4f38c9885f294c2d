"""Global padding (paper, Figure 7b)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.chunks import part
from dietcode.search_space.cpu.copying import Copy
from dietcode.search_space.cpu.kernel import Accumulators
from dietcode.search_space.cpu.output import Output
from dietcode.search_space.cpu.sources import Block, Product, RowFetch, RowSource
from dietcode.search_space.cpu.tails.base import Tails
from dietcode.search_space.partition import ceildiv
from dietcode.search_space.tir import i64, load, store, workspace


@dataclass(frozen=True)
class _Padded:
    """A buffer ``[batch, rows, columns]`` of whole tiles."""

    buffer: Any
    rows: Any
    columns: Any

    def offset(self, batch: Any, row: Any) -> Any:
        """Return the offset of a row."""
        return (batch * self.rows + row) * self.columns


@dataclass(frozen=True)
class _PaddedRows(RowSource):
    """The padded copy of a row operand."""

    copy: _Padded

    def fetch(self, at: Block, rows: list[Any]) -> RowFetch:
        """Fetch by the padded rows, which follow each other past the last one too."""
        first = at.batch * self.copy.rows + at.row
        return lambda i, step: load(self.copy.buffer, [(first + i) * self.copy.columns + step.k], 1)


@dataclass(frozen=True)
class GlobalPadding(Tails):
    """The row operand is copied into whole tiles, tiles run without a check, and the output is copied out.

    The epilogue is applied in the copy, where only what exists is touched. The packed operand is whole
    vectors already; a tile's panels past the last one are clamped, and end in padded columns.

    Attributes
    ----------
    rows, output : _Padded or None
        The copies, while there are tasks.
    """

    rows: _Padded | None = None
    output: _Padded | None = None

    @contextmanager
    def around_tasks(self) -> Iterator[Tails]:
        """Pad before the tasks, and copy the output after them."""
        kernel, micro_kernel = self.kernel, self.kernel.micro_kernel
        padded_rows = ceildiv(kernel.rows, micro_kernel.rows, kernel.ops) * micro_kernel.rows
        padded_columns = ceildiv(kernel.columns, micro_kernel.columns, kernel.ops) * micro_kernel.columns
        num_rows = kernel.batch * padded_rows
        with (
            workspace(num_rows * kernel.reduction) as rows,
            workspace(num_rows * padded_columns) as output,
        ):
            inputs = _Padded(rows, padded_rows, kernel.reduction)
            outputs = _Padded(output, padded_rows, padded_columns)
            self._pad(inputs)
            yield replace(self, rows=inputs, output=outputs)
            self._unpad(outputs)

    def _pad(self, to: _Padded) -> None:
        """Copy the row operand, zero past its end."""
        kernel = self.kernel
        copy = Copy(kernel, kernel.problem.row_operand, to.buffer)
        with kernel.tasks(lambda: self._num_vectors(kernel.reduction)) as (core, chunk):
            rows = kernel.ops.bind(to.rows)
            with T.serial(*chunk.of(part(kernel.batch * rows, core, kernel.limits.num_cores))) as index:
                batch, row = self._split(index, rows)
                offset = kernel.ops.bind(index * kernel.reduction)
                with T.If(row < kernel.rows):
                    with T.Then():
                        copy.row(batch, row, offset)
                    with T.Else():
                        copy.clear(offset, kernel.reduction)

    def tile(self, at: Block, products: Sequence[Product], output: Output) -> None:
        """Emit the body between the two copies."""
        kernel = self.kernel
        assert self.rows is not None
        source = _PaddedRows(self.rows)
        accumulators = output.accumulators(at, products)
        output.start(accumulators, at)
        rows = [at.row + i for i in range(at.rows)]
        panels = [tirx.min(at.panel + v, kernel.panels - 1) for v in range(at.vectors)]
        padded = [replace(product, rows=source) for product in products]
        kernel.accumulate(accumulators, padded, at, rows, panels, self.cuts_vectors)
        output.finish(accumulators, at, lambda: self._set_down(accumulators, at))

    def _set_down(self, accumulators: Accumulators, at: Block) -> None:
        output, lanes = self.output, self.kernel.lanes
        assert output is not None
        (own,) = accumulators
        for i, row in enumerate(own):
            offset = output.offset(at.batch, at.row + i) + at.column
            for v, accumulator in enumerate(row):
                store(output.buffer, load(accumulator, [0], lanes), [offset + v * lanes], lanes)

    def _unpad(self, padded: _Padded) -> None:
        """Copy what exists of the output, epilogue applied."""
        kernel, lanes = self.kernel, self.kernel.lanes
        output = Output(kernel)

        def copy_out(batch: Any, row: Any, column: Any, lanes: int) -> None:
            value = load(padded.buffer, [padded.offset(batch, row) + column], lanes)
            output.write([value], batch, row, column, lanes)

        vectors = 0 if kernel.spills else tirx.truncdiv(kernel.columns, lanes)
        with kernel.tasks(lambda: self._num_vectors(kernel.columns)) as (core, chunk):
            rows, num_vectors = kernel.ops.bind(kernel.rows), kernel.ops.bind(vectors)
            with T.serial(*chunk.of(part(kernel.batch * rows, core, kernel.limits.num_cores))) as index:
                batch, row = self._split(index, rows)
                with T.serial(i64(0), num_vectors) as v:
                    copy_out(batch, row, v * lanes, lanes)
                if self.cuts_vectors or kernel.spills:
                    with T.serial(num_vectors * lanes, kernel.columns) as column:
                        copy_out(batch, row, column, 1)

    def _num_vectors(self, length: Any) -> Any:
        """Return the vectors of all rows of so many elements."""
        return tirx.truncdiv(self.kernel.batch * self.kernel.rows * length, i64(self.kernel.lanes))

    def _split(self, index: Any, rows: Any) -> tuple[Any, Any]:
        bind = self.kernel.ops.bind
        return bind(tirx.truncdiv(index, rows)), bind(tirx.truncmod(index, rows))
