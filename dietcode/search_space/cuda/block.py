"""One thread block, while its function is built: fetch to shared memory, accumulate, write back."""

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
from dietcode.search_space.tir import DTYPE, i64, load, store

_NOWHERE = {"int32": -(1 << 30), "int64": -(1 << 60)}  # a position that no step leads back from


class Operand:
    """A tile of one operand: from global memory to registers, from there to shared memory.

    Attributes
    ----------
    base : int
        Where in shared memory its tiles begin, in elements.
    pitch : int
        Elements from one step to the next there.
    addresses : Addresses
        Where its elements lie in global memory.
    """

    def __init__(self, block: BlockKernel, name: str, base: int) -> None:
        tile, problem = block.tile, block.problem
        self.block, self.name, self.base = block, name, base
        self.is_row = name == problem.row_operand
        self.extent = tile.rows if self.is_row else tile.columns
        self.pitch = tile.row_pitch if self.is_row else tile.column_pitch
        self.letters = problem.rows if self.is_row else problem.columns
        self.plan = plan_fetch(problem, name, tile)
        width = self.plan.width
        self.total = self.extent * tile.steps // width  # vectors of a tile
        self.turns = -(-self.total // tile.threads)
        self.inner = (tile.steps if self.plan.along_reduction else self.extent) // width
        self.addresses = Addresses(problem, block.memory, name, self.letters)
        self._lines: tuple[Any, ...] | None = None
        self.storage = str(problem.storage(name))
        self._allocate()

    def _allocate(self) -> None:
        """Registers that a tile is fetched to."""
        self.fetched = local(f"fetched_{self.name}", self.turns * self.plan.width, self.storage)
        if self.storage != DTYPE and not self.plan.along_reduction:
            self.widened = local(f"widened_{self.name}", self.plan.width)

    def _place(self, turn: Any) -> tuple[Any, Any, Any | None]:
        """Of one vector: its row or column, its step, both int32, and whether it is one of the tile."""
        threads = self.block.tile.threads
        index = turn * threads + self.block.thread
        inner, outer = tirx.truncmod(index, self.inner), tirx.truncdiv(index, self.inner)
        within = None if self.total % threads == 0 else index < self.total
        inner = inner * self.plan.width
        return (outer, inner, within) if self.plan.along_reduction else (inner, outer, within)

    def prepare(self, first: Any, bound: Any | None) -> None:
        """Compute ahead of the reduction what a thread's own lines contribute to addresses, where it is long.

        A line that does not exist is put where windows see nothing.

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
        place = local(f"place_{self.name}", count, "int64")  # in vectors
        shifts = [local(f"shift_{self.name}", count, kind) for kind in kinds]
        with T.unroll(0, count) as turn:
            line, _, _ = self._place(turn)
            part = self.addresses.of_line(self.block.batch, first + wide(line))
            store(place, tirx.truncdiv(part.place, i64(self.plan.width)), [turn], 1)
            for shift, value in zip(shifts, part.shifts, strict=True):
                nowhere = tirx.IntImm(str(value.ty), _NOWHERE[str(value.ty)])
                is_there = None if bound is None else first + wide(line) < bound
                store(shift, value if is_there is None else tirx.Select(is_there, value, nowhere), [turn], 1)
        self._lines = (place, *shifts)

    @property
    def _is_same_line(self) -> bool:
        """Whether a thread fetches of one line in all turns."""
        return not self.plan.along_reduction and self.block.tile.threads % self.inner == 0

    @property
    def _is_same_step(self) -> bool:
        """Whether a thread fetches of one step in all turns."""
        return self.plan.along_reduction and self.block.tile.threads % self.inner == 0

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
        place_of = self.places(step, first, bound)
        with T.unroll(0, self.turns) as turn:
            place, exists = place_of(turn)
            place = aligned(place, width)

            def read(place: Any = place, turn: Any = turn) -> None:
                store(self.fetched, load(buffer, [place], width), [turn * width], width)

            if exists is None:
                read()
            else:
                with T.If(exists):
                    with T.Then():
                        read()
                    with T.Else(), T.unroll(0, width) as u:
                        store(self.fetched, tirx.const(0, self.storage), [turn * width + u], 1)

    def places(self, step: Any, first: Any, bound: Any | None) -> Callable[[Any], tuple[Any, Any | None]]:
        """``turn -> place, exists`` of a thread's vectors, see `source`; what they share is emitted here.

        After `prepare` it costs less than `source` where operands are read through windows.

        Parameters
        ----------
        step, first, bound : int64 expressions
            As `fetch` has them.
        """
        same = self._step(step + wide(self._place(0)[1])) if self._is_same_step else None
        known = None if self._lines is not None and self.addresses.windows else bound

        def place_of(turn: Any) -> tuple[Any, Any | None]:
            line, k, within = self._place(turn)
            line, k = first + wide(line), step + wide(k)
            part = self._step(k) if same is None else same
            place, seen = self.addresses.join(self._line(turn, line), part)
            return place, both(within, both(self._within(line, k, known), seen))

        return place_of

    def _line(self, turn: Any, line: Any) -> Part:
        """What a turn's line contributes: what `prepare` kept, where it did."""
        if self._lines is None:
            return self.addresses.of_line(self.block.batch, line)
        place, *shifts = (kept[0 if self._is_same_line else turn] for kept in self._lines)
        return Part(place * self.plan.width, tuple(shifts))

    def _step(self, k: Any) -> Part:
        """What a step contributes, kept in registers where that is long."""
        part, width = self.addresses.of_step(k), self.plan.width
        if not self.addresses.splits_steps:
            return part
        place = once("step_place", tirx.truncdiv(part.place, tirx.IntImm(str(part.place.ty), width)))
        place = wide(place) * width
        return Part(place, tuple(once("step_shift", shift) for shift in part.shifts))

    def _within(self, line: Any, k: Any, bound: Any | None) -> Any | None:
        """Whether there is such a line and step; None where there always is."""
        exists = None if bound is None else line < bound
        return both(exists, k < self.block.reduction if self.block.has_ragged_steps else None)

    def source(self, line: Any, k: Any, bound: Any | None) -> tuple[Any, Any | None]:
        """Where an element lies in global memory, and whether it exists; None where it always does.

        Parameters
        ----------
        line, k : int64 expressions
            Row or column, and step of the reduction.
        bound : int64 expression or None
            As `fetch` has it.
        """
        place, seen = self.addresses.at(self.block.batch, line, k)
        return place, both(self._within(line, k, bound), seen)

    def put(self, stage: Any) -> None:
        """Write the fetched tile to shared memory, as float32."""
        block, width, dtype = self.block, self.plan.width, self.block.problem.dtype(self.name)
        run = min(width, WIDTHS[0])
        base = self.base + stage * block.stage_elements
        with T.unroll(0, self.turns) as turn:
            line, k, within = self._place(turn)
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
                        place = base + k * self.pitch + line + part
                        store(block.shared, load(values, [start + part], run), [place], run)


class BlockKernel:
    """A micro-kernel of one problem, while its function is built.

    Attributes
    ----------
    thread : int32 expression
        Of the block.
    batch, first_row, first_column, part : int64 expressions
        Which tile the block computes, and which part of the reduction.
    rows, columns, reduction : int64 expressions
        Flattened extents.
    memory : Memory
        The tensors that the function is given.
    """

    def __init__(
        self,
        problem: Problem,
        tile: CudaMicroKernel,
        memory: Memory,
        extents: dict[str, Any],
        thread: Any,
    ) -> None:
        self.problem, self.tile, self.memory, self.thread = problem, tile, memory, thread
        self.batches, self.rows, self.columns, self.reduction = (
            i64(size) if isinstance(size, int) else size for size in problem.sizes(extents)
        )
        self.has_ragged_steps = self._is_ragged(problem.reduction, tile.steps)
        self.has_ragged_rows = self._is_ragged(problem.rows, tile.rows)
        self.has_ragged_columns = self._is_ragged(problem.columns, tile.columns)
        self.batch: Any = None
        self.first_row: Any = None
        self.first_column: Any = None
        self.part: Any = None
        self._allocate()

    def _allocate(self) -> None:
        """Shared memory and registers of the block."""
        tile, problem = self.tile, self.problem
        across = tile.columns // tile.thread_columns
        self.thread_row = tirx.truncdiv(self.thread, across)
        self.thread_column = tirx.truncmod(self.thread, across)
        self.stage_elements = tile.steps * (tile.row_pitch + tile.column_pitch)
        scope = "shared.dyn" if tile.dynamic_bytes else "shared"
        self.shared = T.alloc_buffer((tile.stages * self.stage_elements,), DTYPE, scope=scope, align=16)
        IRBuilder.name("tiles", self.shared)
        self.operands = (
            Operand(self, problem.row_operand, 0),
            Operand(self, problem.column_operand, tile.steps * tile.row_pitch),
        )
        self.sums = local("sums", tile.thread_rows * tile.thread_columns)
        self.row_values = local("row_values", tile.thread_rows)
        self.column_values = local("column_values", tile.thread_columns)

    def _is_ragged(self, letters: tuple[str, ...], extent: int) -> bool:
        """Whether tiles of `extent` may reach past the end of a role."""
        return size_of(self.problem, letters).factor % extent != 0

    def thread_places(self, rows: bool) -> Callable[[Any], Any]:
        """``i -> place in the block's tile`` of a thread's row, or column, int32."""
        tile = self.tile
        if rows:
            own, extent, parts, index = tile.thread_rows, tile.rows, tile.row_vthreads, self.thread_row
        else:
            own, extent, parts, index = (
                tile.thread_columns,
                tile.columns,
                tile.column_vthreads,
                self.thread_column,
            )
        run = own // parts
        return lambda i: tirx.truncdiv(i, run) * (extent // parts) + index * run + tirx.truncmod(i, run)

    def accumulate(self, is_inside: bool) -> None:
        """The sums of the block's tile over its part of the reduction.

        Parameters
        ----------
        is_inside : bool
            Whether the tile is known to reach past no edge.
        """
        tile = self.tile
        with T.unroll(0, tile.thread_rows * tile.thread_columns) as i:
            store(self.sums, tirx.const(0, DTYPE), [i], 1)
        low, high = self._steps()
        bounds = [
            None if is_inside or not self.has_ragged_rows else self.rows,
            None if is_inside or not self.has_ragged_columns else self.columns,
        ]
        given = list(zip(self.operands, (self.first_row, self.first_column), bounds, strict=True))
        for operand, first, bound in given:
            operand.prepare(first, bound)

        def fetch(piece: Any) -> None:
            for operand, first, bound in given:
                operand.fetch(first_step(self.problem, tile.steps, piece), first, bound)

        def put(stage: Any) -> None:
            for operand in self.operands:
                operand.put(stage)

        if tile.stages == 1:
            with T.serial(low, high) as piece:
                fetch(piece)
                sync()
                put(0)
                sync()
                self._compute(0, is_inside)
            return
        with only_if(low < high if tile.splits > 1 else None):
            fetch(low)
            put(0)
        sync()
        with T.serial(low, high) as piece:
            stage = narrow(tirx.truncmod(piece - low, i64(2)))
            with only_if(piece + 1 < high):
                fetch(piece + 1)
            self._compute(stage, is_inside)
            with only_if(piece + 1 < high):
                put(1 - stage)
            sync()

    def _steps(self) -> tuple[Any, Any]:
        """Pieces of the reduction from the first to behind the last of the block's part."""
        tile = self.tile
        pieces = tirx.truncdiv(self.reduction + (tile.steps - 1), i64(tile.steps))
        if tile.splits == 1:
            return i64(0), pieces
        each = tirx.truncdiv(pieces + (tile.splits - 1), i64(tile.splits))
        low = once("first_piece", self.part * each)
        return low, once("end_piece", tirx.min(low + each, pieces))

    def _compute(self, stage: Any, is_inside: bool) -> None:
        """Multiply and add what is in shared memory."""
        tile = self.tile
        checks = tile.tails == "checked" and not is_inside
        row_place, column_place = self.thread_places(True), self.thread_places(False)
        with T.unroll(0, tile.steps) as k:
            for operand, values, rows in (
                (self.operands[0], self.row_values, True),
                (self.operands[1], self.column_values, False),
            ):
                self._read_shared(operand, values, rows, stage, k)
            with T.unroll(0, tile.thread_rows) as i, T.unroll(0, tile.thread_columns) as j:
                row, column = None, None
                if checks and self.has_ragged_rows:
                    row = self.first_row + wide(row_place(i)) < self.rows
                if checks and self.has_ragged_columns:
                    column = self.first_column + wide(column_place(j)) < self.columns
                with only_if(both(row, column)):
                    at = i * tile.thread_columns + j
                    store(self.sums, self.sums[at] + self.row_values[i] * self.column_values[j], [at], 1)

    def _read_shared(self, operand: Operand, values: Any, rows: bool, stage: Any, k: Any) -> None:
        """One step's values of a thread's rows, or columns, to registers."""
        tile, place = self.tile, self.thread_places(rows)
        own, parts = (
            (tile.thread_rows, tile.row_vthreads) if rows else (tile.thread_columns, tile.column_vthreads)
        )
        width = next(w for w in WIDTHS if own // parts % w == 0 and operand.extent // parts % w == 0)
        start = operand.base + stage * self.stage_elements + k * operand.pitch
        with T.unroll(0, own // width) as v:
            at = start + aligned(place(v * width), width)
            store(values, load(self.shared, [at], width), [v * width], width)

    def write_back(self, writer: Writer, is_inside: bool) -> None:
        """Write what exists of the block's tile."""
        tile = self.tile
        width = writer.width
        row_place, column_place = self.thread_places(True), self.thread_places(False)
        with T.unroll(0, tile.thread_rows) as i, T.unroll(0, tile.thread_columns // width) as v:
            row = self.first_row + wide(row_place(i))
            column = self.first_column + wide(column_place(v * width))
            exists = None if is_inside or not self.has_ragged_rows else row < self.rows
            past = None if is_inside or not self.has_ragged_columns else column < self.columns
            with only_if(both(exists, past)):
                at = i * tile.thread_columns + v * width
                writer.write(lambda u: self.sums[at + u], self.batch, row, column)
