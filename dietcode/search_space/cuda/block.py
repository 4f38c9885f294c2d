"""The code of one thread block: fetch to shared memory, accumulate, write back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import size_of
from dietcode.search_space.cuda.addressing import Addresses, Part, first_step
from dietcode.search_space.cuda.building import aligned, both, local, narrow, once, only_if, sync, wide
from dietcode.search_space.cuda.fetching import WIDTHS, plan_fetch
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.output import Writer
from dietcode.search_space.epilogue import widen
from dietcode.search_space.memory import Memory
from dietcode.search_space.problem import Problem
from dietcode.search_space.tir import DTYPE, as_int64, i64, load, store

_NOWHERE = {"int32": -(1 << 30), "int64": -(1 << 60)}  # a position that is outside whatever the step adds


class Operand:
    """A tile of one operand: from global memory to registers, from there to shared memory.

    Attributes
    ----------
    base : int
        Offset of its tiles in shared memory, in elements.
    pitch : int
        Elements from one step to the next there.
    addresses : Addresses
        Offsets of its elements in global memory.
    """

    def __init__(self, block: BlockKernel, name: str, base: int) -> None:
        micro_kernel, problem = block.micro_kernel, block.problem
        self.block, self.name, self.base = block, name, base
        self.is_row = name == problem.row_operand
        self.extent = micro_kernel.rows if self.is_row else micro_kernel.columns
        self.pitch = micro_kernel.row_pitch if self.is_row else micro_kernel.column_pitch
        self.indices = problem.rows if self.is_row else problem.columns
        self.plan = plan_fetch(problem, name, micro_kernel)
        width = self.plan.width
        self.total = self.extent * micro_kernel.k_tile // width  # vectors of a tile
        self.turns = -(-self.total // micro_kernel.threads)
        self.inner = (micro_kernel.k_tile if self.plan.along_reduction else self.extent) // width
        self.addresses = Addresses(problem, block.memory, name, self.indices)
        self._lines: tuple[Any, ...] | None = None
        self.storage = str(problem.storage(name))
        self._allocate()

    def _allocate(self) -> None:
        """Allocate the registers that a tile is fetched to."""
        self.fetched = local(f"fetched_{self.name}", self.turns * self.plan.width, self.storage)
        if self.storage != DTYPE and not self.plan.along_reduction:
            self.widened = local(f"widened_{self.name}", self.plan.width)

    def _position(self, turn: Any) -> tuple[Any, Any, Any | None]:
        """Return the row or column of a vector and its step, both int32, and whether the tile has it."""
        threads = self.block.micro_kernel.threads
        index = turn * threads + self.block.thread
        inner, outer = tirx.truncmod(index, self.inner), tirx.truncdiv(index, self.inner)
        within = None if self.total % threads == 0 else index < self.total
        inner = inner * self.plan.width
        return (outer, inner, within) if self.plan.along_reduction else (inner, outer, within)

    def prepare(self, first: Any, bound: Any | None) -> None:
        """Compute ahead of the reduction what a thread's own lines contribute to offsets, where that is long.

        Positions of a line that does not exist are outside of every window's axis.

        Parameters
        ----------
        first, bound : int64 expressions
            As `fetch` has them.
        """
        self._lines = None
        if not self.addresses.splits_lines:
            return
        count = 1 if self._is_same_line else self.turns
        kinds = [self.addresses.shift_dtype(window) for window in self.addresses.windows]
        offset = local(f"place_{self.name}", count, "int64")  # in vectors
        shifts = [local(f"shift_{self.name}", count, kind) for kind in kinds]
        with T.unroll(0, count) as turn:
            line, _, _ = self._position(turn)
            part = self.addresses.of_line(self.block.batch, first + wide(line))
            store(offset, tirx.truncdiv(part.offset, i64(self.plan.width)), [turn], 1)
            for shift, value in zip(shifts, part.shifts, strict=True):
                nowhere = tirx.IntImm(str(value.ty), _NOWHERE[str(value.ty)])
                is_there = None if bound is None else first + wide(line) < bound
                store(shift, value if is_there is None else tirx.Select(is_there, value, nowhere), [turn], 1)
        self._lines = (offset, *shifts)

    @property
    def _is_same_line(self) -> bool:
        """Whether a thread fetches of one line in all turns."""
        return not self.plan.along_reduction and self.block.micro_kernel.threads % self.inner == 0

    @property
    def _is_same_step(self) -> bool:
        """Whether a thread fetches of one step in all turns."""
        return self.plan.along_reduction and self.block.micro_kernel.threads % self.inner == 0

    def fetch(self, step: Any, first: Any, bound: Any | None) -> None:
        """Read the tile of the steps from `step` on to registers; zeros where there is nothing.

        Parameters
        ----------
        step, first : int64 expressions
            First step of the reduction, and first row or column.
        bound : int64 expression or None
            Rows or columns that there are; None where all of the tile's exist.
        """
        width, buffer = self.plan.width, self.block.memory.buffers[self.name]
        offset_of = self.offsets(step, first, bound)
        with T.unroll(0, self.turns) as turn:
            offset, exists = offset_of(turn)
            offset = aligned(offset, width)

            def read(offset: Any = offset, turn: Any = turn) -> None:
                store(self.fetched, load(buffer, [offset], width), [turn * width], width)

            if exists is None:
                read()
            else:
                with T.If(exists):
                    with T.Then():
                        read()
                    with T.Else(), T.unroll(0, width) as u:
                        store(self.fetched, tirx.const(0, self.storage), [turn * width + u], 1)

    def offsets(self, step: Any, first: Any, bound: Any | None) -> Callable[[Any], tuple[Any, Any | None]]:
        """Return ``turn -> offset, exists`` of a thread's vectors, see `source`; emits what they share.

        After `prepare` it costs less than `source` where operands are read through windows.

        Parameters
        ----------
        step, first, bound : int64 expressions
            As `fetch` has them.
        """
        same = self._step(step + wide(self._position(0)[1])) if self._is_same_step else None
        known = None if self._lines is not None and self.addresses.windows else bound

        def offset_of(turn: Any) -> tuple[Any, Any | None]:
            line, k, within = self._position(turn)
            line, k = first + wide(line), step + wide(k)
            part = self._step(k) if same is None else same
            offset, in_windows = self.addresses.join(self._line(turn, line), part)
            return offset, both(within, both(self._within(line, k, known), in_windows))

        return offset_of

    def _line(self, turn: Any, line: Any) -> Part:
        """Return what a turn's line contributes, computed by `prepare` where that was worth it."""
        if self._lines is None:
            return self.addresses.of_line(self.block.batch, line)
        offset, *shifts = (buffer[0 if self._is_same_line else turn] for buffer in self._lines)
        return Part(offset * self.plan.width, tuple(shifts))

    def _step(self, k: Any) -> Part:
        """Return what a step contributes, kept in registers where that is long."""
        part, width = self.addresses.of_step(k), self.plan.width
        if not self.addresses.splits_reduction:
            return part
        offset = once("step_place", tirx.truncdiv(part.offset, tirx.IntImm(str(part.offset.ty), width)))
        offset = wide(offset) * width
        return Part(offset, tuple(once("step_shift", shift) for shift in part.shifts))

    def _within(self, line: Any, k: Any, bound: Any | None) -> Any | None:
        """Return whether a line and a step exist; None where they always do."""
        exists = None if bound is None else line < bound
        return both(exists, k < self.block.reduction if self.block.has_ragged_reduction else None)

    def source(self, line: Any, k: Any, bound: Any | None) -> tuple[Any, Any | None]:
        """Return the offset of an element in global memory, and whether it exists; None where it always does.

        Parameters
        ----------
        line, k : int64 expressions
            Row or column, and step of the reduction.
        bound : int64 expression or None
            As `fetch` has it.
        """
        offset, in_windows = self.addresses.at(self.block.batch, line, k)
        return offset, both(self._within(line, k, bound), in_windows)

    def write_shared(self, stage: Any) -> None:
        """Write the fetched tile to shared memory, as float32."""
        block, width, dtype = self.block, self.plan.width, self.block.problem.dtype(self.name)
        run = min(width, WIDTHS[0])
        base = self.base + stage * block.stage_elements
        with T.unroll(0, self.turns) as turn:
            line, k, within = self._position(turn)
            with only_if(within):
                if self.plan.along_reduction:
                    with T.unroll(0, width) as u:
                        value = widen(self.fetched[turn * width + u], dtype)
                        store(block.shared, value, [base + (k + u) * self.pitch + line], 1)
                else:
                    values, start = self.fetched, turn * width
                    if dtype != DTYPE:
                        values, start = self.widened, 0
                        with T.unroll(0, width) as u:
                            store(values, widen(self.fetched[turn * width + u], dtype), [u], 1)
                    for part in range(0, width, run):
                        offset = base + k * self.pitch + line + part
                        store(block.shared, load(values, [start + part], run), [offset], run)


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
        self.part: Any = None
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
