"""How a task copies what it reads: its rows next to each other, its columns into panels.

Both are caches of a task, a block of rows and one tile of columns, so that what is copied is read while it is
near. A window's zeros are written here, or in the lines that `windowing` keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ONE, Group, Size, size_of, windows_of
from dietcode.search_space.cpu.kernel import Kernel
from dietcode.search_space.problem import Window
from dietcode.search_space.tir import DTYPE, first_lanes, i64, load, load_masked, prefetch, splat, store

_AHEAD = 1024  # elements that a copy asks for in advance
_QUAD = 4  # elements of a quarter of the widest register


def _indices(kernel: Kernel, letters: tuple[str, ...], index: Any) -> dict[str, Any]:
    """Index of each letter of a role from the flattened one."""
    result: dict[str, Any] = {}
    for place, letter in reversed(list(enumerate(letters))):
        extent = kernel.memory.value(size_of(kernel.problem, letter))
        result[letter] = tirx.truncmod(index, extent) if place else index
        index = tirx.truncdiv(index, extent)
    return result


class _Windows:
    """Where the windows over an operand begin for one position of the output."""

    def __init__(self, kernel: Kernel, operand: str, index: dict[str, Any]) -> None:
        self.kernel, self.memory = kernel, kernel.memory
        letters = kernel.problem.subscripts[operand]
        self.windows = [w for w in kernel.problem.windows if w.axis in letters]
        self.begins = {
            w.kernel: kernel.ops.bind(index[w.output] * w.stride - w.padding) for w in self.windows
        }
        view = self.memory.views[operand]
        self.padding: Any = i64(0)  # in elements
        for window in self.windows:
            self.padding = self.padding + self.memory.value(view.steps[window.axis]) * window.padding

    def _extent(self, letter: str) -> Any:
        return self.memory.value(size_of(self.kernel.problem, letter))

    def inside(self) -> Any:
        """Whether the whole windows lie inside."""
        conditions = []
        for window in self.windows:
            begin = self.begins[window.kernel]
            last = begin + (self._extent(window.kernel) - 1) * window.dilation
            conditions += [begin >= 0, last < self._extent(window.axis)]
        return tirx.all(*conditions)

    def holds(self, window: Window, position: Any) -> Any:
        """Whether one position of a window lies inside."""
        place = self.begins[window.kernel] + position * window.dilation
        return tirx.all(place >= 0, place < self._extent(window.axis))


def gather_rows(kernel: Kernel, batch: Any, first: Any, last: Any) -> None:
    """``gathered[row - first, k] = A[row, k]`` for rows ``first…last``."""
    with T.serial(first, last) as row:
        copy_row(kernel, batch, row, kernel.gathered, (row - first) * kernel.reduction)


def gather_ranges(kernel: Kernel, batch: Any, first: Any, last: Any) -> None:
    """``gathered[range, row - first, k - low] = A[row, k]`` for rows ``first…last``, all ranges of steps."""
    problem, memory = kernel.problem, kernel.memory
    view, bind = memory.views[problem.row_operand], kernel.ops.bind
    start = bind(memory.offset(view, problem.batch, batch))
    step = view.stride(problem.reduction)
    assert step is not None
    with kernel.ranges() as (low, high), T.serial(first, last) as row:
        source = bind(start + memory.offset(view, problem.rows, row) + low * memory.value(step))
        place = bind(low * kernel.gathered_rows + (row - first) * kernel.gathered_steps)
        buffer = memory.buffers[problem.row_operand]
        _copy_length(kernel, buffer, source, (high - low, step), kernel.gathered, place)


def copy_row(kernel: Kernel, batch: Any, row: Any, target: Any, place: Any) -> None:
    """``target[place + k] = A[batch, row, k]`` for all k."""
    problem, memory = kernel.problem, kernel.memory
    operand = problem.row_operand
    view, bind = memory.views[operand], kernel.ops.bind
    start = memory.offset(view, problem.batch, batch) + memory.offset(view, problem.rows, row)
    where = bind(place)
    groups = view.groups(problem.reduction)
    if not windows_of(problem, operand):
        copy_runs(kernel, operand, bind(start), target, where, groups)
        return
    index = _indices(kernel, problem.rows, row) | _indices(kernel, problem.batch, batch)
    windows = _Windows(kernel, operand, index)
    source = bind(start - windows.padding)
    with T.If(windows.inside()):
        with T.Then():
            copy_runs(kernel, operand, source, target, where, groups)
        with T.Else():
            _copy_windows(kernel, windows, source, target, where)


def copy_runs(
    kernel: Kernel, operand: str, source: Any, target: Any, place: Any, groups: list[Group]
) -> None:
    """Copy a whole reduction, group by group."""
    value, buffer = kernel.memory.value, kernel.memory.buffers[operand]
    *outer, last = groups or [Group("", ONE, ONE)]  # none where the whole reduction is one step
    with ExitStack() as loops:
        length = value(last.extent)
        index: Any = i64(0)
        for group in outer:
            step = loops.enter_context(T.serial(i64(0), value(group.extent)))
            source = source + step * value(group.stride)
            index = index * value(group.extent) + step
        _copy_run(kernel, buffer, source, last, target, place + index * length)


def _copy_run(kernel: Kernel, buffer: Any, source: Any, run: Group, target: Any, place: Any) -> None:
    """Copy along one group."""
    length, lanes = kernel.memory.value(run.extent), kernel.limits.lanes
    if run.stride != ONE or not run.extent.is_fixed:
        _copy_length(kernel, buffer, source, (length, run.stride), target, place)
        return
    _copy_vectors(kernel, buffer, source, tirx.truncdiv(length, lanes), target, place)
    done = run.extent.factor // lanes * lanes
    if 0 < done < run.extent.factor:
        last = run.extent.factor - lanes  # overlaps what is copied already
        store(target, load(buffer, [source + last], lanes), [place + last], lanes)
        return
    while done < run.extent.factor:
        piece = 1 << ((run.extent.factor - done).bit_length() - 1)
        store(target, load(buffer, [source + done], piece), [place + done], piece)
        done += piece


def _copy_length(
    kernel: Kernel, buffer: Any, source: Any, run: tuple[Any, Size], target: Any, place: Any
) -> None:
    """Copy a run of some length and stride; what whole vectors leave over, element by element."""
    length, stride = run
    whole, step = i64(0), kernel.memory.value(stride)
    if stride == ONE:
        whole = kernel.ops.bind(tirx.truncdiv(length, kernel.limits.lanes))
        _copy_vectors(kernel, buffer, source, whole, target, place)
    with T.serial(whole * kernel.limits.lanes, length) as k:
        store(target, load(buffer, [source + k * step], 1), [place + k], 1)


def _copy_vectors(kernel: Kernel, buffer: Any, source: Any, number: Any, target: Any, place: Any) -> None:
    lanes = kernel.limits.lanes
    with T.serial(i64(0), number) as k:
        prefetch(buffer, source + k * lanes + _AHEAD)
        store(target, load(buffer, [source + k * lanes], lanes), [place + k * lanes], lanes)


def _copy_windows(kernel: Kernel, windows: _Windows, source: Any, target: Any, place: Any) -> None:
    """Copy what lies inside, and zeros for the rest."""
    problem, memory = kernel.problem, kernel.memory
    operand = problem.row_operand
    view = memory.views[operand]
    by_letter = {window.kernel: window for window in windows.windows}
    last = max(place for place, letter in enumerate(problem.reduction) if letter in by_letter)
    outer, inner = problem.reduction[: last + 1], problem.reduction[last + 1 :]
    runs = view.groups(inner)
    with ExitStack() as loops:
        index: Any = i64(0)
        conditions = []
        for letter in outer:
            extent = memory.value(size_of(problem, letter))
            step = loops.enter_context(T.serial(i64(0), extent))
            source = source + step * memory.value(view.strides.get(letter, Size(0)))
            index = index * extent + step
            if letter in by_letter:
                conditions.append(windows.holds(by_letter[letter], step))
        length = memory.value(size_of(problem, inner))
        begin = kernel.ops.bind(place + index * length)
        with T.If(tirx.all(*conditions)):
            with T.Then():
                copy_runs(kernel, operand, source, target, begin, runs)
            with T.Else(), T.serial(i64(0), length) as k:
                store(target, tirx.const(0, DTYPE), [begin + k], 1)


def pack_columns(kernel: Kernel, batch: Any, column: Any) -> None:
    """``packed[v, k, lane] = B[column + v·lanes + lane, k]`` for the tile at `column` and the steps of now.

    Lanes past the last column hold anything that exists.
    """
    problem, memory, lanes = kernel.problem, kernel.memory, kernel.lanes
    view = memory.views[problem.column_operand]
    source = kernel.ops.bind(memory.offset(view, problem.batch, batch))
    with T.serial(i64(0), i64(kernel.vectors)) as v:
        first = kernel.ops.bind(column + v * lanes)
        # Past the last panel nothing is read, so nothing needs to be packed.
        with T.If(first < kernel.columns), T.Then():
            place = kernel.ops.bind(v * kernel.packed_steps * lanes)
            if windows_of(problem, problem.column_operand):
                _pack_windows(kernel, batch, source, first, place)
            elif view.stride(problem.columns) == ONE:
                _pack_along_columns(kernel, source, first, place)
            elif view.stride(problem.reduction) == ONE and lanes > 1:
                _pack_across(kernel, source, first, place)
            else:
                _pack_elements(kernel, source, first, place, *kernel.steps)


def _element(kernel: Kernel, source: Any, column: Any, k: Any) -> Any:
    """``B[column, k]``, the last column for those past it."""
    problem, memory = kernel.problem, kernel.memory
    view = memory.views[problem.column_operand]
    clamped = tirx.min(column, kernel.columns - 1)
    place = memory.offset(view, problem.columns, clamped) + memory.offset(view, problem.reduction, k)
    return load(memory.buffers[problem.column_operand], [source + place], 1)


def _pack_elements(kernel: Kernel, source: Any, first: Any, place: Any, low: Any, high: Any) -> None:
    lanes = kernel.lanes
    with T.serial(low, high) as k, T.serial(i64(0), i64(lanes)) as lane:
        value = _element(kernel, source, first + lane, k)
        store(kernel.packed, value, [place + (k - kernel.steps[0]) * lanes + lane], 1)


def _pack_along_columns(kernel: Kernel, source: Any, first: Any, place: Any) -> None:
    """Columns are next to each other."""
    problem, memory, lanes = kernel.problem, kernel.memory, kernel.lanes
    view, (low, high) = memory.views[problem.column_operand], kernel.steps
    mask = first_lanes(kernel.columns - first, lanes)
    with T.serial(low, high) as k:
        where = source + first + memory.offset(view, problem.reduction, k)
        value = load_masked(memory.buffers[problem.column_operand], where, lanes, mask)
        store(kernel.packed, value, [place + (k - low) * lanes], lanes)


def _pack_across(kernel: Kernel, source: Any, first: Any, place: Any) -> None:
    """The reduction is contiguous: squares of lanes × lanes are transposed in registers."""
    problem, memory, lanes = kernel.problem, kernel.memory, kernel.lanes
    view, (low, high) = memory.views[problem.column_operand], kernel.steps
    buffer = memory.buffers[problem.column_operand]
    starts = []
    for lane in range(lanes):
        clamped = tirx.min(first + lane, kernel.columns - 1)
        starts.append(kernel.ops.bind(source + memory.offset(view, problem.columns, clamped) + low))
    squares = kernel.ops.bind(tirx.truncdiv(high - low, lanes))
    with T.serial(i64(0), squares) as square:
        k = square * lanes
        vectors = transposed(lambda lane, step: load(buffer, [starts[lane] + (k + step)], _QUAD), lanes)
        for lane, vector in enumerate(vectors):
            store(kernel.packed, vector, [place + (k + lane) * lanes], lanes)
    _pack_elements(kernel, source, first, place, low + squares * lanes, high)


def transposed(quad: Callable[[int, int], Any], lanes: int) -> list[Any]:
    """Columns of a square of lanes × lanes, of which ``quad(row, k)`` loads four elements from k on.

    Each register is put together from quads, four rows apart, while it is loaded; then squares of four are
    transposed within each quarter of a register, which shuffles half as often as halves would.
    """
    columns = []
    quads = range(0, lanes, _QUAD)

    def shuffled(first: Any, second: Any, pattern: tuple[int, ...]) -> Any:
        """Every quarter by the same pattern; 4 to 7 are the second register's."""
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


