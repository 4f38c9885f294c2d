"""The begin and end of tiles: accumulators, partial sums, and the output through the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ONE, ZERO
from dietcode.search_space.cpu.kernel import Accumulators, Kernel
from dietcode.search_space.cpu.sources import Block, Product
from dietcode.search_space.epilogue import apply, convert
from dietcode.search_space.tir import (
    DTYPE,
    FROM_L2,
    first_lanes,
    i64,
    load,
    load_masked,
    prefetch,
    small_buffer,
    splat,
    store,
    store_masked,
)

_LINE = 16  # elements of a cache line


@dataclass(frozen=True)
class Output:
    """The destination of the tiles of one task.

    Attributes
    ----------
    spilled : Buffer or None
        One tile that exists in part, on its way to the output.
    partial : Buffer or None
        Partial sums of tiles between two ranges of the reduction.
    """

    kernel: Kernel
    spilled: Any = None
    partial: Any = None

    def accumulators(self, at: Block, products: Sequence[Product]) -> Accumulators:
        """Allocate accumulators of a block; all products have the same number of column operands.

        There is one buffer for each vector: a larger one would be written and read for each k.
        """
        lanes = self.kernel.lanes
        return [
            [[small_buffer(lanes) for _ in range(at.vectors)] for _ in range(at.rows)]
            for _ in products[0].columns
        ]

    def start(self, accumulators: Accumulators, at: Block) -> None:
        """Set accumulators to zero, or to the partial sums of the earlier ranges of the reduction."""
        if self.partial is None:
            self._clear(accumulators)
            return
        with T.If(at.k_range.low == 0):
            with T.Then():
                self._clear(accumulators)
            with T.Else():
                for offset, accumulator in self._offsets(accumulators, at):
                    value = load(self.partial, [offset], self.kernel.lanes)
                    store(accumulator, value, [0], self.kernel.lanes)

    def finish(self, accumulators: Accumulators, at: Block, write: Callable[[], None]) -> None:
        """Write, or store partial sums where a range of the reduction follows."""
        if self.partial is None:
            write()
            return
        with T.If(at.k_range.high == self.kernel.reduction):
            with T.Then():
                write()
            with T.Else():
                for offset, accumulator in self._offsets(accumulators, at):
                    value = load(accumulator, [0], self.kernel.lanes)
                    store(self.partial, value, [offset], self.kernel.lanes)

    def _clear(self, accumulators: Accumulators) -> None:
        zero = splat(tirx.const(0, DTYPE), self.kernel.lanes)
        for _, _, _, accumulator in _each(accumulators):
            store(accumulator, zero, [0], self.kernel.lanes)

    def _offsets(self, accumulators: Accumulators, at: Block) -> list[tuple[Any, Any]]:
        """Return each accumulator with its offset among the partial sums."""
        kernel, rows = self.kernel, self.kernel.micro_kernel.rows
        return [
            (at.slot + ((j * rows + i) * kernel.vectors + v) * kernel.lanes, accumulator)
            for j, i, v, accumulator in _each(accumulators)
        ]

    def prefetch(self, at: Block) -> None:
        """Prefetch the lines that a block is written to, and what its epilogue reads of each row.

        Nothing is prefetched where the block's partial sums are stored first.
        """
        kernel = self.kernel
        with ExitStack() as last:
            if kernel.k_tile:
                last.enter_context(T.If(at.k_range.high >= kernel.reduction))
                last.enter_context(T.Then())
            for tensor in self._tensors_by_rows():
                for i in range(at.rows):
                    for column in self._line_columns(tensor, at):
                        offset = kernel.memory.element_offset(
                            tensor, at.batch, at.row + i, at.column + column
                        )
                        prefetch(kernel.memory.buffers[tensor], offset, FROM_L2)

    def _line_columns(self, tensor: str, at: Block) -> Iterator[int]:
        """Yield a column of each line that a row of a block lies in: one more where rows begin anywhere.

        It is the last that is far away: the first holds the end of the block before it, too.
        """
        width = at.vectors * self.kernel.lanes
        yield from range(0, width, _LINE)
        pitch = self.kernel.memory.views[tensor].stride(self.kernel.problem.rows)
        if pitch is None or pitch.factor % _LINE:
            yield width - 1

    def _tensors_by_rows(self) -> Iterator[str]:
        """Yield the output and the epilogue's tensors whose rows differ and have contiguous columns."""
        problem, memory = self.kernel.problem, self.kernel.memory
        if not memory.whole_vectors:
            return
        for tensor in (problem.output, *(stage.tensor for stage in problem.stages)):
            if tensor is None:
                continue
            view = memory.views[tensor]
            if view.stride(problem.columns) == ONE and view.stride(problem.rows) != ZERO:
                yield tensor

    def write(
        self, values: Sequence[Any], batch: Any, row: Any, column: Any, lanes: int, count: Any | None = None
    ) -> None:
        """Write one vector, its first `count` lanes, or one element of the output, epilogue applied.

        Parameters
        ----------
        values : sequence
            Sums, one for each column operand.
        batch, row, column : int64 expressions
            Flattened index of the first element.
        lanes : int
            Of the vector; 1 for an element.
        count : int64 expression, optional
            How many lanes exist; all by default.
        """
        problem, memory = self.kernel.problem, self.kernel.memory
        mask = None if count is None else first_lanes(count, lanes)

        def read(tensor: str) -> Any:
            offset = memory.element_offset(tensor, batch, row, column)
            stride, buffer = memory.views[tensor].stride(problem.columns), memory.buffers[tensor]
            if lanes > 1 and stride == ZERO:
                return splat(load(buffer, [offset], 1), lanes)
            assert lanes == 1 or stride == ONE
            if mask is not None:
                return load_masked(buffer, offset, lanes, mask)
            return load(buffer, [offset], lanes)

        (value,) = values  # the stages of an epilogue are a chain
        for stage in problem.stages:
            value = apply(stage, value, lanes, read)
        value = convert(value, problem.output_dtype, lanes)
        offset = memory.element_offset(problem.output, batch, row, column)
        if mask is None:
            store(memory.buffers[problem.output], value, [offset], lanes)
        else:
            store_masked(memory.buffers[problem.output], value, offset, mask)

    def write_back(self, accumulators: Accumulators, at: Block) -> None:
        """Write a block that lies inside."""
        if self.kernel.spills:
            self.write_part(accumulators, at, i64(at.rows), i64(at.vectors * self.kernel.lanes))
        else:
            self._write_vectors(accumulators, at)

    def write_columns(self, accumulators: Accumulators, at: Block, num_columns: Any) -> None:
        """Write all rows of a block and its first `num_columns` columns, at least one of the last vector."""
        if self.kernel.spills:
            self.write_part(accumulators, at, i64(at.rows), num_columns)
        else:
            self._write_vectors(accumulators, at, num_columns)

    def _write_vectors(self, accumulators: Accumulators, at: Block, num_columns: Any | None = None) -> None:
        """Write all vectors, of the last one the columns that exist."""
        lanes = self.kernel.lanes
        for i in range(at.rows):
            for v in range(at.vectors):
                is_last = v == at.vectors - 1
                count = None if num_columns is None or not is_last else num_columns - v * lanes
                values = [load(own[i][v], [0], lanes) for own in accumulators]
                self.write(values, at.batch, at.row + i, at.column + v * lanes, lanes, count)

    def write_part(self, accumulators: Accumulators, at: Block, num_rows: Any, num_columns: Any) -> None:
        """Spill a block, then copy the part that exists, so that accumulators stay in registers until then.

        Parameters
        ----------
        num_rows, num_columns : int64 expressions
            How many of them exist.
        """
        kernel, lanes = self.kernel, self.kernel.lanes
        width = at.vectors * lanes
        for j, i, v, accumulator in _each(accumulators):
            offset = (j * at.rows + i) * width + v * lanes
            store(self.spilled, load(accumulator, [0], lanes), [offset], lanes)
        starts = [j * at.rows * width for j in range(len(accumulators))]
        with T.serial(i64(0), num_rows) as i:
            if kernel.spills:
                with T.serial(i64(0), num_columns) as j:
                    values = [self.spilled[start + i * width + j] for start in starts]
                    self.write(values, at.batch, at.row + i, at.column + j, 1)
                return
            for v in range(at.vectors):
                left = num_columns - v * lanes
                with T.If(left > 0), T.Then():
                    values = [load(self.spilled, [start + i * width + v * lanes], lanes) for start in starts]
                    self.write(values, at.batch, at.row + i, at.column + v * lanes, lanes, left)


def _each(accumulators: Accumulators) -> Iterator[tuple[int, int, int, Any]]:
    """Yield ``(column operand, row, vector, accumulator)``."""
    for j, own in enumerate(accumulators):
        for i, row in enumerate(own):
            for v, accumulator in enumerate(row):
                yield j, i, v, accumulator
