"""What a tile asks for before it is needed.

A core's own prefetchers start anew with every row and every panel, and know nothing of the tile that comes
next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ONE, ZERO, size_of, windows_of
from dietcode.search_space.tir import FROM_L2, i64, prefetch

if TYPE_CHECKING:
    from dietcode.search_space.cpu.kernel import Block, Kernel

_LINE = 16  # elements of a cache line
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Ahead:
    """A line of `buffer` that each step of the reduction asks for: `place` where k is 0, then `step` further.

    Attributes
    ----------
    far : bool
        Whether L2 is near enough, since it is not read by the next tile.
    """

    buffer: Any
    place: Any
    step: Any
    far: bool = False

    def ask(self, k: Any) -> None:
        """Emit the request of one step."""
        prefetch(self.buffer, self.place + k * self.step, FROM_L2 if self.far else 0)


@dataclass(frozen=True)
class Place:
    """Where a tile of columns lies.

    Attributes
    ----------
    batch, column : int64 expressions
        Flattened indices.
    """

    batch: Any
    column: Any


def next_rows(kernel: Kernel, at: Block) -> list[Ahead]:
    """The rows that are read after a tile, where they are one piece of memory."""
    if kernel.lines is not None:
        return [Ahead(*part) for part in kernel.lines.next_part(at)]
    row = at.row + at.rows
    if kernel.gathers and (kernel.gathers_ranges or not kernel.tile.steps):
        low = kernel.steps[0] if kernel.gathers_ranges else 0
        return [Ahead(kernel.gathered, kernel.gathered_place(row) - low * at.rows, at.rows)]
    if kernel.tile.steps:
        return []
    start = kernel.memory.row_start(at.batch, row)
    return [] if start is None else [Ahead(*start, at.rows)]


def next_columns(kernel: Kernel, now: Place, after: Place, turn: Any) -> Ahead | None:
    """A part of what is read, or packed, of the column operand once all rows have met the columns of now.

    Each row of tiles asks for one vector of it, or a piece as large, until they have asked for all.

    Parameters
    ----------
    now, after : Place
        The tile of columns, and the one that follows it.
    turn : int64 expression
        How many tiles of rows came before this one.
    """
    if _stays_in_l2(kernel) or _overflows_l2(kernel):
        return None
    first, place = _following(kernel, now, after)
    memory, lanes = kernel.memory, kernel.lanes
    column = place.column + tirx.min(turn, kernel.vectors - 1) * lanes
    if kernel.panel_source != "ahead":
        return _next_unpacked(kernel, Place(place.batch, column), first)
    start = memory.panel_place(place.batch, tirx.truncdiv(column, lanes)) + (first - kernel.steps[0]) * lanes
    buffer = memory.buffers[kernel.problem.column_operand]
    return Ahead(buffer, kernel.ops.bind(start), lanes, far=True)


def _following(kernel: Kernel, now: Place, after: Place) -> tuple[Any, Place]:
    """The step of the reduction that is next, and of which columns: the same ones, while there are more."""
    if not kernel.tile.steps:
        return i64(0), after
    bind, high = kernel.ops.bind, kernel.steps[1]
    more = high < kernel.reduction
    return bind(tirx.Select(more, high, i64(0))), Place(
        bind(tirx.Select(more, now.batch, after.batch)), bind(tirx.Select(more, now.column, after.column))
    )


def _next_unpacked(kernel: Kernel, place: Place, first: Any) -> Ahead | None:
    """`next_columns` of an operand not packed ahead, where columns or steps are next to each other."""
    problem, memory, bind = kernel.problem, kernel.memory, kernel.ops.bind
    operand = problem.column_operand
    view, buffer = memory.views[operand], memory.buffers[operand]
    across, along = view.stride(problem.columns), view.stride(problem.reduction)
    if windows_of(problem, operand) or across is None or along is None:
        return None
    start = memory.offset(view, problem.batch, place.batch) + place.column * memory.value(across)
    if across == ONE:
        step = memory.value(along)
        return Ahead(buffer, bind(start + (first - kernel.steps[0]) * step), step, far=True)
    if along == ONE and across == size_of(problem, problem.reduction) and not kernel.tile.steps:
        return Ahead(buffer, bind(start), kernel.lanes, far=True)
    return None


def ask_for_output(kernel: Kernel, at: Block) -> None:
    """Ask for the lines that a block is written to, and for what its epilogue reads of each row, unless it is
    set aside first.
    """
    with ExitStack() as last:
        if kernel.tile.steps:
            last.enter_context(T.If(kernel.steps[1] >= kernel.reduction))
            last.enter_context(T.Then())
        _ask_for_output(kernel, at)


def _ask_for_output(kernel: Kernel, at: Block) -> None:
    for tensor in _written(kernel):
        for i in range(at.rows):
            for column in range(0, at.vectors * kernel.lanes, _LINE):
                place = kernel.memory.place(tensor, at.batch, at.row + i, at.column + column)
                prefetch(kernel.memory.buffers[tensor], place, FROM_L2)


def _written(kernel: Kernel) -> Iterator[str]:
    problem, memory = kernel.problem, kernel.memory
    if not memory.whole_vectors:
        return
    for tensor in (problem.output, *(stage.tensor for stage in problem.stages)):
        if tensor is None:
            continue
        view = memory.views[tensor]
        if view.stride(problem.columns) == ONE and view.stride(problem.rows) != ZERO:
            yield tensor


def _stays_in_l2(kernel: Kernel) -> bool:
    """Whether the whole column operand takes less than half of the cache, beside a block of rows."""
    sizes = (kernel.columns, kernel.reduction)
    if kernel.panel_source != "ahead" or not all(isinstance(size, tirx.IntImm) for size in sizes):
        return False
    return int(kernel.columns) * int(kernel.reduction) * _FLOAT_BYTES <= kernel.limits.l2_bytes // 2


def _overflows_l2(kernel: Kernel) -> bool:
    """Whether what is read next takes more than a quarter of the cache, of which half is for rows."""
    steps: Any = i64(kernel.tile.steps) if kernel.tile.steps else kernel.reduction
    if not isinstance(steps, tirx.IntImm):
        return False
    return int(steps) * kernel.tile.columns * _FLOAT_BYTES > kernel.limits.l2_bytes // 4
