"""The code of one thread block: fetch to shared memory, accumulate, write back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import size_of
from dietcode.search_space.cuda.addressing import first_step
from dietcode.search_space.cuda.building import aligned, both, local, narrow, once, only_if, sync, wide
from dietcode.search_space.cuda.fetching import WIDTHS
from dietcode.search_space.cuda.line_writing import stages_output, write_by_lines
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.operand import Operand
from dietcode.search_space.cuda.output import Writer
from dietcode.search_space.cuda.raster import TileOrder
from dietcode.search_space.memory import Memory
from dietcode.search_space.problem import Problem
from dietcode.search_space.tir import DTYPE, as_int64, i64, load, store


class BlockKernel:
    """A micro-kernel of one problem, while its function is built.

    Parameters
    ----------
    problem : Problem
        As `dietcode.search_space.cuda.padding.block_problem` gives it.
    micro_kernel : CudaMicroKernel
    memory : Memory
        The tensors that the function is given.
    extents : dict of str to int or int64 expression
        Of every index.
    thread : int32 expression
        Of the block.

    Attributes
    ----------
    batch, first_row, first_column, part : int64 expressions
        Which tile the block computes, and which part of the reduction.
    exists : expression or None
        Whether there is such a tile: a cluster may have more blocks than there are tiles.
    maps : dict of str to expression
        Tensor maps that the function is given, by the tensors that they describe.
    rows, columns, reduction : int64 expressions
        Flattened extents.
    """

    def __init__(
        self,
        problem: Problem,
        micro_kernel: CudaMicroKernel,
        memory: Memory,
        extents: dict[str, Any],
        thread: Any,
    ) -> None:
        self.problem, self.micro_kernel, self.memory, self.thread = problem, micro_kernel, memory, thread
        self.batches, self.rows, self.columns, self.reduction = (
            as_int64(size) for size in problem.sizes(extents)
        )
        self.has_ragged_reduction = self._is_ragged(problem.reduction, micro_kernel.k_tile)
        self.has_ragged_rows = self._is_ragged(problem.rows, micro_kernel.rows)
        self.has_ragged_columns = self._is_ragged(problem.columns, micro_kernel.columns)
        self.batch: Any = None
        self.first_row: Any = None
        self.first_column: Any = None
        self.exists: Any | None = None
        self.part: Any = None
        self.maps: dict[str, Any] = {}
        self._allocate()

    def _allocate(self) -> None:
        """Allocate shared memory and registers of the block."""
        micro_kernel, problem = self.micro_kernel, self.problem
        across = micro_kernel.columns // micro_kernel.thread_columns
        self.thread_row = tirx.truncdiv(self.thread, across)
        self.thread_column = tirx.truncmod(self.thread, across)
        self.stage_elements = micro_kernel.k_tile * (micro_kernel.row_pitch + micro_kernel.column_pitch)
        scope = "shared.dyn" if micro_kernel.dynamic_bytes else "shared"
        size = micro_kernel.stages * self.stage_elements
        self.shared = T.alloc_buffer((size,), DTYPE, scope=scope, align=16)
        IRBuilder.name("tiles", self.shared)
        self.operands = (
            Operand(self, problem.row_operand, 0),
            Operand(self, problem.column_operand, micro_kernel.k_tile * micro_kernel.row_pitch),
        )
        self.accumulators = local("sums", micro_kernel.num_accumulators)
        self.row_values = local("row_values", micro_kernel.thread_rows)
        self.column_values = local("column_values", micro_kernel.thread_columns)

    def take_tiles(self, order: TileOrder, index: Any) -> None:
        """Take the tile of a block, by its index in the grid, int32."""
        self.batch, self.first_row, self.first_column, self.exists = order.locate(index)

    def run_roles(self, compute: Callable[[], None]) -> None:
        """Emit what the block does: here `compute`, in all threads, if it has a tile."""
        with only_if(self.exists):
            compute()

    def _is_ragged(self, indices: tuple[str, ...], extent: int) -> bool:
        """Whether tiles of `extent` may reach past the end of a role."""
        return size_of(self.problem, indices).factor % extent != 0

    def thread_offsets(self, rows: bool) -> Callable[[Any], Any]:
        """Return ``i -> offset in the block's tile`` of a thread's row, or column, int32."""
        extent, own, parts = self.micro_kernel.sides[0 if rows else 1]
        index = self.thread_row if rows else self.thread_column
        run = own // parts
        return lambda i: tirx.truncdiv(i, run) * (extent // parts) + index * run + tirx.truncmod(i, run)

    def accumulate(self, is_inside: bool) -> None:
        """Accumulate the block's tile over its part of the reduction.

        Parameters
        ----------
        is_inside : bool
            Whether the tile is known to reach past no edge.
        """
        micro_kernel = self.micro_kernel
        with T.unroll(0, micro_kernel.num_accumulators) as i:
            store(self.accumulators, tirx.const(0, DTYPE), [i], 1)
        low, high = self._k_outer_range()
        bounds = [
            None if is_inside or not self.has_ragged_rows else self.rows,
            None if is_inside or not self.has_ragged_columns else self.columns,
        ]
        given = list(zip(self.operands, (self.first_row, self.first_column), bounds, strict=True))
        for operand, first, bound in given:
            operand.prepare(first, bound)

        def fetch(k_outer: Any) -> None:
            for operand, first, bound in given:
                operand.fetch(first_step(self.problem, micro_kernel.k_tile, k_outer), first, bound)

        def write_shared(stage: Any) -> None:
            for operand in self.operands:
                operand.write_shared(stage)

        if micro_kernel.stages == 1:
            with T.serial(low, high) as k_outer:
                fetch(k_outer)
                sync()
                write_shared(0)
                sync()
                self._compute(0, is_inside)
            return
        with only_if(low < high if micro_kernel.splits > 1 else None):
            fetch(low)
            write_shared(0)
        sync()
        with T.serial(low, high) as k_outer:
            stage = narrow(tirx.truncmod(k_outer - low, i64(2)))
            with only_if(k_outer + 1 < high):
                fetch(k_outer + 1)
            self._compute(stage, is_inside)
            with only_if(k_outer + 1 < high):
                write_shared(1 - stage)
            sync()

    def _k_outer_range(self) -> tuple[Any, Any]:
        """Return the first tile of the block's part of the reduction, and the one after the last."""
        micro_kernel = self.micro_kernel
        k_tiles = tirx.truncdiv(self.reduction + (micro_kernel.k_tile - 1), i64(micro_kernel.k_tile))
        if micro_kernel.splits == 1:
            return i64(0), k_tiles
        each = tirx.truncdiv(k_tiles + (micro_kernel.splits - 1), i64(micro_kernel.splits))
        low = once("first_piece", self.part * each)
        return low, once("end_piece", tirx.min(low + each, k_tiles))

    def _compute(self, stage: Any, is_inside: bool) -> None:
        """Multiply and add what is in shared memory."""
        micro_kernel = self.micro_kernel
        checks = micro_kernel.tails == "checked" and not is_inside
        row_offset, column_offset = self.thread_offsets(True), self.thread_offsets(False)
        with T.unroll(0, micro_kernel.k_tile) as k:
            for operand, values, rows in (
                (self.operands[0], self.row_values, True),
                (self.operands[1], self.column_values, False),
            ):
                self._read_shared(operand, values, rows, stage, k)
            with T.unroll(0, micro_kernel.thread_rows) as i, T.unroll(0, micro_kernel.thread_columns) as j:
                row, column = None, None
                if checks and self.has_ragged_rows:
                    row = self.first_row + wide(row_offset(i)) < self.rows
                if checks and self.has_ragged_columns:
                    column = self.first_column + wide(column_offset(j)) < self.columns
                with only_if(both(row, column)):
                    at = i * micro_kernel.thread_columns + j
                    total = self.accumulators[at] + self.row_values[i] * self.column_values[j]
                    store(self.accumulators, total, [at], 1)

    def _read_shared(self, operand: Operand, values: Any, rows: bool, stage: Any, k: Any) -> None:
        """Read one step's values of a thread's rows, or columns, to registers."""
        _, own, parts = self.micro_kernel.sides[0 if rows else 1]
        offset = self.thread_offsets(rows)
        width = next(w for w in WIDTHS if own // parts % w == 0 and operand.extent // parts % w == 0)
        start = operand.base + stage * self.stage_elements + k * operand.pitch
        with T.unroll(0, own // width) as v:
            at = start + aligned(offset(v * width), width)
            store(values, load(self.shared, [at], width), [v * width], width)

    def write_back(self, writer: Writer, is_inside: bool) -> None:
        """Write what exists of the block's tile."""
        micro_kernel = self.micro_kernel
        width = writer.width
        if stages_output(micro_kernel, width):
            write_by_lines(self, writer, is_inside)
            return
        row_offset, column_offset = self.thread_offsets(True), self.thread_offsets(False)
        with (
            T.unroll(0, micro_kernel.thread_rows) as i,
            T.unroll(0, micro_kernel.thread_columns // width) as v,
        ):
            row = self.first_row + wide(row_offset(i))
            column = self.first_column + wide(column_offset(v * width))
            exists = None if is_inside or not self.has_ragged_rows else row < self.rows
            past = None if is_inside or not self.has_ragged_columns else column < self.columns
            with only_if(both(exists, past)):
                at = i * micro_kernel.thread_columns + v * width
                writer.write(lambda u: self.accumulators[at + u], self.batch, row, column)
