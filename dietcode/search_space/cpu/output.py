"""How tiles begin and end: accumulators, partial sums, and the way out through the epilogue."""

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
from dietcode.search_space.partition import ceildiv
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
    """Where the tiles of one task go.

    Attributes
    ----------
    spilled : Buffer or None
        One tile on its way out, of which not all exists.
    partial : Buffer or None
        Tiles that are set aside between two ranges of the reduction.
    """

    kernel: Kernel
    spilled: Any = None
    partial: Any = None

    def accumulators(self, at: Block, products: Sequence[Product]) -> Accumulators:
        """Accumulators of a block, not set yet; all products have the same number of column operands.

        There is one buffer a vector: a larger one would be written and read for each k.
        """
        lanes = self.kernel.lanes
        return [
            [[small_buffer(lanes) for _ in range(at.vectors)] for _ in range(at.rows)]
            for _ in products[0].columns
        ]

    def start(self, accumulators: Accumulators, at: Block) -> None:
        """Set to zero, or to what an earlier range of the reduction came to."""
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
        """Write, or set aside where there is more to come of the reduction."""
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
        """Each accumulator with its offset among the partial sums."""
        kernel, rows = self.kernel, self.kernel.micro_kernel.rows
        return [
            (at.slot + ((j * rows + i) * kernel.vectors + v) * kernel.lanes, accumulator)
            for j, i, v, accumulator in _each(accumulators)
        ]

    def prefetch(self, at: Block) -> None:
        """Ask for the lines that a block is written to, and for what its epilogue reads of each row, unless
        it is set aside first.
        """
        kernel = self.kernel
        with ExitStack() as last:
            if kernel.k_tile:
                last.enter_context(T.If(at.k_range.high >= kernel.reduction))
                last.enter_context(T.Then())
            for tensor in self._tensors_by_rows():
                for i in range(at.rows):
                    for column in range(0, at.vectors * kernel.lanes, _LINE):
                        offset = kernel.memory.place(tensor, at.batch, at.row + i, at.column + column)
                        prefetch(kernel.memory.buffers[tensor], offset, FROM_L2)

    def _tensors_by_rows(self) -> Iterator[str]:
        """The output, and the epilogue's tensors, whose rows differ and are next to each other's columns."""
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
            One for each column operand, as summed.
        """
        problem, memory = self.kernel.problem, self.kernel.memory
        mask = None if count is None else first_lanes(count, lanes)

        def read(tensor: str) -> Any:
            offset = memory.place(tensor, batch, row, column)
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
        offset = memory.place(problem.output, batch, row, column)
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
        """Write all rows of a block, and the columns of it that exist, one at least of the last vector."""
        if self.kernel.spills:
            self.write_part(accumulators, at, i64(at.rows), num_columns)
        else:
            self._write_vectors(accumulators, at, num_columns)

    def _write_vectors(self, accumulators: Accumulators, at: Block, num_columns: Any | None = None) -> None:
        """Write all vectors, the last of them as far as there are columns."""
        lanes = self.kernel.lanes
        for i in range(at.rows):
            for v in range(at.vectors):
                is_last = v == at.vectors - 1
                count = None if num_columns is None or not is_last else num_columns - v * lanes
                values = [load(own[i][v], [0], lanes) for own in accumulators]
                self.write(values, at.batch, at.row + i, at.column + v * lanes, lanes, count)

    def write_part(self, accumulators: Accumulators, at: Block, num_rows: Any, num_columns: Any) -> None:
        """Spill a block, then copy the part that exists; keeps the accumulators in registers until then."""
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
            with T.serial(i64(0), ceildiv(num_columns, lanes, kernel.ops)) as v:
                values = [load(self.spilled, [start + i * width + v * lanes], lanes) for start in starts]
                left = num_columns - v * lanes
                self.write(values, at.batch, at.row + i, at.column + v * lanes, lanes, left)


def _each(accumulators: Accumulators) -> Iterator[tuple[int, int, int, Any]]:
    """``(column operand, row, vector, accumulator)``."""
    for j, own in enumerate(accumulators):
        for i, row in enumerate(own):
            for v, accumulator in enumerate(row):
                yield j, i, v, accumulator
