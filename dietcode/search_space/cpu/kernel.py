"""What code generation of one micro-kernel shares: its tensors, and the pieces that its tiles are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ONE, ZERO, must_gather
from dietcode.search_space.cpu.axes import copies_rows
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.epilogue import apply, convert
from dietcode.search_space.memory import Memory
from dietcode.search_space.partition import ceildiv
from dietcode.search_space.problem import Problem
from dietcode.search_space.tir import (
    DTYPE,
    TirOps,
    first_lanes,
    i64,
    load,
    load_masked,
    small_buffer,
    splat,
    store,
    store_masked,
)

if TYPE_CHECKING:
    from dietcode.search_space.cpu.ahead import Ahead
    from dietcode.search_space.cpu.windowing import KeptLines

# One buffer for each row and vector, in registers.
Accumulators: TypeAlias = "list[list[Any]]"


@dataclass(frozen=True)
class Block:
    """Rows and vectors of the output that are accumulated in registers at once.

    Attributes
    ----------
    batch, row, column, panel : int64 expressions
        Flattened batch index, first row, first column, index of the first panel.
    rows, vectors : int
        Extents.
    slot : int64 expression
        Where in the task's partial sums the block lies, in elements.
    """

    batch: Any
    row: Any
    column: Any
    panel: Any
    rows: int
    vectors: int
    slot: Any = 0


def possible_rests(problem: Problem, letters: tuple[str, ...], extent: int) -> frozenset[int]:
    """What whole tiles of `extent` may leave over of a role; fixed extents rule much out.

    ``m = 37, extent = 8 -> {5}``; ``b = 4 and any m, extent = 8 -> {0, 4}``; ``any m -> {0, 1, … 7}``.
    """
    fixed = [size for size in (problem.extents[letter] for letter in letters) if size is not None]
    known = math.prod(fixed)
    if len(fixed) == len(letters):
        return frozenset({known % extent})
    return frozenset(range(0, extent, math.gcd(known, extent)))


class Kernel:
    """One micro-kernel of one problem, while its function is built.

    Attributes
    ----------
    batch, rows, columns, reduction, panels : int64 expressions
        Flattened extents, and panels of the column operand.
    memory : Memory
        The tensors.
    lanes, vectors : int
        Of one row of the tile.
    gathers : bool
        Whether tasks copy their rows.
    panel_source : str
        ``ahead``: the column operand comes packed; ``task``: each task packs; ``direct``: nobody does.
    gathered, packed, partial, spilled : Buffer or None
        What a task keeps: its rows, one tile's panels, sums of tiles set aside, one tile on its way out.
    lines : KeptLines or None
        What a task keeps of the row operand under a window.
    first_row, first_column, steps : int64 expressions
        Of the rows gathered and the columns packed now, and the range of the reduction that is computed.
    gathered_rows : int64 expression
        Rows that there is room for.
    next_columns : Ahead or None
        What a tile asks for of the column operand.
    """

    gathered: Any = None
    packed: Any = None
    partial: Any = None
    spilled: Any = None
    lines: KeptLines | None = None
    gathered_rows: Any = None
    next_columns: Ahead | None = None
    first_row: Any = None
    first_column: Any = None
    steps: tuple[Any, Any]

    def __init__(
        self,
        problem: Problem,
        micro_kernel: MicroKernel,
        limits: Limits,
        pointers: dict[str, Any],
        extents: dict[str, Any],
    ) -> None:
        self.problem, self.tile, self.limits = problem, micro_kernel, limits
        self.ops = TirOps()
        self.lanes = limits.lanes_of(micro_kernel)
        self.vectors = micro_kernel.columns // self.lanes
        self.batch, self.rows, self.columns, self.reduction = (
            i64(size) if isinstance(size, int) else size for size in problem.sizes(extents)
        )
        self.panels = ceildiv(self.columns, self.lanes, self.ops)
        self.steps = (i64(0), self.reduction)
        self.memory = Memory(problem, extents, pointers, self.lanes, self.panels, self.ops)
        self.gathers = copies_rows(problem, micro_kernel) and not micro_kernel.window
        if problem.column_operand_constant:
            self.panel_source = "ahead"
        else:
            self.panel_source = "direct" if micro_kernel.direct else "task"

    @property
    def gathers_ranges(self) -> bool:
        """Whether the rows that tasks copy lie range by range of the steps."""
        return self.gathers and bool(self.tile.steps) and not must_gather(self.problem)

    @property
    def gathered_steps(self) -> Any:
        """Elements from one gathered row to the next."""
        return i64(self.tile.steps) if self.gathers_ranges else self.reduction

    @property
    def gathered_elements(self) -> Any:
        """Elements kept of each gathered row."""
        if not self.gathers_ranges:
            return self.reduction
        return ceildiv(self.reduction, self.tile.steps, self.ops) * self.tile.steps

    @property
    def packed_steps(self) -> Any:
        """Steps of the reduction that a panel packed by a task has room for."""
        return i64(self.tile.steps) if self.tile.steps else self.reduction

    @property
    def spills(self) -> bool:
        """Whether no tile can be written in whole vectors."""
        return not self.memory.whole_vectors

    @contextmanager
    def ranges(self) -> Iterator[tuple[Any, Any]]:
        """A loop over the ranges of steps: the bounds of each."""
        steps, bind = self.tile.steps, self.ops.bind
        with T.serial(i64(0), ceildiv(self.reduction, steps, self.ops)) as step:
            yield bind(step * steps), bind(tirx.min((step + 1) * steps, self.reduction))

    def tasks(self) -> Any:
        """A parallel loop with one turn for each core."""
        num_cores = self.limits.num_cores
        # A loop without annotations is dropped where it has one turn; its buffers would then be lifted out
        # of the device's scope, which does not compile.
        return T.parallel(i64(0), i64(num_cores), annotations={"dietcode.tasks": num_cores})

    def part(self, total: Any, part: Any, parts: Any) -> tuple[Any, Any]:
        """Bounds of one of `parts` nearly equal ranges of ``0…total``."""
        return (
            self.ops.bind(tirx.truncdiv(part * total, parts)),
            self.ops.bind(tirx.truncdiv((part + 1) * total, parts)),
        )

    def reserve_spilled(self, vectors: int) -> None:
        """Room for `vectors` of each row of a tile that leaves in parts."""
        self.spilled = small_buffer(self.tile.rows * vectors * self.lanes)

    def accumulators(self, block: Block) -> Accumulators:
        """Accumulators of a block, not set yet.

        There is one buffer a vector: a larger one would be written and read for each k.
        """
        return [[small_buffer(self.lanes) for _ in range(block.vectors)] for _ in range(block.rows)]

    def start(self, accumulators: Accumulators, block: Block) -> None:
        """Set to zero, or to what an earlier range of the reduction came to."""
        if self.partial is None:
            self._clear(accumulators)
            return
        with T.If(self.steps[0] == 0):
            with T.Then():
                self._clear(accumulators)
            with T.Else():
                for place, accumulator in self._places(accumulators, block):
                    store(accumulator, load(self.partial, [place], self.lanes), [0], self.lanes)

    def finish(self, accumulators: Accumulators, block: Block, write: Callable[[], None]) -> None:
        """Write, or set aside where there is more to come of the reduction."""
        if self.partial is None:
            write()
            return
        with T.If(self.steps[1] == self.reduction):
            with T.Then():
                write()
            with T.Else():
                for place, accumulator in self._places(accumulators, block):
                    store(self.partial, load(accumulator, [0], self.lanes), [place], self.lanes)

    def _clear(self, accumulators: Accumulators) -> None:
        zero = splat(tirx.const(0, DTYPE), self.lanes)
        for row in accumulators:
            for accumulator in row:
                store(accumulator, zero, [0], self.lanes)

    def _places(self, accumulators: Accumulators, block: Block) -> list[tuple[Any, Any]]:
        """Each accumulator with its place among the partial sums."""
        return [
            (block.slot + (i * self.vectors + v) * self.lanes, accumulator)
            for i, row in enumerate(accumulators)
            for v, accumulator in enumerate(row)
        ]

    def row_fetch(self, batch: Any, rows: list[Any]) -> Callable[[int, Any], Any]:
        """``(i, k) -> A[rows[i], k]``, where `rows` are flattened indices."""
        if self.lines is not None:
            lines = self.lines
            return lambda i, _: lines.load(rows[i])
        if self.gathers:
            low = self.steps[0] if self.gathers_ranges else 0
            return lambda i, k: load(self.gathered, [self.gathered_place(rows[i]) + (k - low)], 1)
        return self.memory.row_fetch(batch, rows)

    def gathered_place(self, row: Any) -> Any:
        """Where a gathered row begins, or the part of it of the steps of now."""
        begin = self.steps[0] * self.gathered_rows if self.gathers_ranges else 0
        return begin + (row - self.first_row) * self.gathered_steps

    def panel_fetch(self, batch: Any, panels: list[Any], cut: bool = False) -> Callable[[int, Any], Any]:
        """``(v, k) -> B[lanes of panels[v], k]``; `cut` where the last column may be within a panel."""
        if self.panel_source == "task":
            first, low = tirx.truncdiv(self.first_column, self.lanes), self.steps[0]
            steps = self.packed_steps
            return lambda v, k: load(
                self.packed, [((panels[v] - first) * steps + (k - low)) * self.lanes], self.lanes
            )
        if self.panel_source == "direct":
            return self.memory.column_fetch(batch, panels, self.columns if cut else None)
        return self.memory.panel_fetch(batch, panels)

    def accumulate(
        self,
        accumulators: Accumulators,
        row_fetch: Callable[[int, Any], Any],
        panel_fetch: Callable[[int, Any], Any],
        next_rows: Sequence[Ahead] = (),
    ) -> None:
        """``acc[i, v] += A[i, k] · B[k, v]`` over the reduction, in order whatever the tile.

        Each step asks for what is read next, see `dietcode.search_space.cpu.ahead`.
        """
        ahead = [*next_rows, *([] if self.next_columns is None else [self.next_columns])]
        with self._reduction_steps() as k:
            for part in ahead:
                part.ask(k)
            panels = [T.Bind(panel_fetch(v, k)) for v in range(len(accumulators[0]))]
            for i, row in enumerate(accumulators):
                value = splat(row_fetch(i, k), self.lanes)
                for accumulator, panel in zip(row, panels, strict=True):
                    store(accumulator, load(accumulator, [0], self.lanes) + value * panel, [0], self.lanes)

    @contextmanager
    def _reduction_steps(self) -> Iterator[Any]:
        """The loop, or loops, over the range of the reduction that is computed."""
        if self.lines is None:
            with T.serial(*self.steps) as k:
                yield k
        else:
            with self.lines.steps() as k:
                yield k

    def write(
        self, value: Any, batch: Any, row: Any, column: Any, lanes: int, count: Any | None = None
    ) -> None:
        """Write one vector, its first `count` lanes, or one element of the output, epilogue applied."""
        buffers, views = self.memory.buffers, self.memory.views
        mask = None if count is None else first_lanes(count, lanes)

        def read(tensor: str) -> Any:
            place = self.memory.place(tensor, batch, row, column)
            step = views[tensor].stride(self.problem.columns)
            if lanes > 1 and step == ZERO:
                return splat(load(buffers[tensor], [place], 1), lanes)
            assert lanes == 1 or step == ONE
            if mask is not None:
                return load_masked(buffers[tensor], place, lanes, mask)
            return load(buffers[tensor], [place], lanes)

        for stage in self.problem.stages:
            value = apply(stage, value, lanes, read)
        value = convert(value, self.problem.output_dtype, lanes)
        output = self.problem.output
        place = self.memory.place(output, batch, row, column)
        if mask is None:
            store(buffers[output], value, [place], lanes)
        else:
            store_masked(buffers[output], value, place, mask)

    def write_back(self, accumulators: Accumulators, block: Block) -> None:
        """Write a block that lies inside."""
        if self.spills:
            self.write_part(accumulators, block, i64(block.rows), i64(block.vectors * self.lanes))
            return
        for i, row in enumerate(accumulators):
            for v, accumulator in enumerate(row):
                value = load(accumulator, [0], self.lanes)
                self.write(value, block.batch, block.row + i, block.column + v * self.lanes, self.lanes)

    def write_columns(self, accumulators: Accumulators, block: Block, num_columns: Any) -> None:
        """Write all rows of a block, and the columns of it that exist, one at least of the last vector."""
        if self.spills:
            self.write_part(accumulators, block, i64(block.rows), num_columns)
            return
        for i, row in enumerate(accumulators):
            for v, accumulator in enumerate(row):
                left = None if v < block.vectors - 1 else num_columns - v * self.lanes
                value, column = load(accumulator, [0], self.lanes), block.column + v * self.lanes
                self.write(value, block.batch, block.row + i, column, self.lanes, left)

    def write_part(self, accumulators: Accumulators, block: Block, num_rows: Any, num_columns: Any) -> None:
        """Spill a block, then copy the part that exists; keeps the accumulators in registers until then."""
        width = block.vectors * self.lanes
        for i, row in enumerate(accumulators):
            for v, accumulator in enumerate(row):
                value = load(accumulator, [0], self.lanes)
                store(self.spilled, value, [i * width + v * self.lanes], self.lanes)
        batch, lanes = block.batch, self.lanes
        with T.serial(i64(0), num_rows) as i:
            if self.spills:
                with T.serial(i64(0), num_columns) as j:
                    self.write(self.spilled[i * width + j], batch, block.row + i, block.column + j, 1)
                return
            with T.serial(i64(0), ceildiv(num_columns, lanes, self.ops)) as v:
                value = load(self.spilled, [i * width + v * lanes], lanes)
                left = num_columns - v * lanes
                self.write(value, batch, block.row + i, block.column + v * lanes, lanes, left)