def _pack_windows(kernel: Kernel, batch: Any, source: Any, first: Any, place: Any) -> None:
    """Columns are positions of windows: element by element, or by vectors within one row of the output."""
    problem, memory, lanes = kernel.problem, kernel.memory, kernel.lanes
    view, (low, high) = memory.views[problem.column_operand], kernel.steps
    buffer = memory.buffers[problem.column_operand]

    def at(column: Any) -> tuple[_Windows, Any]:
        index = _indices(kernel, problem.columns, column) | _indices(kernel, problem.batch, batch)
        windows = _Windows(kernel, problem.column_operand, index)
        return windows, source + memory.offset(view, problem.columns, column) - windows.padding

    def conditions(windows: _Windows, k: Any) -> Any:
        index = _indices(kernel, problem.reduction, k)
        return tirx.all(*(windows.holds(w, index[w.kernel]) for w in windows.windows))

    def one_by_one() -> None:
        with T.serial(i64(0), i64(lanes)) as lane:
            column = kernel.ops.bind(tirx.min(first + lane, kernel.columns - 1))
            windows, start = at(column)
            with T.serial(low, high) as k:
                where = kernel.ops.bind(start + memory.offset(view, problem.reduction, k))
                target = place + (k - low) * lanes + lane
                with _or_zeros(conditions(windows, k), kernel.packed, target, 1):
                    store(kernel.packed, load(buffer, [where], 1), [target], 1)

    last = problem.columns[-1]
    width = memory.value(size_of(problem, last))
    position = tirx.truncmod(first, width)
    window = next((w for w in problem.windows if w.output == last), None)
    if view.strides[last] != ONE or window is None:
        one_by_one()
        return
    reach = window.dilation * (memory.value(size_of(problem, window.kernel)) - 1)
    begin = position * window.stride - window.padding
    axis = memory.value(size_of(problem, window.axis))
    one_row = tirx.all(position + lanes <= width, begin >= 0, begin + lanes + reach <= axis)
    with T.If(one_row):
        with T.Then():
            windows, start = at(first)
            with T.serial(low, high) as k:
                where = kernel.ops.bind(start + memory.offset(view, problem.reduction, k))
                target = place + (k - low) * lanes
                with _or_zeros(conditions(windows, k), kernel.packed, target, lanes):
                    store(kernel.packed, load(buffer, [where], lanes), [target], lanes)
        with T.Else():
            one_by_one()


@contextmanager
def _or_zeros(condition: Any, target: Any, place: Any, lanes: int) -> Iterator[None]:
    """What is emitted inside where `condition` holds, zeros elsewhere."""
    with T.If(condition):
        with T.Then():
            yield
        with T.Else():
            store(target, splat(tirx.const(0, DTYPE), lanes), [place], lanes)
