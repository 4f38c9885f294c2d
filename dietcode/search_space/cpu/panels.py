"""Packing of a tile of columns into panels, vectors wide, by a task.

    packed[v, k - low, lane] = B[column + v·lanes + lane, k]   for k in low…high

Lanes past the last column hold elements of other columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ONE, has_windows, size_of
from dietcode.search_space.cpu.copying import WindowStarts, split_index
from dietcode.search_space.cpu.kernel import Kernel
from dietcode.search_space.cpu.sources import ColumnTile, KRange
from dietcode.search_space.problem import Window
from dietcode.search_space.tir import DTYPE, first_lanes, i64, load, load_masked, splat, store

_QUAD = 4  # elements of a quarter of the widest register


def pack_panels(
    kernel: Kernel, operand: str, packed: Any, pitch: Any, tile: ColumnTile, k_range: KRange
) -> None:
    """Pack a range of the reduction of a tile of columns.

    Parameters
    ----------
    packed : Buffer
        What is written.
    pitch : int64 expression
        Steps of the reduction that a panel of it has room for.
    tile, k_range
        Which columns, and which range of the reduction.
    """
    problem, memory, lanes = kernel.problem, kernel.memory, kernel.lanes
    view, bind = memory.views[operand], kernel.ops.bind
    source = bind(memory.offset(view, problem.batch, tile.batch))
    with T.serial(i64(0), i64(kernel.vectors)) as v:
        first = bind(tile.column + v * lanes)
        # Nothing is read past the last panel, so nothing needs to be packed.
        with T.If(first < kernel.columns), T.Then():
            panel = _Panel(kernel, operand, packed, bind(v * pitch * lanes), source, first, k_range)
            if has_windows(problem, operand):
                panel.pack_windows(tile.batch)
            elif view.stride(problem.columns) == ONE:
                panel.pack_vectors()
            elif view.stride(problem.reduction) == ONE and lanes > 1:
                panel.pack_squares()
            else:
                panel.pack_elements(k_range.low)


@dataclass(frozen=True)
class _Panel:
    """A panel while it is packed.

    Attributes
    ----------
    packed, offset
        The buffer, and the panel's offset in it.
    source : int64 expression
        Offset of its batch index in the operand.
    first : int64 expression
        First column.
    """

    kernel: Kernel
    operand: str
    packed: Any
    offset: Any
    source: Any
    first: Any
    k_range: KRange

    @property
    def _buffer(self) -> Any:
        return self.kernel.memory.buffers[self.operand]

    def _column(self, column: Any) -> Any:
        """Return the offset of a column from `source`."""
        memory, problem = self.kernel.memory, self.kernel.problem
        return memory.offset(memory.views[self.operand], problem.columns, column)

    def _step(self, k: Any) -> Any:
        """Return the offset of a step of the reduction."""
        memory, problem = self.kernel.memory, self.kernel.problem
        return memory.offset(memory.views[self.operand], problem.reduction, k)

    def _target(self, k: Any) -> Any:
        """Return the offset of a step's lanes in the buffer."""
        return self.offset + (k - self.k_range.low) * self.kernel.lanes

    def pack_elements(self, low: Any) -> None:
        """Pack element by element, from the step `low` on; the last column for those past it."""
        with T.serial(low, self.k_range.high) as k, T.serial(i64(0), i64(self.kernel.lanes)) as lane:
            clamped = tirx.min(self.first + lane, self.kernel.columns - 1)
            value = load(self._buffer, [self.source + (self._column(clamped) + self._step(k))], 1)
            store(self.packed, value, [self._target(k) + lane], 1)

    def pack_vectors(self) -> None:
        """Pack by vectors: columns are next to each other."""
        lanes = self.kernel.lanes
        mask = first_lanes(self.kernel.columns - self.first, lanes)
        with T.serial(self.k_range.low, self.k_range.high) as k:
            value = load_masked(self._buffer, self.source + self.first + self._step(k), lanes, mask)
            store(self.packed, value, [self._target(k)], lanes)

    def pack_squares(self) -> None:
        """Pack squares of lanes × lanes, transposed in registers: the reduction is contiguous."""
        lanes, bind, low = self.kernel.lanes, self.kernel.ops.bind, self.k_range.low
        starts = []
        for lane in range(lanes):
            clamped = tirx.min(self.first + lane, self.kernel.columns - 1)
            starts.append(bind(self.source + self._column(clamped) + low))
        squares = bind(tirx.truncdiv(self.k_range.high - low, lanes))
        with T.serial(i64(0), squares) as square:
            k = square * lanes
            vectors = transposed(
                lambda lane, step: load(self._buffer, [starts[lane] + (k + step)], _QUAD), lanes
            )
            for lane, vector in enumerate(vectors):
                store(self.packed, vector, [self.offset + (k + lane) * lanes], lanes)
        self.pack_elements(low + squares * lanes)

    def pack_windows(self, batch: Any) -> None:
        """Pack positions of windows: by vectors within one row of the output, else one by one."""
        problem, memory, lanes = self.kernel.problem, self.kernel.memory, self.kernel.lanes
        last = problem.columns[-1]
        width = memory.value(size_of(problem, last))
        position = tirx.truncmod(self.first, width)
        window = next((w for w in problem.windows if w.output == last), None)
        if memory.views[self.operand].strides[last] != ONE or window is None:
            self._pack_positions(batch)
            return
        with T.If(tirx.all(position + lanes <= width, *self._inside(window, position))):
            with T.Then():
                self._pack_position(batch, self.first, 0, lanes)
            with T.Else():
                self._pack_positions(batch)

    def _inside(self, window: Window, position: Any) -> tuple[Any, Any]:
        """Return whether a position of a window, and the `lanes - 1` that follow, lie inside."""
        problem, memory = self.kernel.problem, self.kernel.memory
        reach = window.dilation * (memory.value(size_of(problem, window.kernel)) - 1)
        begin = position * window.stride - window.padding
        axis = memory.value(size_of(problem, window.axis))
        return begin >= 0, begin + self.kernel.lanes + reach <= axis

    def _pack_positions(self, batch: Any) -> None:
        with T.serial(i64(0), i64(self.kernel.lanes)) as lane:
            column = self.kernel.ops.bind(tirx.min(self.first + lane, self.kernel.columns - 1))
            self._pack_position(batch, column, lane, 1)

    def _pack_position(self, batch: Any, column: Any, lane: Any, lanes: int) -> None:
        """Pack `lanes` columns from `column` on into the panel's lanes from `lane` on."""
        kernel, problem = self.kernel, self.kernel.problem
        index = split_index(kernel, problem.columns, column) | split_index(kernel, problem.batch, batch)
        windows = WindowStarts.of(kernel, self.operand, index)
        start = self.source + self._column(column) - windows.padding
        with T.serial(self.k_range.low, self.k_range.high) as k:
            source = kernel.ops.bind(start + self._step(k))
            target = self._target(k) + lane
            k_indices = split_index(kernel, problem.reduction, k)
            condition = tirx.all(*(windows.holds(w, k_indices[w.kernel]) for w in windows.windows))
            with _or_zeros(condition, self.packed, target, lanes):
                store(self.packed, load(self._buffer, [source], lanes), [target], lanes)


