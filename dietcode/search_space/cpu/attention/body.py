"""Some queries and a block of keys, with a running maximum and sum.

Of each query are kept: m, the largest score so far; l, the sum of e^(score - m), one lane for every so many
keys; and the values weighted by e^(score - m). The order of all additions is fixed: a score is added up along
the depth; blocks of `BLOCK` keys follow each other within a segment of `SEGMENT` keys, and segments are
combined one after the other. So a query has the same bits whatever micro-kernel it was computed with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.attention.memory import AttentionMemory
from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cpu.attention.arithmetic import (
    add,
    exp_of_negative,
    finite,
    fma,
    in_every_lane,
    larger_number,
    product,
)
from dietcode.search_space.cpu.attention.copying import KeyRows, value_vector
from dietcode.search_space.cpu.attention.micro_kernel import BLOCK, AttentionKernel
from dietcode.search_space.cpu.attention.space import pitch
from dietcode.search_space.cpu.rows.functions import pointwise
from dietcode.search_space.tir import (
    TirOps,
    as_int64,
    first_lanes,
    i64,
    load,
    load_masked,
    small_buffer,
    splat,
    store,
    store_masked,
)
from dietcode.search_space.vectors import const, named
from dietcode.workload.attention import AttentionPlan


@dataclass(frozen=True)
class QueryRow:
    """One query of a tile.

    Attributes
    ----------
    query, output : int64 expressions
        Offsets of its first element.
    added : dict of str to int64 expression
        Of each tensor that is read for a score, where it has this query at the first key.
    num_seen : int64 expression or None
        Keys that it sees, not above their number; None for all.
    """

    query: Any
    output: Any
    added: Mapping[str, Any]
    num_seen: Any


@dataclass(frozen=True)
class KeyBlock:
    """A block of keys and its values.

    Attributes
    ----------
    first : int64 expression
        Position of the first key.
    count : int64 expression
        Keys of it that exist.
    keys : Buffer
        float32 [depth, BLOCK], flattened.
    values : KeyRows
        Where values are read.
    are_padded : bool
        Whether whole vectors of values can be read.
    """

    first: Any
    count: Any
    keys: Any
    values: KeyRows
    are_padded: bool


@dataclass(frozen=True)
class TileBody:
    """Code for a tile of queries.

    Attributes
    ----------
    scores : Buffer
        float32 [rows, BLOCK], flattened, of one task.
    states : Buffer
        What is kept of queries, `pitch` elements for each: m in every lane, l, the weighted values.
    """

    problem: AttentionProblem
    memory: AttentionMemory
    micro_kernel: AttentionKernel
    lanes: int
    scores: Any
    states: Any

    @property
    def plan(self) -> AttentionPlan:
        """What each tensor and index is."""
        return self.problem.plan

    @property
    def width(self) -> int:
        """Elements of the result of a query, in whole vectors."""
        return -(-self.problem.head[1] // self.lanes) * self.lanes

    @property
    def pitch(self) -> int:
        """Elements that are kept of a query."""
        return pitch(self.problem, self.lanes)

    def rows(self, group: Mapping[str, Any], first: Any, num_rows: Any) -> list[QueryRow]:
        """Return the queries of a tile; the last one again in the place of those that do not exist.

        Parameters
        ----------
        group : mapping of str to int64 expression
            Position along each index of the group.
        first : int64 expression
            The first query of all `num_rows`.
        """
        found = []
        for i in range(self.micro_kernel.rows):
            flat = TirOps().bind(tirx.min(first + i, num_rows - 1))
            own = self.memory.positions(self.problem.plan.rows, flat)
            found.append(self._row({**group, **own}))
        return found

    def _row(self, at: Mapping[str, Any]) -> QueryRow:
        memory, plan, seen = self.memory, self.problem.plan, None
        if plan.causal is not None:
            keys = as_int64(memory.extents[plan.keys])
            last = at[plan.causal] + 1 + keys - memory.extents[plan.causal]
            seen = TirOps().bind(tirx.min(last, keys))
        added = {name: memory.offset(name, at) for name in self.problem.added}
        output = memory.offset(self.problem.outputs[0], at)
        return QueryRow(memory.offset(plan.query, at), output, added, seen)

    def clear(self, state: Any, count: Any) -> None:
        """Begin `count` queries with no key, their states from an offset on."""
        lanes, begin = self.lanes, TirOps().bind
        with T.serial(i64(0), as_int64(count)) as row:
            offset = begin(state + row * self.pitch)
            store(self.states, const(-math.inf, lanes), [offset], lanes)
            for first in range(lanes, self.pitch, lanes):
                store(self.states, const(0.0, lanes), [offset + first], lanes)

    def attend(self, rows: Sequence[QueryRow], block: KeyBlock, state: Any) -> None:
        """Add a block of keys to a tile of queries, whose states begin at an offset."""
        seen, count = rows[0].num_seen, block.count
        if seen is None:
            self._attend(rows, block, state, count)
            return
        for row in rows[1:]:
            seen = tirx.max(seen, row.num_seen)
        count = TirOps().bind(tirx.min(count, seen - block.first))
        with T.If(count > i64(0)), T.Then():
            self._attend(rows, block, state, count)

    def _attend(self, rows: Sequence[QueryRow], block: KeyBlock, state: Any, count: Any) -> None:
        step = self.micro_kernel.columns
        for begin in range(0, BLOCK, step):
            with T.If(count > i64(begin)), T.Then():
                self._score(rows, block, begin)
        states = [TirOps().bind(state + i * self.pitch) for i in range(len(rows))]
        factors = [self._weigh(i, row, block, count, states[i]) for i, row in enumerate(rows)]
        for begin in range(0, self.width, step):
            self._add_values(
                block, count, states, factors, range(begin, min(begin + step, self.width), self.lanes)
            )

    def _score(self, rows: Sequence[QueryRow], block: KeyBlock, begin: int) -> None:
        """Write the products of a tile's queries with some keys."""
        lanes, firsts = self.lanes, range(begin, begin + self.micro_kernel.columns, self.lanes)
        accumulators = {(i, first): small_buffer(lanes) for i in range(len(rows)) for first in firsts}
        for one in accumulators.values():
            store(one, const(0.0, lanes), [0], lanes)
        queries = self.memory.buffers[self.problem.plan.query]
        with T.serial(i64(0), i64(self.problem.head[0])) as d:
            keys = {first: named(load(block.keys, [d * BLOCK + first], lanes), lanes) for first in firsts}
            for i, row in enumerate(rows):
                query = named(splat(load(queries, [row.query + d], 1), lanes), lanes)
                for first, key in keys.items():
                    one = accumulators[i, first]
                    store(one, fma(query, key, load(one, [0], lanes), lanes), [0], lanes)
        for (i, first), one in accumulators.items():
            store(self.scores, load(one, [0], lanes), [i64(i * BLOCK + first)], lanes)

    def _weigh(self, i: int, row: QueryRow, block: KeyBlock, count: Any, state: Any) -> Any:
        """Turn the products of one query into weights; returns what earlier sums are multiplied with."""
        lanes, states = self.lanes, self.states
        scores = self._scaled(i, row, block, count)
        before = named(load(states, [state], lanes), lanes)
        highest = before
        for score in scores:
            highest = larger_number(highest, score, lanes)
        highest = in_every_lane(larger_number, highest, lanes)
        base = finite(highest, lanes)
        weights = [named(exp_of_negative(score - base, lanes), lanes) for score in scores]
        for number, weight in enumerate(weights):
            store(self.scores, weight, [i64(i * BLOCK + number * lanes)], lanes)
        factor = named(exp_of_negative(before - base, lanes), lanes)
        while len(weights) > 1:
            weights = [add(a, b, lanes) for a, b in zip(weights[::2], weights[1::2], strict=True)]
        store(
            states,
            fma(load(states, [state + lanes], lanes), factor, weights[0], lanes),
            [state + lanes],
            lanes,
        )
        store(states, highest, [state], lanes)
        return factor

    def _scaled(self, i: int, row: QueryRow, block: KeyBlock, count: Any) -> list[Any]:
        """Return the scores of one query, -inf where a key does not exist or is hidden."""
        lanes, scale = self.lanes, const(self.plan.scale, self.lanes)
        if row.num_seen is not None:
            count = TirOps().bind(tirx.max(tirx.min(count, row.num_seen - block.first), i64(0)))
        lane = tirx.Ramp(tirx.IntImm("int32", 0), tirx.IntImm("int32", 1), lanes)
        found = []
        for first in range(0, BLOCK, lanes):
            exists = lane < splat(tirx.Cast("int32", count) - tirx.IntImm("int32", first), lanes)
            exists = named(exists, lanes, "bool")
            raw = tirx.Select(exists, load(self.scores, [i64(i * BLOCK + first)], lanes), const(0.0, lanes))
            keys = block.first + first
            raw = self._function(raw, {name: self._read(name, row, keys, exists) for name in self.plan.reads})
            if self.plan.mask is None:
                value = product(raw, scale, lanes)
            else:
                value = fma(raw, scale, self._read(self.plan.mask, row, keys, exists), lanes)
            found.append(named(tirx.Select(exists, value, const(-math.inf, lanes)), lanes))
        return found

    def _function(self, raw: Any, values: dict[str, Any]) -> Any:
        """Return what the softmax is of, from the products of a query with some keys and what is read."""
        if not self.problem.functions:
            return raw
        values |= {self.plan.product: named(raw, self.lanes)}
        for p in self.problem.functions:
            operands = [values[o] if isinstance(o, str) else const(o, self.lanes) for o in p.operands]
            values[p.name] = named(pointwise(p.kind, operands, self.lanes, p.option), self.lanes)
        return values[self.plan.scores]

    def _read(self, tensor: str, row: QueryRow, keys: Any, exists: Any) -> Any:
        """Return a tensor at some keys; what lies past the last one is not read."""
        memory, lanes, first = self.memory, self.lanes, row.added[tensor]
        buffer, own = memory.buffers[tensor], self.problem.indices[tensor]
        if self.plan.keys not in own:
            return named(splat(load(buffer, [first], 1), lanes), lanes)
        if own.endswith(self.plan.keys):
            return named(load_masked(buffer, first + keys, lanes, exists), lanes)
        stride, last = as_int64(memory.stride(tensor, self.plan.keys)), memory.extents[self.plan.keys] - 1
        found = small_buffer(lanes)
        with T.serial(i64(0), i64(lanes)) as lane:
            value = load(buffer, [first + tirx.min(keys + lane, as_int64(last)) * stride], 1)
            store(found, value, [lane], 1)
        return named(load(found, [0], lanes), lanes)

    def _add_values(
        self, block: KeyBlock, count: Any, states: Sequence[Any], factors: Sequence[Any], firsts: range
    ) -> None:
        """Add some elements of the values of a block, weighted, to those of a tile of queries."""
        lanes, width = self.lanes, self.problem.head[1]
        accumulators = {(i, first): small_buffer(lanes) for i in range(len(states)) for first in firsts}
        for (i, first), one in accumulators.items():
            before = load(self.states, [states[i] + 2 * lanes + first], lanes)
            store(one, product(before, factors[i], lanes), [0], lanes)
        with T.serial(i64(0), as_int64(count)) as k:
            at = TirOps().bind(block.values.at(k))
            left = self.width if block.are_padded else width
            values = {
                f: named(value_vector(block.values.buffer, at + f, left - f, lanes), lanes) for f in firsts
            }
            for i in range(len(states)):
                weight = named(splat(load(self.scores, [i * BLOCK + k], 1), lanes), lanes)
                for first, value in values.items():
                    one = accumulators[i, first]
                    store(one, fma(weight, value, load(one, [0], lanes), lanes), [0], lanes)
        for (i, first), one in accumulators.items():
            store(self.states, load(one, [0], lanes), [states[i] + 2 * lanes + first], lanes)

    def combine(self, state: Any, other: Any) -> None:
        """Add what is kept of one query for later keys to what is kept for earlier ones."""
        lanes, states = self.lanes, self.states
        before, after = (named(load(states, [offset], lanes), lanes) for offset in (state, other))
        highest = larger_number(before, after, lanes)
        base = finite(highest, lanes)
        factors = [named(exp_of_negative(m - base, lanes), lanes) for m in (before, after)]
        store(states, highest, [state], lanes)
        for first in range(lanes, self.pitch, lanes):
            one, two = (load(states, [offset + first], lanes) for offset in (state, other))
            value = fma(one, factors[0], product(two, factors[1], lanes), lanes)
            store(states, value, [state + first], lanes)

    def finish(self, state: Any, output: Any) -> None:
        """Write the result of one query to an offset."""
        lanes, width, buffer = self.lanes, self.problem.head[1], self.memory.buffers[self.problem.outputs[0]]
        total = in_every_lane(add, load(self.states, [state + lanes], lanes), lanes)
        inverse = self.plan.inverse(total, const(1.0, lanes), const(0.0, lanes), tirx.Select)
        inverse = named(inverse, lanes)
        for first in range(0, width, lanes):
            value = load(self.states, [state + 2 * lanes + first], lanes) * inverse
            if width - first >= lanes:
                store(buffer, value, [output + first], lanes)
            else:
                store_masked(buffer, value, output + first, first_lanes(i64(width - first), lanes))
