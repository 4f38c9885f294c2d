"""A tile of one operand, while the code of a thread block is built: from global to shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cuda.addressing import Addresses, Part
from dietcode.search_space.cuda.banks import line_exchange
from dietcode.search_space.cuda.building import aligned, both, local, once, only_if, wide
from dietcode.search_space.cuda.fetching import WIDTHS, plan_fetch
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.epilogue import widen
from dietcode.search_space.memory import Memory
from dietcode.search_space.problem import Problem
from dietcode.search_space.tir import DTYPE, i64, load, store

_NOWHERE = {"int32": -(1 << 30), "int64": -(1 << 60)}  # a position that is outside whatever the step adds


class OperandBlock(Protocol):
    """The block of threads whose operand it is, as `dietcode.search_space.cuda.block.BlockKernel` has it."""

    problem: Problem
    micro_kernel: CudaMicroKernel
    memory: Memory
    thread: Any
    batch: Any
    reduction: Any
    has_ragged_reduction: bool
    shared: Any
    stage_elements: int


class Operand:
    """A tile of one operand: from global memory to registers, from there to shared memory.

    Attributes
    ----------
    base : int
        Offset of its tiles in shared memory, in elements.
    pitch : int
        Elements from one step to the next there.
    exchange : tuple of int or None
        As `dietcode.search_space.cuda.banks.line_exchange` has it.
    addresses : Addresses
        Offsets of its elements in global memory.
    """

    def __init__(self, block: OperandBlock, name: str, base: int) -> None:
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
        self.apart = micro_kernel.threads // self.inner
        self.exchange: tuple[int, int] | None = None
        if (
            micro_kernel.unit == "simt"
            and self.plan.along_reduction
            and micro_kernel.threads % self.inner == 0
        ):
            self.exchange = line_exchange(
                self.pitch, self.extent, self.inner, width, self.apart, problem.storage(name).itemsize
            )
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
        if self.exchange is not None:
            shift, bit = self.exchange
            first, own = (divide(self.block.thread, self.inner) for divide in (tirx.truncdiv, tirx.truncmod))
            outer = (first ^ (tirx.truncdiv(own, 1 << shift) * (1 << bit))) + turn * self.apart
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