def transposed(quad: Callable[[int, int], Any], lanes: int) -> list[Any]:
    """Return the columns of a square of lanes × lanes, whose ``quad(row, k)`` loads four elements from k on.

    Each register is put together from quads, four rows apart, while it is loaded; then squares of four are
    transposed within each quarter of a register, which shuffles half as often as halves would.
    """
    columns = []
    quads = range(0, lanes, _QUAD)

    def shuffled(first: Any, second: Any, pattern: tuple[int, ...]) -> Any:
        """Shuffle every quarter by the same pattern; 4 to 7 are the second register's."""
        indices = [i64(at + p % _QUAD + (p >= _QUAD) * lanes) for at in quads for p in pattern]
        return T.Bind(tirx.Shuffle([first, second], indices))

    for k in quads:
        rows = [
            T.Bind(tirx.Shuffle([quad(row + at, k) for at in quads], [i64(n) for n in range(lanes)]))
            for row in range(_QUAD)
        ]
        for pairs in ((0, 4, 1, 5), (2, 6, 3, 7)):
            upper, lower = shuffled(rows[0], rows[1], pairs), shuffled(rows[2], rows[3], pairs)
            columns += [shuffled(upper, lower, (0, 1, 4, 5)), shuffled(upper, lower, (2, 3, 6, 7))]
    return columns


@contextmanager
def _or_zeros(condition: Any, target: Any, offset: Any, lanes: int) -> Iterator[None]:
    """Do what is emitted inside where `condition` holds, and write zeros elsewhere."""
    with T.If(condition):
        with T.Then():
            yield
        with T.Else():
            store(target, splat(tirx.const(0, DTYPE), lanes), [offset], lanes)
