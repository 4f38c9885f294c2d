"""Some positions along a line of the output, and some vectors of channels, of a depthwise convolution.

Products are added in the order of the window, whatever the tile, and what lies outside of the data counts as
zeros in all of them: a position has the same bits whatever it was computed with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ZERO
from dietcode.search_space.cpu.rows.streaming import stream
from dietcode.search_space.depthwise import DepthwiseProblem
from dietcode.search_space.epilogue import apply, convert
from dietcode.search_space.memory import Memory
from dietcode.search_space.problem import Window
from dietcode.search_space.tir import (
    FROM_L2,
    TirOps,
    as_int64,
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
from dietcode.search_space.vectors import const, named

_LINE = 16  # elements of a cache line
_MOST_UNROLLED = 400  # products of vectors; beyond it code grows and is not faster


@dataclass(frozen=True)
class Line:
    """Where a line of the output is.

    Attributes
    ----------
    image : int64 expression
        Offset of its image in the data.
    row : int64 expression
        Flattened row index of its first position.
    top : int64 expression
        Line of the data under the first one of the window; negative above the data.
    """

    image: Any
    row: Any
    top: Any


@dataclass(frozen=True)
class Tile:
    """What is computed together.

    Attributes
    ----------
    first : int64 expression
        Position along the line.
    panel : int64 expression
        First vector of channels.
    vectors : int
        Of channels.
    channels : int
        Those of the last vector that exist.
    """

    first: Any
    panel: Any
    vectors: int
    channels: int


@dataclass(frozen=True)
class DepthwiseBody:
    """Code for one tile.

    Attributes
    ----------
    panels : Buffer
        The packed kernel, ``[panel, position in the window, lane]``.
    rows : int
        Positions of a tile.
    streams : bool
        Whether outputs are written past the caches.
    """

    problem: DepthwiseProblem
    memory: Memory
    panels: Any
    rows: int
    lanes: int
    streams: bool = False

    @property
    def across(self) -> Window | None:
        """The window from line to line; None where there are only lines."""
        windows = self.problem.spatial
        return windows[0] if len(windows) > 1 else None

    @property
    def along(self) -> Window:
        """The window along a line."""
        return self.problem.spatial[-1]

    def size(self, index: str) -> Any:
        """Return the extent of an index: a number where it is fixed."""
        fixed = self.problem.extents[index]
        return self.memory.extents[index] if fixed is None else fixed

    @property
    def positions(self) -> dict[int, list[tuple[int, int]]]:
        """Elements of the data along a line that a tile reads, ascending, with what multiplies them.

        Each is ``position after the first one -> [(row of the tile, position in the window)]``.
        """
        window = self.along
        found: dict[int, list[tuple[int, int]]] = {}
        for i in range(self.rows):
            for t in range(self.size(window.kernel)):
                found.setdefault(i * window.stride + t * window.dilation, []).append((i, t))
        return dict(sorted(found.items()))

    def is_inside(self, line: Line, tile: Tile) -> Any:
        """Return whether a whole tile exists and reads nothing outside of the data."""
        along, across = self.along, self.across
        begin = tile.first * along.stride - along.padding
        inside = [
            tile.first + self.rows <= self.size(along.output),
            begin >= 0,
            begin + (list(self.positions)[-1] + 1) <= self.size(along.axis),
        ]
        if across is not None:
            reach = across.dilation * (self.size(across.kernel) - 1)
            inside += [line.top >= 0, line.top + reach < self.size(across.axis)]
        result = inside[0]
        for condition in inside[1:]:
            result = tirx.And(result, condition)
        return result

    def emit(self, line: Line, tile: Tile, inside: bool) -> None:
        """Emit one tile.

        Parameters
        ----------
        inside : bool
            Whether nothing outside of the data is read, and all positions exist.
        """
        accumulators = [[small_buffer(self.lanes) for _ in range(tile.vectors)] for _ in range(self.rows)]
        for own in accumulators:
            for accumulator in own:
                store(accumulator, const(0.0, self.lanes), [0], self.lanes)
        self._prefetch(line, tile)
        exists = {} if inside else self._existing(tile)
        with self._window_lines(tile) as lines:
            for r in lines:
                self._line(accumulators, line, tile, r, exists)
        for i in range(self.rows):
            if inside:
                self._write(accumulators[i], line, tile, i)
                continue
            with T.If(tile.first + i < self.size(self.along.output)), T.Then():
                self._write(accumulators[i], line, tile, i)

    @contextmanager
    def _window_lines(self, tile: Tile) -> Iterator[Sequence[Any]]:
        """Yield the lines of the window; one of a loop where their code would be long."""
        height = 1 if self.across is None else self.size(self.across.kernel)
        products = height * self.size(self.along.kernel) * self.rows * tile.vectors
        if products <= _MOST_UNROLLED:
            yield range(height)
            return
        with T.serial(i64(0), i64(height)) as r:
            yield [r]

    def _prefetch(self, line: Line, tile: Tile) -> None:
        """Prefetch what the next line of the output reads below a tile, and this one does not.

        A core's own prefetchers would follow as many streams as a window has elements.
        """
        along, across, memory = self.along, self.across, self.memory
        if across is None:  # the next positions follow in memory
            return
        strides = memory.views[self.problem.row_operand].axis_strides
        below = line.top + (across.dilation * (self.size(across.kernel) - 1) + 1)
        position = tile.first * along.stride - along.padding + along.dilation * (self.size(along.kernel) - 1)
        down_step, step = memory.value(strides[across.axis]), memory.value(strides[along.axis])
        start = TirOps().bind(line.image + below * down_step + position * step + tile.panel * self.lanes)
        num_down, num_along = min(across.stride, self.size(across.kernel)), self.rows * along.stride
        data = memory.buffers[self.problem.row_operand]
        # Addresses past the data may have no memory, and looking for it takes long.
        end = start + (num_down - 1) * down_step + (num_along - 1) * step + tile.vectors * self.lanes
        with T.If(end <= data.shape[0]), T.Then():
            for down in range(num_down):
                for i in range(num_along):
                    for column in range(0, tile.vectors * self.lanes, _LINE):
                        prefetch(data, start + (down * down_step + i * step + column), FROM_L2)

    def _existing(self, tile: Tile) -> dict[int, Any]:
        """Return whether each position along the line is one of the data."""
        begin = TirOps().bind(tile.first * self.along.stride - self.along.padding)
        extent = self.size(self.along.axis)
        return {
            position: named(tirx.And(begin + position >= 0, begin + position < extent), 1, "bool")
            for position in self.positions
        }

    def _line(self, accumulators: Any, line: Line, tile: Tile, r: Any, exists: dict[int, Any]) -> None:
        """Add the products of one line of the window."""
        problem, along, across, lanes = self.problem, self.along, self.across, self.lanes
        strides = self.memory.views[problem.row_operand].axis_strides
        step = self.memory.value(strides[along.axis])
        start = line.image + tile.panel * lanes
        exists_line = None
        if across is not None:
            at = line.top + r * across.dilation
            if exists:
                exists_line = named(tirx.And(at >= 0, at < self.size(across.axis)), 1, "bool")
                at = _clamped(at, self.size(across.axis))
            start = start + at * self.memory.value(strides[across.axis])
        first = tile.first * along.stride - along.padding
        start = TirOps().bind(start if exists else start + first * step)
        data = self.memory.buffers[problem.row_operand]
        width = self.size(along.kernel)
        size = width * (1 if across is None else self.size(across.kernel)) * lanes
        weights = [
            [
                named(load(self.panels, [(tile.panel + v) * size + (r * width + t) * lanes], lanes), lanes)
                for v in range(tile.vectors)
            ]
            for t in range(width)
        ]
        for position, products in self.positions.items():
            offset = start + position * step
            if exists:
                offset = TirOps().bind(start + _clamped(first + position, self.size(along.axis)) * step)
            for v in range(tile.vectors):
                mask = None
                if v == tile.vectors - 1 and tile.channels < lanes:
                    mask = first_lanes(i64(tile.channels), lanes)
                if exists:
                    there = exists[position]
                    there = there if exists_line is None else tirx.And(there, exists_line)
                    there = tirx.Broadcast(there, lanes)
                    mask = there if mask is None else tirx.And(mask, there)
                if mask is None:
                    value = load(data, [offset + v * lanes], lanes)
                else:
                    value = load_masked(data, offset + v * lanes, lanes, mask)
                value = named(value, lanes)
                for i, t in products:
                    accumulator = accumulators[i][v]
                    store(accumulator, load(accumulator, [0], lanes) + value * weights[t][v], [0], lanes)

    def _write(self, accumulators: Sequence[Any], line: Line, tile: Tile, i: int) -> None:
        """Write one position, epilogue applied."""
        problem, memory, lanes = self.problem, self.memory, self.lanes
        row = TirOps().bind(line.row + tile.first + i)
        for v in range(tile.vectors):
            is_cut = v == tile.vectors - 1 and tile.channels < lanes
            mask = first_lanes(i64(tile.channels), lanes) if is_cut else None
            column = (tile.panel + v) * lanes

            def read(tensor: str, column: Any = column, mask: Any = mask) -> Any:
                offset = memory.element_offset(tensor, i64(0), row, column)
                buffer = memory.buffers[tensor]
                if memory.views[tensor].stride(problem.columns) == ZERO:
                    return splat(load(buffer, [offset], 1), lanes)
                if mask is not None:
                    return load_masked(buffer, offset, lanes, mask)
                return load(buffer, [offset], lanes)

            value = load(accumulators[v], [0], lanes)
            for stage in problem.stages:
                value = apply(stage, value, lanes, read)
            value = convert(value, problem.output_dtype, lanes)
            offset = as_int64(memory.element_offset(problem.output, i64(0), row, column))
            buffer = memory.buffers[problem.output]
            if is_cut and tile.channels == 1:
                # LLVM writes too much where the one lane of a mask was rounded to 16 bits.
                value = tirx.Shuffle([value], [tirx.IntImm("int32", 0)])
                store(buffer, value, [offset], 1)
            elif mask is None and self.streams:
                stream(buffer, value, offset)
            elif mask is None:
                store(buffer, value, [offset], lanes)
            else:
                store_masked(buffer, value, offset, mask)


def _clamped(position: Any, extent: Any) -> Any:
    """Return the nearest position of the data.

    A load that is masked as a whole reads nothing, but takes hundreds of cycles where there is no memory.
    """
    return tirx.max(tirx.min(position, extent - 1), 0)
