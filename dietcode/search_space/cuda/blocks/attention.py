"""The code of one thread block of attention: a tile of queries, and one tile of keys after the other.

    m = -inf, l = 0, acc[query, element of the result] = 0         # registers
    for each tile of keys that some query of the tile sees:
      s[query, key] = scale · f(Q·Kᵀ) + mask                       # -inf where a key is hidden, or none
      m', factor = max(m, max of s), e^(m - m')
      s, l, acc = e^(s - m'), l · factor + sum of s, acc · factor
      acc += s · V
    O = acc / l                                                    # 0 where l is

Where keys are split, a block has a part of their tiles, and writes acc, m and l to the workspace; a second
function combines the parts of each query, always in the same order. Queries past the edge are the last one.
How scores and values lie in registers is of a class for each unit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.attention.memory import AttentionMemory
from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cuda.blocks.arithmetic import call, pointwise
from dietcode.search_space.cuda.building import both, local, narrow, once, only_if, wide
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.epilogue import widen
from dietcode.search_space.tir import as_int64, i64, load, store
from dietcode.search_space.vectors import const, named

_ALL_LANES = 0xFFFFFFFF
Write = Callable[[Any, Any, Any, Any, int], None]
"""Takes a run of accumulators: ``(offset of the first, first element of the result, row of the group, slot of
the row, length)``."""


class AttentionTile(ABC):
    """A tile of queries, while its function is built.

    Parameters
    ----------
    thread : int32 expression
    group, first_row : int64 expressions
        Number of the group, and the first query of the tile.

    Attributes
    ----------
    num_rows, num_keys : int
        Queries and keys of which a thread has the scores.
    lanes : int
        Neighbouring threads that have the scores of the same queries.
    scores : buffer of float32
        ``[num_rows, num_keys]`` in an order of its own.
    own_columns : int
        Elements of each query's result that a thread accumulates.
    """

    num_rows: int
    num_keys: int
    lanes: int
    own_columns: int
    unit: ClassVar[str]

    def __init__(
        self,
        problem: AttentionProblem,
        micro_kernel: CudaMicroKernel,
        memory: AttentionMemory,
        thread: Any,
        group: Any,
        first_row: Any,
    ) -> None:
        self.problem, self.plan, self.micro_kernel, self.memory = problem, problem.plan, micro_kernel, memory
        self.thread, self.first_row = thread, first_row
        groups, rows, _, keys = (as_int64(size) for size in problem.sizes(memory.extents))
        self.groups, self.rows, self.keys = groups, rows, keys
        self.depth, self.width = problem.head
        self.group = group
        self.at_group = memory.positions(self.plan.groups, group)
        self._allocate()
        self.scores = local("scores", self.num_rows * self.num_keys)
        self.accumulators = local("sums", self.num_rows * self.own_columns)
        self.highest, self.totals = local("highest", self.num_rows), local("totals", self.num_rows)
        self.factors = local("factors", self.num_rows)

    @abstractmethod
    def _allocate(self) -> None:
        """Allocate shared memory, and say how scores lie in registers."""

    @abstractmethod
    def row_of(self, slot: Any) -> Any:
        """Return which query of the tile a thread's slot is, int32."""

    @abstractmethod
    def key_of(self, slot: Any) -> Any:
        """Return which key of a tile a thread's slot is, int32."""

    @abstractmethod
    def score_at(self, row: Any, key: Any) -> Any:
        """Return where in `scores` the score of two slots is."""

    @abstractmethod
    def sum_at(self, row: Any, column: Any) -> Any:
        """Return where in `accumulators` one of a thread's elements of a query's result is."""

    @abstractmethod
    def prepare(self, low: Any, high: Any) -> None:
        """Emit what comes before the first tile of keys; for the arguments see `emit`."""

    @abstractmethod
    def score(self, number: Any, first_key: Any) -> None:
        """Emit the products of the tile's queries with a tile of keys, int64 both."""

    @abstractmethod
    def add_values(self, first_key: Any) -> None:
        """Emit the addition of the weighted values of a tile of keys."""

    @abstractmethod
    def write(self, write: Write) -> None:
        """Emit what `write` does with runs of the accumulators of queries that exist."""

    def emit(self, low: Any, high: Any) -> None:
        """Emit the tiles of keys from `low` to `high`, int64."""
        with T.unroll(0, self.num_rows) as i:
            store(self.highest, const(-math.inf, 1), [i], 1)
            store(self.totals, const(0.0, 1), [i], 1)
        with T.unroll(0, self.num_rows * self.own_columns) as i:
            store(self.accumulators, const(0.0, 1), [i], 1)
        self._locate_rows()
        self.prepare(low, high)
        with T.serial(low, high) as number:
            first_key = once("first_key", number * self.micro_kernel.columns)
            self.score(number, first_key)
            self._weigh(first_key)
            self.add_values(first_key)
        with T.unroll(0, self.num_rows) as i:
            self._combine_lanes(self.totals, i, lambda a, b: a + b)

    def _locate_rows(self) -> None:
        """Compute where what is added to a thread's queries begins, and how many keys each sees."""
        plan, memory, added = self.plan, self.memory, self.problem.added
        self.added = {name: local(f"{name}_at", self.num_rows, "int64") for name in added}
        if plan.causal is not None:
            self.seen = local("seen", self.num_rows, "int64")
        if not added and plan.causal is None:
            return
        with T.unroll(0, self.num_rows) as i:
            row = once("row", tirx.min(self.first_row + wide(self.row_of(i)), self.rows - 1))
            at = self.at_group | memory.positions(plan.rows, row)
            for name in added:
                store(self.added[name], memory.offset(name, at), [i], 1)
            if plan.causal is not None:
                hidden = as_int64(memory.extents[plan.causal]) - at[plan.causal] - 1
                store(self.seen, self.keys - hidden, [i], 1)

    def num_seen(self) -> Any:
        """Return how many keys some query of the tile sees, at least 0, int64."""
        plan, memory = self.plan, self.memory
        if plan.causal is None:
            return self.keys
        extent = as_int64(memory.extents[plan.causal])
        after = plan.rows[plan.rows.index(plan.causal) + 1 :]
        inner = as_int64(self.problem.product(tuple(after), memory.extents))
        first = once("first_position", tirx.truncdiv(self.first_row, inner))
        end = tirx.min(self.first_row + self.micro_kernel.rows, self.rows) - 1
        last = once("last_position", tirx.truncdiv(end, inner))
        # Where positions begin anew within the tile, the last one of all is among its queries.
        is_one = tirx.truncdiv(first, extent) < tirx.truncdiv(last, extent)
        position = once("position", tirx.Select(is_one, extent - 1, tirx.truncmod(last, extent)))
        return once("num_seen", tirx.max(self.keys - (extent - 1 - position), i64(0)))

    def _weigh(self, first_key: Any) -> None:
        """Turn products into weights, and bring the maximum and the sums of each query up to date."""
        most = once("most_keys", tirx.min(self.keys - first_key, i64(self.micro_kernel.columns)))
        with T.unroll(0, self.num_rows) as i:
            limit = most
            if self.plan.causal is not None:
                limit = tirx.max(tirx.min(self.seen[i] - first_key, most), i64(0))
            limit = once("num_keys", narrow(limit))
            highest = local("now", 1)
            store(highest, self.highest[i], [0], 1)
            with T.unroll(0, self.num_keys) as j:
                value = named(self._scaled(i, j, limit, first_key), 1)
                store(self.scores, value, [self.score_at(i, j)], 1)
                store(highest, call("fmaxf", highest[0], value), [0], 1)
            self._combine_lanes(highest, 0, lambda a, b: call("fmaxf", a, b))
            base = named(tirx.Select(highest[0] <= const(-math.inf, 1), const(0.0, 1), highest[0]), 1)
            store(self.factors, call("expf", self.highest[i] - base), [i], 1)
            store(self.highest, highest[0], [i], 1)
            store(self.totals, self.totals[i] * self.factors[i], [i], 1)
            with T.unroll(0, self.num_keys) as j:
                at = self.score_at(i, j)
                store(self.scores, call("expf", self.scores[at] - base), [at], 1)
                store(self.totals, self.totals[i] + self.scores[at], [i], 1)
        with T.unroll(0, self.num_rows) as i, T.unroll(0, self.own_columns) as j:
            at = self.sum_at(i, j)
            store(self.accumulators, self.accumulators[at] * self.factors[i], [at], 1)

    def _scaled(self, i: Any, j: Any, limit: Any, first_key: Any) -> Any:
        """Return a score; -inf from `limit` on, where nothing is read."""
        plan, hidden = self.plan, const(-math.inf, 1)
        raw, scale = self.scores[self.score_at(i, j)], const(plan.scale, 1)
        exists = self.key_of(j) < limit
        if not self.problem.added:
            return tirx.Select(exists, self._function(raw, {}) * scale, hidden)
        key = first_key + wide(self.key_of(j))
        score = local("score", 1)
        store(score, hidden, [0], 1)
        with T.If(exists), T.Then():
            value = self._function(raw, {name: self._read(name, i, key) for name in plan.reads}) * scale
            if plan.mask is not None:
                value = value + self._read(plan.mask, i, key)
            store(score, value, [0], 1)
        return score[0]

    def _function(self, raw: Any, values: dict[str, Any]) -> Any:
        """Return what the softmax is of, from the product of a query with a key and what is read."""
        if not self.problem.functions:
            return raw
        values |= {self.plan.product: named(raw, 1)}
        for p in self.problem.functions:
            operands = [values[o] if isinstance(o, str) else const(o, 1) for o in p.operands]
            values[p.name] = named(pointwise(p.kind, operands, p.option), 1)
        return values[self.plan.scores]

    def _read(self, tensor: str, i: Any, key: Any) -> Any:
        stride = as_int64(self.memory.stride(tensor, self.plan.keys))
        value = self.memory.buffers[tensor][self.added[tensor][i] + key * stride]
        return widen(value, self.problem.dtype(tensor))

    def _combine_lanes(self, values: Any, at: Any, combine: Callable[[Any, Any], Any]) -> None:
        """Combine a value of all lanes that have the same queries; each gets it."""
        distance = self.lanes // 2
        while distance:
            mask, apart = tirx.IntImm("uint32", _ALL_LANES), tirx.IntImm("int32", distance)
            own = values[at]
            other = named(call("__shfl_xor_sync", mask, own, apart), 1)
            store(values, combine(values[at], other), [at], 1)
            distance //= 2

    def exists(self, row: Any) -> Any:
        """Return whether a query of the group exists."""
        return row < self.rows

    def offset(self, tensor: str, row: Any) -> Any:
        """Return where a tensor has a query of the group, int64."""
        at = self.at_group | self.memory.positions(self.plan.rows, row)
        return self.memory.offset(tensor, at)

    def inverse(self, slot: Any) -> Any:
        """Return 1 over the sum of a query's weights."""
        return named(self.plan.inverse(self.totals[slot], const(1.0, 1), const(0.0, 1), tirx.Select), 1)

    def fetched(self, buffer: Any, offset: Any, width: int, exists: Any | None) -> Any:
        """Return a buffer of some neighbouring elements of a tensor, zeros where they do not exist."""
        kind = str(buffer.dtype)
        values = local("fetched", width, kind)
        if exists is not None:
            with T.unroll(0, width) as u:
                store(values, tirx.const(0, kind), [u], 1)
        with only_if(both(exists)):
            store(values, load(buffer, [offset], width), [0], width)
        return values
