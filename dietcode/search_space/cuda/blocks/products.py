"""The code of one thread block of a block with products, on SIMT units.

for each product, for tiles of `k_tile` steps of its reduction:
  shared = A[rows, k], B[gate, columns, k] of each gate       # zeros past the end of the reduction
  for k: acc[sum] += A[rows, k] · B[gate of the sum, columns, k]
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.access import ONE, view_of
from dietcode.search_space.cuda.banks import SPACER
from dietcode.search_space.cuda.blocks.demands import tile_elements
from dietcode.search_space.cuda.blocks.product_layout import Targets, distinct_gates
from dietcode.search_space.cuda.blocks.product_tile import ProductBlock
from dietcode.search_space.cuda.building import both, local, once, only_if, sync, wide
from dietcode.search_space.cuda.fetching import WIDTHS
from dietcode.search_space.epilogue import widen
from dietcode.search_space.tir import DTYPE, i64, load, store
from dietcode.workload.products import Gates, ProductTerm


class SimtProducts(ProductBlock):
    """A micro-kernel with `unit` "simt"."""

    def _allocate(self) -> None:
        micro_kernel = self.micro_kernel
        self.row_slots, self.column_slots = micro_kernel.thread_rows, micro_kernel.thread_columns
        across = micro_kernel.columns // micro_kernel.thread_columns
        self.across = across
        self.thread_row = once("thread_row", tirx.truncdiv(self.thread, across)) * micro_kernel.thread_rows
        self.thread_column = once("thread_column", tirx.truncmod(self.thread, across))
        self.width = next(w for w in WIDTHS if micro_kernel.thread_columns % w == 0)
        size = max(tile_elements(own, micro_kernel) for _, own in self.problem.plan.terms)
        self.shared = T.alloc_buffer((size,), DTYPE, scope="shared")
        IRBuilder.name("tiles", self.shared)

    def row_of(self, slot: Any) -> Any:
        return self.thread_row + slot

    def column_of(self, slot: Any) -> Any:
        return self._own_column(tirx.truncdiv(slot, self.width)) + tirx.truncmod(slot, self.width)

    def sum_at(self, row: Any, column: Any) -> Any:
        return row * self.column_slots + column

    def accumulate(self, number: int, term: ProductTerm, targets: Targets) -> None:
        micro_kernel = self.micro_kernel
        k_tile, gates = micro_kernel.k_tile, distinct_gates(targets)
        depth, begins = self.depth(term), self._row_begins(term)
        tiles = tirx.truncdiv(depth + (k_tile - 1), i64(k_tile))
        with T.serial(i64(0), tiles) as tile:
            first = once("first_step", tile * k_tile)
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
        with T.unroll(0, self._turns(extent)) as turn:
            line = self._line(turn)
            within = None if extent * k_tile % micro_kernel.threads == 0 else line < extent
            with only_if(within):
                element = begins[turn] + along
                exists = both(self.first_row + wide(line) < self.rows, self.is_step(step, depth))
                value = self._or_zero(term.rows.tensor, element, exists)
                store(self.shared, value, [k * (extent + SPACER) + line], 1)

    def _fetch_columns(self, term: ProductTerm, gates: list[Gates], first: Any, depth: Any) -> None:
        """Emit the fetch of the columns of each gate; neighbouring threads read what lies side by side."""
        micro_kernel, memory = self.micro_kernel, self.memory
        extent, k_tile, threads = micro_kernel.columns, micro_kernel.k_tile, micro_kernel.threads
        view = view_of(self.problem, term.columns)
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
                    element = offset + self.gate_offset(view, gate)
                    value = self._or_zero(term.columns, element, self.is_step(step, depth))
                    store(self.shared, value, [self._column_base(number) + k * (extent + SPACER) + line], 1)

    def _column_base(self, number: int) -> int:
        """Return where in shared memory the columns of a gate begin."""
        micro_kernel = self.micro_kernel
        before = micro_kernel.rows + SPACER + number * (micro_kernel.columns + SPACER)
        return micro_kernel.k_tile * before

    def _or_zero(self, tensor: str, offset: Any, exists: Any | None) -> Any:
        """Return an element of a tensor, 0 where it does not exist."""
        source, dtype = self.memory.buffers[tensor], self.problem.dtype(tensor)
        if exists is None:
            return widen(source[offset], dtype)
        value = local("fetched", 1)
        store(value, tirx.const(0, DTYPE), [0], 1)
        with only_if(exists):
            store(value, widen(source[offset], dtype), [0], 1)
        return value[0]

    def _multiply(self, k: Any, gates: list[Gates], targets: Targets) -> None:
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
