"""The code of one thread block of a block with products.

    acc[sum, thread tile] = 0                                     # registers
    for each product, for tiles of `k_tile` steps of its reduction:
      shared = A[rows, k], B[gate, columns, k] of each gate       # zeros past the end of the reduction
      for k: acc[sum] += A[rows, k] · B[gate of the sum, columns, k]
    functions of the sums and of other tensors, and the outputs, an element at a time, where it exists

Rows past the edge are those of the last row, gathered or not, and columns those of the last column.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ONE, ZERO, View, size_of, view_of
from dietcode.search_space.cuda.blocks.arithmetic import pointwise
from dietcode.search_space.cuda.blocks.demands import SPACER, distinct_gates, tile_elements
from dietcode.search_space.cuda.building import both, local, once, only_if, sync, wide
from dietcode.search_space.cuda.fetching import WIDTHS
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.products.memory import ProductMemory
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.tir import DTYPE, i64, load, store
from dietcode.search_space.vectors import const, named
from dietcode.workload.products import Gates, ProductTerm, Read


class ProductBlock:
    """Code of a tile of all sums of a block.

    Parameters
    ----------
    thread : int32 expression
    row, column : int64 expressions
        The first of the tile.
    """

    def __init__(
        self,
        problem: ProductProblem,
        micro_kernel: CudaMicroKernel,
        memory: ProductMemory,
        thread: Any,
        row: Any,
        column: Any,
    ) -> None:
        self.problem, self.micro_kernel, self.memory, self.thread = problem, micro_kernel, memory, thread
        self.first_row, self.first_column = row, column
        self.rows, self.columns = (memory.value(size_of(problem, k)) for k in (problem.rows, problem.columns))
        across = micro_kernel.columns // micro_kernel.thread_columns
        self.across = across
        self.thread_row = once("thread_row", tirx.truncdiv(thread, across)) * micro_kernel.thread_rows
        self.thread_column = once("thread_column", tirx.truncmod(thread, across))
        self.width = next(w for w in WIDTHS if micro_kernel.thread_columns % w == 0)
        size = max(tile_elements(own, micro_kernel) for _, own in problem.plan.terms)
        self.shared = T.alloc_buffer((size,), DTYPE, scope="shared")
        IRBuilder.name("tiles", self.shared)
        self.accumulators = {
            name: local(f"acc_{number}", micro_kernel.num_accumulators)
            for number, name in enumerate(problem.plan.accumulators)
        }

    def emit(self) -> None:
        """Emit the body."""
        count = self.micro_kernel.num_accumulators
        with T.unroll(0, count) as i:
            for accumulator in self.accumulators.values():
                store(accumulator, tirx.const(0, DTYPE), [i], 1)
        for term, targets in self.problem.plan.terms:
            self._accumulate(term, targets)
        with T.unroll(0, self.micro_kernel.thread_rows) as i:
            row = once("row", self.first_row + wide(self.thread_row + i))
            with T.If(row < self.rows), T.Then():
                self._finish(i, row)

    def _accumulate(self, term: ProductTerm, targets: list[tuple[Gates, str]]) -> None:
        """Emit the reduction of one product, for all sums that it is added to."""
        micro_kernel, memory = self.micro_kernel, self.memory
        k_tile, gates = micro_kernel.k_tile, distinct_gates(targets)
        depth = memory.value(size_of(self.problem, term.reduction))
        begins = self._row_begins(term)
        tiles = tirx.truncdiv(depth + (k_tile - 1), i64(k_tile))
        with T.serial(i64(0), tiles) as number:
            first = once("first_step", number * k_tile)
            sync()  # of those who still read the last tiles
            self._fetch_rows(term, begins, first, depth)
            self._fetch_columns(term, gates, first, depth)
            sync()
            with T.serial(0, k_tile) as k:
                self._multiply(k, gates, targets)

    def _line(self, turn: Any) -> Any:
        """Return the row or column of the tile that a thread fetches, where it keeps to one step; int32."""
        k_tile = self.micro_kernel.k_tile
        return tirx.truncdiv(self.thread, k_tile) + turn * (self.micro_kernel.threads // k_tile)

    def _turns(self, extent: int) -> int:
        return -(-extent * self.micro_kernel.k_tile // self.micro_kernel.threads)

    def _row_begins(self, term: ProductTerm) -> Any:
        """Return where the rows that a thread fetches begin: a buffer of its turns."""
        turns = self._turns(self.micro_kernel.rows)
        begins = local("begins", turns, "int64")
        with T.unroll(0, turns) as turn:
            row = once("fetched_row", tirx.min(self.first_row + wide(self._line(turn)), self.rows - 1))
            store(begins, self.memory.begin(term.rows, row), [turn], 1)
        return begins

    def _fetch_rows(self, term: ProductTerm, begins: Any, first: Any, depth: Any) -> None:
        micro_kernel, memory = self.micro_kernel, self.memory
        extent, k_tile = micro_kernel.rows, micro_kernel.k_tile
        k = tirx.truncmod(self.thread, k_tile)
        step = once("step", first + wide(k))
        along = once("along", memory.offset(memory.view(term.rows), tuple(term.reduction), step))
        source = memory.buffers[term.rows.tensor]
        with T.unroll(0, self._turns(extent)) as turn:
            line = self._line(turn)
            within = None if extent * k_tile % micro_kernel.threads == 0 else line < extent
            with only_if(within):
                value = self._or_zero(source, begins[turn] + along, self._is_step(step, depth))
                store(self.shared, value, [k * (extent + SPACER) + line], 1)

    def _fetch_columns(self, term: ProductTerm, gates: list[Gates], first: Any, depth: Any) -> None:
        """Emit the fetch of the columns of each gate; neighbouring threads read what lies side by side."""
        micro_kernel, memory = self.micro_kernel, self.memory
        extent, k_tile, threads = micro_kernel.columns, micro_kernel.k_tile, micro_kernel.threads
        view, source = view_of(self.problem, term.columns), memory.buffers[term.columns]
        is_along_columns = view.stride(self.problem.columns) == ONE
        with T.unroll(0, self._turns(extent)) as turn:
            if is_along_columns:
                index = self.thread + turn * threads
                line, k = tirx.truncmod(index, extent), tirx.truncdiv(index, extent)
                within = k < k_tile
            else:
                line, k = self._line(turn), tirx.truncmod(self.thread, k_tile)
                within = line < extent
            with only_if(None if extent * k_tile % threads == 0 else within):
                step = once("step", first + wide(k))
                column = once("column", tirx.min(self.first_column + wide(line), self.columns - 1))
                offset = once(
                    "offset",
                    memory.offset(view, self.problem.columns, column)
                    + memory.offset(view, tuple(term.reduction), step),
                )
                for number, gate in enumerate(gates):
                    element = offset + self._gate_offset(view, gate)
                    value = self._or_zero(source, element, self._is_step(step, depth))
                    store(self.shared, value, [self._column_base(number) + k * (extent + SPACER) + line], 1)

    def _gate_offset(self, view: View, gates: Gates) -> Any:
        offset: Any = i64(0)
        for gate, position in gates:
            offset = offset + i64(position) * self.memory.value(view.strides.get(gate, ZERO))
        return offset

    def _column_base(self, number: int) -> int:
        """Return where in shared memory the columns of a gate begin."""
        micro_kernel = self.micro_kernel
        before = micro_kernel.rows + SPACER + number * (micro_kernel.columns + SPACER)
        return micro_kernel.k_tile * before

    def _is_step(self, step: Any, depth: Any) -> Any | None:
        """Return whether a step exists; None where all do."""
        is_whole = isinstance(depth, tirx.IntImm) and int(depth) % self.micro_kernel.k_tile == 0
        return None if is_whole else step < depth

    def _or_zero(self, source: Any, offset: Any, exists: Any | None) -> Any:
        if exists is None:
            return source[offset]
        value = local("fetched", 1)
        store(value, tirx.const(0, DTYPE), [0], 1)
        with only_if(exists):
            store(value, source[offset], [0], 1)
        return value[0]

    def _multiply(self, k: Any, gates: list[Gates], targets: list[tuple[Gates, str]]) -> None:
        """Emit one step of the accumulation of each sum."""
        micro_kernel = self.micro_kernel
        height, width, extent = micro_kernel.thread_rows, micro_kernel.thread_columns, self.width
        a, b = local("a", height), local("b", width)
        wide_rows = next(w for w in WIDTHS if height % w == 0)
        with T.unroll(0, height // wide_rows) as part:
            at = k * (micro_kernel.rows + SPACER) + self.thread_row + part * wide_rows
            store(a, load(self.shared, [at], wide_rows), [part * wide_rows], wide_rows)
        for gate, name in targets:
            base = self._column_base(gates.index(gate))
            with T.unroll(0, width // extent) as part:
                at = base + k * (micro_kernel.columns + SPACER) + self._own_column(part)
                store(b, load(self.shared, [at], extent), [part * extent], extent)
            total = self.accumulators[name]
            with T.unroll(0, height) as i, T.unroll(0, width) as j:
                store(total, total[i * width + j] + a[i] * b[j], [i * width + j], 1)

    def _own_column(self, part: Any) -> Any:
        """Return the first column of a run of a thread's: runs of all threads lie side by side."""
        return (part * self.across + self.thread_column) * self.width

    def _finish(self, i: Any, row: Any) -> None:
        """Emit the functions of one row's sums, and its outputs."""
        plan, memory, problem = self.problem.plan, self.memory, self.problem
        begins = {
            name: once(f"read_{number}", memory.begin(read, row))
            for number, (name, read) in enumerate(plan.reads.items())
        }
        narrow = {
            name: named(memory.buffers[read.tensor][begins[name]], 1)
            for name, read in plan.reads.items()
            if not problem.is_wide(read.indices)
        }
        outputs = {name: Read(name, (), problem.indices[name]) for name in plan.outputs}
        for name in set(plan.outputs) & set(problem.into):
            table, positions = problem.into[name]
            outputs[name] = Read(table, (), problem.indices[name], positions)
        stored = {
            name: once("is_stored", memory.is_stored(name, row)) > i64(0)
            for name in plan.outputs
            if name in problem.into
        }
        targets = {
            name: once(f"write_{number}", memory.begin(output, row))
            for number, (name, output) in enumerate(outputs.items())
        }
        with T.unroll(0, self.micro_kernel.thread_columns) as j:
            run = tirx.truncdiv(j, self.width)
            own = self._own_column(run) + tirx.truncmod(j, self.width)
            column = once("column", self.first_column + wide(own))
            with T.If(column < self.columns), T.Then():
                values: dict[str, Any] = dict(narrow)
                for name in plan.accumulators:
                    index = i * self.micro_kernel.thread_columns + j
                    values[name] = named(self.accumulators[name][index], 1)
                for name, read in plan.reads.items():
                    if name not in narrow:
                        values[name] = named(memory.buffers[read.tensor][begins[name] + column], 1)
                for p in plan.primitives:
                    operands = [values[o] if isinstance(o, str) else const(o, 1) for o in p.operands]
                    values[p.name] = named(pointwise(p.kind, operands, p.option), 1)
                for name, value in plan.outputs.items():
                    with only_if(both(stored.get(name))):
                        store(memory.buffers[name], values[value], [targets[name] + column], 1)
