"""Attention on SIMT units: each thread has a tile of scores, and elements of the results of its queries.

Queries and keys lie transposed in shared memory, `k_tile` elements of each at a time; queries stay there
where that is all of them. Weights go to the other threads of a query by way of shared memory, too.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cuda.banks import SPACER
from dietcode.search_space.cuda.blocks.attention import AttentionTile, Write
from dietcode.search_space.cuda.blocks.attention_layout import SimtLayout, vector_width
from dietcode.search_space.cuda.building import aligned, local, once, only_if, sync, wide
from dietcode.search_space.cuda.fetching import WIDTHS
from dietcode.search_space.epilogue import widen
from dietcode.search_space.tir import DTYPE, as_int64, load, store


class SimtAttention(AttentionTile):
    """A micro-kernel with `unit` "simt"."""

    unit: ClassVar[str] = "simt"

    def _allocate(self) -> None:
        micro_kernel = self.micro_kernel
        self.layout = layout = SimtLayout.of(self.problem, micro_kernel)
        self.num_rows, self.num_keys = micro_kernel.thread_rows, micro_kernel.thread_columns
        self.lanes, self.own_columns = layout.across, layout.own_columns
        self.shared = T.alloc_buffer((layout.num_bytes // 4,), DTYPE, scope="shared.dyn")
        IRBuilder.name("tiles", self.shared)
        self.operand, self.weights = layout.queries, layout.queries + layout.operand
        self.thread_row = once("thread_row", tirx.truncdiv(self.thread, layout.across)) * self.num_rows
        self.lane = once("lane", tirx.truncmod(self.thread, layout.across))
        self.key_run = next(w for w in WIDTHS if self.num_keys % w == 0)
        self.row_run = next(w for w in WIDTHS if self.num_rows % w == 0)
        self.chunks = -(-self.depth // micro_kernel.k_tile)

    def row_of(self, slot: Any) -> Any:
        return self.thread_row + slot

    def key_of(self, slot: Any) -> Any:
        return self._own(slot, self.key_run)

    def score_at(self, row: Any, key: Any) -> Any:
        return row * self.num_keys + key

    def sum_at(self, row: Any, column: Any) -> Any:
        return row * self.own_columns + column

    def _own(self, slot: Any, run: int) -> Any:
        """Return the position of one of a thread's elements: runs of all threads lie side by side."""
        part, rest = tirx.truncdiv(slot, run), tirx.truncmod(slot, run)
        return (part * self.lanes + self.lane) * run + rest

    def prepare(self, low: Any, high: Any) -> None:
        """Find where the queries that a thread fetches begin; fetch them where they stay."""
        self.query_width = vector_width(self.depth)
        self.inner = self.micro_kernel.k_tile // self.query_width
        turns = self._turns(self.micro_kernel.rows)
        self.begins = local("begins", turns, "int64")
        with T.unroll(0, turns) as turn:
            line = wide(self._line(turn))
            row = once("fetched_row", tirx.min(self.first_row + line, self.rows - 1))
            store(self.begins, self.offset(self.plan.query, row), [turn], 1)
        self.key_begin = self.memory.offset(self.plan.key, self.at_group)
        self.value_begin = self.memory.offset(self.plan.value, self.at_group)
        if self.chunks == 1:
            self._fetch_queries(0)

    def _line(self, turn: Any) -> Any:
        """Return the query or key of a tile that a thread fetches elements of, int32."""
        return tirx.truncdiv(self.thread, self.inner) + turn * (self.micro_kernel.threads // self.inner)

    def _turns(self, lines: int) -> int:
        return -(-lines * self.inner // self.micro_kernel.threads)

    def _fetch_queries(self, step: Any) -> None:
        def begin(turn: Any, line: Any) -> Any:
            return self.begins[turn]

        self._fetch(self.plan.query, self.micro_kernel.rows, begin, step, 0)

    def _fetch_keys(self, first_key: Any, step: Any) -> None:
        stride = as_int64(self.memory.stride(self.plan.key, self.plan.keys))

        def begin(turn: Any, line: Any) -> Any:
            return self.key_begin + tirx.min(first_key + wide(line), self.keys - 1) * stride

        self._fetch(self.plan.key, self.micro_kernel.columns, begin, step, self.operand)

    def _fetch(self, tensor: str, lines: int, begin: Any, first: Any, base: int) -> None:
        """Write `k_tile` elements of some lines to shared memory, transposed, zeros past their end."""
        width, k_tile = self.query_width, self.micro_kernel.k_tile
        k = once("element", tirx.truncmod(self.thread, self.inner) * width)
        is_whole = self.depth % k_tile == 0
        exists = None if is_whole else first + k < self.depth
        pitch, dtype = lines + SPACER, self.problem.dtype(tensor)
        with T.unroll(0, self._turns(lines)) as turn:
            line = self._line(turn)
            within = None if lines * self.inner % self.micro_kernel.threads == 0 else line < lines
            with only_if(within):
                offset = aligned(once("offset", begin(turn, line) + wide(first + k)), width)
                values = self.fetched(self.memory.buffers[tensor], offset, width, exists)
                for u in range(width):
                    store(self.shared, widen(values[u], dtype), [base + (k + u) * pitch + line], 1)

    def score(self, number: Any, first_key: Any) -> None:
        micro_kernel = self.micro_kernel
        with T.unroll(0, self.num_rows * self.num_keys) as i:
            store(self.scores, tirx.const(0, DTYPE), [i], 1)
        with T.serial(0, self.chunks) as chunk:
            step = chunk * micro_kernel.k_tile
            sync()  # of those who still read the last tiles
            if self.chunks > 1:
                self._fetch_queries(step)
            self._fetch_keys(first_key, step)
            sync()
            with T.serial(0, micro_kernel.k_tile) as k:
                self._multiply(k)

    def _multiply(self, k: Any) -> None:
        """Emit one step of the accumulation of scores."""
        height, width = self.num_rows, self.num_keys
        a, b = local("a", height), local("b", width)
        with T.unroll(0, height // self.row_run) as part:
            at = k * (self.micro_kernel.rows + SPACER) + self.thread_row + part * self.row_run
            store(a, load(self.shared, [at], self.row_run), [part * self.row_run], self.row_run)
        with T.unroll(0, width // self.key_run) as part:
            at = self.operand + k * (self.micro_kernel.columns + SPACER)
            at = at + self._own(part * self.key_run, self.key_run)
            store(b, load(self.shared, [at], self.key_run), [part * self.key_run], self.key_run)
        with T.unroll(0, height) as i, T.unroll(0, width) as j:
            at = self.score_at(i, j)
            store(self.scores, self.scores[at] + a[i] * b[j], [at], 1)

    def add_values(self, first_key: Any) -> None:
        pitch, value_keys = self.micro_kernel.rows + SPACER, self.layout.value_keys
        with T.unroll(0, self.num_rows) as i, T.unroll(0, self.num_keys) as j:
            at = self.weights + self.key_of(j) * pitch + self.row_of(i)
            store(self.shared, self.scores[self.score_at(i, j)], [at], 1)
        with T.serial(0, self.micro_kernel.columns // value_keys) as chunk:
            sync()  # of those who still read keys, or values
            self._fetch_values(first_key, chunk * value_keys)
            sync()
            with T.serial(0, value_keys) as key:
                self._add_value(chunk * value_keys + key, key)

    def _fetch_values(self, first_key: Any, first: Any) -> None:
        layout, memory, threads = self.layout, self.memory, self.micro_kernel.threads
        width, tensor = min(vector_width(self.width), layout.run), self.plan.value
        stride = as_int64(memory.stride(tensor, self.plan.keys))
        inner = layout.columns // width
        total = layout.value_keys * inner
        with T.unroll(0, -(-total // threads)) as turn:
            index = self.thread + turn * threads
            with only_if(None if total % threads == 0 else index < total):
                key = once("value_key", tirx.truncdiv(index, inner))
                column = once("value_column", tirx.truncmod(index, inner) * width)
                position = once("position", first_key + wide(first + key))
                exists = tirx.And(position < self.keys, column < self.width)
                offset = aligned(once("offset", self.value_begin + position * stride + wide(column)), width)
                values = self.fetched(memory.buffers[tensor], offset, width, exists)
                for u in range(width):
                    at = self.operand + key * layout.columns + column + u
                    store(self.shared, widen(values[u], self.problem.dtype(tensor)), [at], 1)

    def _add_value(self, key: Any, line: Any) -> None:
        """Emit the addition of the weighted values of one key, which are a line of shared memory."""
        height, layout = self.num_rows, self.layout
        a, b = local("weight", height), local("value", layout.run)
        with T.unroll(0, height // self.row_run) as part:
            at = self.weights + key * (self.micro_kernel.rows + SPACER) + self.thread_row
            at = at + part * self.row_run
            store(a, load(self.shared, [at], self.row_run), [part * self.row_run], self.row_run)
        with T.unroll(0, self.own_columns // layout.run) as part:
            at = self.operand + line * layout.columns + self._own(part * layout.run, layout.run)
            store(b, load(self.shared, [at], layout.run), [0], layout.run)
            with T.unroll(0, height) as i, T.unroll(0, layout.run) as j:
                at = self.sum_at(i, part * layout.run + j)
                store(self.accumulators, self.accumulators[at] + a[i] * b[j], [at], 1)

    def write(self, write: Write) -> None:
        layout = self.layout
        with T.unroll(0, self.num_rows) as i:
            row = once("row", self.first_row + wide(self.row_of(i)))
            with T.If(self.exists(row)), T.Then(), T.unroll(0, self.own_columns // layout.run) as part:
                column = self._own(part * layout.run, layout.run)
                write(self.sum_at(i, part * layout.run), column, row, i, layout.run)
