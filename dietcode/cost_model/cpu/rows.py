"""f_local of row blocks: seconds of a call from what its passes read, compute and write.

    t_work = Σᵢ cᵢ·termᵢ                           seconds of a balanced core
    t      = c₀ + t_work · (κ·x + 1 − κ)           seconds of a call

The terms are groups of rows that a core computes (the begin and end of passes, the accumulators combined),
the vectors that it computes, those past the last whole step of a row again (they are computed one by one, and
masked), and the seconds that a copy of the call's bytes takes on this device beyond those within a cache: its
coefficient tells how much of that is not hidden. With f_local in operations a second, as for contractions,
bytes a second are f_local · bytes / operations, as the report says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dietcode.cost_model.cpu.bandwidth import Bandwidth
from dietcode.cost_model.cpu.counts import CoreCounts
from dietcode.cost_model.cpu.estimator import TermEstimator
from dietcode.cost_model.cpu.terms import TermForm
from dietcode.cost_model.model import Extents, Feature, FloatArray
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.rows.micro_kernel import RowKernel
from dietcode.search_space.cpu.rows.space import allows, num_tasks
from dietcode.search_space.partition import NumpyOps, choose_partition
from dietcode.search_space.rows.passes import COSTLY, schedule
from dietcode.search_space.rows.problem import RowProblem

_CYCLES_PER_PRIMITIVE = 0.6  # of a vector
_CYCLES_PER_COSTLY = 12.0
_GROUP_CYCLES = 60.0  # begin and end of a pass
_L2_BYTES_PER_CYCLE = 16.0
_GROUP_CYCLES_OVERLAPPING = 40.0  # where another pass lies between two that wait for each other
_TAIL_CYCLES = 4.0  # of a vector past the last whole step, for each pass
_STREAMED_BYTES_PER_CYCLE = 1.5  # of lines that a cache holds, which it has to give up
_CACHED_BYTES = 4 << 20  # of a core that writes past the caches: less than this they would have held
TERMS = (
    "secs_per_group",
    "secs_per_vector",
    "secs_per_vector_past_steps",
    "share_of_copy_beyond_caches",
)

FEATURES = (
    Feature("rows", "elements", "rows that are computed together"),
    Feature("vectors", "registers", "vectors of a row that are computed together"),
    Feature("passes", "passes", "ways through a row"),
    Feature("kept", "values", "values that are kept between passes"),
    Feature(
        "costly_per_element", "functions", "functions that take an exponential or a quotient, all passes"
    ),
    Feature("elementary_per_element", "functions", "other functions, all passes"),
    Feature("is_serial", "0/1", "one core computes everything"),
    Feature("is_streaming", "0/1", "outputs are written past the caches"),
    Feature("is_overlapping", "0/1", "the next rows begin before these end"),
    Feature("is_interleaved", "0/1", "passes of several groups of rows are one loop"),
    Feature("fetches_next", "0/1", "lines of the next rows are asked for"),
    Feature("fetches_written", "0/1", "lines that a later pass writes are asked for"),
    Feature("log_rows", "log2 rows", "flattened rows"),
    Feature("log_columns", "log2 elements", "flattened columns"),
    Feature("left_over", "ratio", "rows that are computed one by one over all"),
    Feature("log_bytes", "log2 bytes", "bytes of all tensors"),
    Feature("log_estimate", "log2 seconds", "estimated seconds of the call"),
)


@dataclass(frozen=True)
class RowCounts(CoreCounts):
    """Counts for each instance; every array is float64 [num_instances].

    Attributes
    ----------
    padded_flops : the same with the last vector of each row counted as whole.
    groups : groups of rows of a core that are computed together, single ones included, mean of the cores.
    vectors : vectors of rows that a core computes, mean of the cores.
    tails : those past the last whole step of a row.
    left_over : rows that are computed one by one over all.
    num_bytes : bytes of all tensors.
    tasks : cores that take part.
    """

    groups: FloatArray
    vectors: FloatArray
    tails: FloatArray
    left_over: FloatArray
    num_bytes: FloatArray
    tasks: int

    @property
    def tiles(self) -> FloatArray:
        """What a wave consists of: the groups."""
        return self.groups

    def work(self, bandwidth: Bandwidth) -> FloatArray:
        """Return the terms of t_work, [num_instances, num_terms], in the order of `TERMS`."""
        beyond = bandwidth.excess_secs(self.num_bytes)
        return np.stack([self.groups, self.vectors, self.tails, beyond], axis=1)


def count_rows(problem: RowProblem, micro_kernel: RowKernel, limits: Limits, extents: Extents) -> RowCounts:
    """Count for all instances at once.

    Parameters
    ----------
    extents : dict of str to int64 array [num_instances]
        Extent of every index.
    """
    shape, tasks = next(iter(extents.values())).shape, num_tasks(micro_kernel, limits)
    _, rows, columns, _ = (
        np.broadcast_to(np.asarray(s, dtype=np.int64), shape) for s in problem.sizes(extents)
    )
    if problem.inner:
        return _count_across(problem, micro_kernel, limits, extents)
    if problem.turned:
        extent = np.asarray(problem.product(problem.turned, extents), dtype=np.int64)
        rows = rows // extent * (-(-extent // micro_kernel.rows) * micro_kernel.rows)
    row_tiles = -(-rows // micro_kernel.rows)
    column_tiles = np.ones_like(rows) if problem.reduces else -(-columns // micro_kernel.columns)
    grid = choose_partition(1 + 0 * rows, row_tiles, column_tiles, tasks, False, NumpyOps(), rows_first=True)
    left = rows % micro_kernel.rows
    vectors = -(-columns // limits.lanes)
    in_steps = columns // micro_kernel.columns * (micro_kernel.columns // limits.lanes)
    flops = np.broadcast_to(np.asarray(problem.flops(extents), dtype=np.float64), shape)
    return RowCounts(
        flops=flops,
        padded_flops=flops * (vectors * limits.lanes / columns),
        imbalance=grid.largest_load * tasks / (row_tiles * column_tiles),
        groups=(rows // micro_kernel.rows + left) * grid.column_parts / tasks,
        vectors=rows * vectors / tasks,
        tails=rows * (vectors - in_steps) / tasks,
        left_over=left / rows,
        num_bytes=np.broadcast_to(np.asarray(problem.num_bytes(extents), dtype=np.float64), shape),
        tasks=tasks,
    )


def _count_across(
    problem: RowProblem, micro_kernel: RowKernel, limits: Limits, extents: Extents
) -> RowCounts:
    """Count for a block whose vectors lie across rows: its tails are columns past the last whole step."""
    shape, tasks = next(iter(extents.values())).shape, num_tasks(micro_kernel, limits)
    outer, inner, columns = (
        np.broadcast_to(np.asarray(problem.product(indices, extents), dtype=np.int64), shape)
        for indices in (problem.outer, problem.inner, problem.columns)
    )
    tiles, height = -(-inner // micro_kernel.rows), micro_kernel.rows // limits.lanes
    grid = choose_partition(1 + 0 * outer, outer, tiles, tasks, False, NumpyOps(), rows_first=True)
    vectors = -(-inner // limits.lanes)
    left = vectors - inner // micro_kernel.rows * height
    flops = np.broadcast_to(np.asarray(problem.flops(extents), dtype=np.float64), shape)
    return RowCounts(
        flops=flops,
        padded_flops=flops * (vectors * limits.lanes / inner),
        imbalance=grid.largest_load * tasks / (outer * tiles),
        groups=outer * (inner // micro_kernel.rows + left) / tasks,
        vectors=outer * vectors * columns / tasks,
        tails=outer * vectors * (columns % micro_kernel.columns) / tasks,
        left_over=left / vectors,
        num_bytes=np.broadcast_to(np.asarray(problem.num_bytes(extents), dtype=np.float64), shape),
        tasks=tasks,
    )


FORM = TermForm(TERMS, count_rows, allows)


@dataclass(frozen=True)
class RowEstimator(TermEstimator):
    """`dietcode.cost_model.model.Estimator` of row blocks on a CPU."""

    form: ClassVar[TermForm] = FORM
    columns: ClassVar[tuple[Feature, ...]] = FEATURES
    version: ClassVar[int] = 1005

    def cycles(self, problem: RowProblem, micro_kernel: RowKernel, counts: RowCounts) -> FloatArray:
        passes, costly, elementary = _functions(problem, micro_kernel)
        own = counts.num_bytes / counts.tasks
        groups, vectors, tails, beyond = counts.work(self.bandwidth(micro_kernel)).T
        arithmetic = vectors * (costly * _CYCLES_PER_COSTLY + elementary * _CYCLES_PER_PRIMITIVE)
        moved = own / _L2_BYTES_PER_CYCLE + beyond * self.cycles_per_sec
        if micro_kernel.stream:  # about half of the bytes are written
            moved += np.minimum(own, _CACHED_BYTES) / 2 / _STREAMED_BYTES_PER_CYCLE
        of_pass = _GROUP_CYCLES_OVERLAPPING if micro_kernel.overlap != "none" else _GROUP_CYCLES
        cycles = np.maximum(arithmetic, moved) + groups * passes * of_pass
        cycles += tails * passes * _TAIL_CYCLES
        total: FloatArray = cycles * counts.stretch(self.kappa)
        return total

    def values(
        self, problem: RowProblem, micro_kernel: RowKernel, counts: RowCounts, extents: Extents
    ) -> Sequence[Any]:
        passes, costly, elementary = _functions(problem, micro_kernel)
        _, rows, columns, _ = problem.sizes(extents)
        return (
            micro_kernel.rows // (self.limits.lanes if problem.inner else 1),
            micro_kernel.columns // (1 if problem.inner else self.limits.lanes),
            passes,
            len(schedule(problem, micro_kernel.keep).kept),
            costly,
            elementary,
            micro_kernel.serial,
            micro_kernel.stream,
            micro_kernel.overlap != "none",
            micro_kernel.overlap == "beside",
            micro_kernel.fetch != "none",
            micro_kernel.fetch == "all",
            np.log2(rows),
            np.log2(columns),
            counts.left_over,
            np.log2(counts.num_bytes),
        )


def _functions(problem: RowProblem, micro_kernel: RowKernel) -> tuple[int, int, int]:
    """Return the passes, and the costly and other functions of an element in all of them."""
    passes = schedule(problem, micro_kernel.keep).passes
    kinds = [p.kind for one in passes for p in (*one.elements, *one.reductions)]
    costly = sum(kind in COSTLY for kind in kinds)
    moves = sum(len(one.loads) + len(one.stores) for one in passes)
    return len(passes), costly, len(kinds) - costly + moves
