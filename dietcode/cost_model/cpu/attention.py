"""f_local of attention: seconds of a call from the blocks of keys that tiles of queries take.

    t_work = Σᵢ cᵢ·termᵢ                           seconds of a balanced core
    t      = c₀ + t_work · (κ·x + 1 − κ)           seconds of a call

The terms are tiles of queries that a core computes (begin and end), the blocks of keys that they take (scores
and their exponentials), the keys of these (weighted values), the keys that are copied, and the seconds that
a copy of the call's bytes takes on this device beyond those within a cache. Blocks that `causal` hides are
not counted.
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
from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cpu.attention.micro_kernel import BLOCK, SEGMENT, AttentionKernel
from dietcode.search_space.cpu.attention.space import allows, num_tasks
from dietcode.search_space.cpu.limits import Limits

_SOFTMAX_CYCLES = 18.0  # of a vector of scores
_ROW_CYCLES = 40.0  # of a query and a block: the maximum of all lanes, the sums
_COPY_CYCLES = 8.0  # of a vector that is transposed
_TILE_CYCLES = 100.0
TERMS = (
    "secs_per_tile",
    "secs_per_block",
    "secs_per_key",
    "secs_per_copied_key",
    "share_of_copy_beyond_caches",
)

FEATURES = (
    Feature("rows", "elements", "queries that are computed together"),
    Feature("vectors", "registers", "vectors of keys that are computed together"),
    Feature("log_tiles", "log2 tiles", "tiles that take a copied block of keys one after the other"),
    Feature("is_serial", "0/1", "one core computes everything"),
    Feature("is_split", "0/1", "the keys of a query may be divided among cores"),
    Feature("log_groups", "log2 groups", "groups of queries with keys of their own"),
    Feature("log_queries", "log2 rows", "queries of a group"),
    Feature("log_keys", "log2 keys", "keys of a group"),
    Feature("padding", "ratio", "scores that are computed over those that are needed"),
    Feature("imbalance", "ratio", "the most loaded core's share over the mean"),
    Feature("log_bytes", "log2 bytes", "bytes of all tensors"),
    Feature("log_estimate", "log2 seconds", "estimated seconds of the call"),
)


@dataclass(frozen=True)
class AttentionCounts(CoreCounts):
    """Counts for each instance; every array is float64 [num_instances].

    Attributes
    ----------
    padded_flops : the same with whole tiles of queries and whole steps of keys.
    tiles : tiles of queries that a core computes, mean of the cores, as all below.
    blocks : blocks of keys that its tiles take.
    keys : keys that its tiles take.
    copied : keys that it copies.
    num_bytes : bytes of all tensors.
    tasks : cores that take part.
    """

    tiles: FloatArray
    blocks: FloatArray
    keys: FloatArray
    copied: FloatArray
    num_bytes: FloatArray
    tasks: int

    def work(self, bandwidth: Bandwidth) -> FloatArray:
        """Return the terms of t_work, [num_instances, num_terms], in the order of `TERMS`."""
        beyond = bandwidth.excess_secs(self.num_bytes)
        return np.stack([self.tiles, self.blocks, self.keys, self.copied, beyond], axis=1)


def count_attention(
    problem: AttentionProblem, micro_kernel: AttentionKernel, limits: Limits, extents: Extents
) -> AttentionCounts:
    """Count for all instances at once.

    Parameters
    ----------
    extents : dict of str to int64 array [num_instances]
        Extent of every index.
    """
    shape, tasks = next(iter(extents.values())).shape, num_tasks(micro_kernel, limits)
    groups, rows, _, keys = (
        np.broadcast_to(np.asarray(s, dtype=np.int64), shape) for s in problem.sizes(extents)
    )
    of_group = -(-rows // micro_kernel.rows)
    tiles = groups * of_group
    seen = np.broadcast_to(np.asarray(problem.num_scores(extents)), shape) / (groups * rows)
    whole = -(-keys // BLOCK)
    blocks = np.where(seen < keys, np.minimum(seen / BLOCK + 0.5, whole), whole)
    parts = tiles * (-(-keys // SEGMENT) if micro_kernel.split else 1)
    copies = groups * np.maximum(-(-of_group // micro_kernel.tiles), 1)
    flops = np.broadcast_to(np.asarray(problem.flops(extents), dtype=np.float64), shape)
    # Steps of a block's last keys that do not exist are left out.
    computed = np.where(seen < keys, blocks * BLOCK, -(-keys // micro_kernel.columns) * micro_kernel.columns)
    padding = (of_group * micro_kernel.rows / rows) * (computed / np.maximum(seen, 1.0))
    return AttentionCounts(
        flops=flops,
        padded_flops=flops * np.maximum(padding, 1.0),
        imbalance=-(-parts // tasks) * tasks / parts,
        tiles=tiles / tasks,
        blocks=tiles * blocks / tasks,
        keys=tiles * seen / tasks,
        copied=copies * np.minimum(seen + BLOCK / 2, keys) / tasks,
        num_bytes=np.broadcast_to(np.asarray(problem.num_bytes(extents), dtype=np.float64), shape),
        tasks=tasks,
    )


FORM = TermForm(TERMS, count_attention, allows)


@dataclass(frozen=True)
class AttentionEstimator(TermEstimator):
    """`dietcode.cost_model.model.Estimator` of attention on a CPU."""

    form: ClassVar[TermForm] = FORM
    columns: ClassVar[tuple[Feature, ...]] = FEATURES
    version: ClassVar[int] = 4002

    def cycles(
        self, problem: AttentionProblem, micro_kernel: AttentionKernel, counts: AttentionCounts
    ) -> FloatArray:
        rows, lanes, (depth, width) = micro_kernel.rows, self.limits.lanes, problem.head
        # Each step of a sum waits for the one before it; loads of keys and values go beside.
        of_step = max(rows * micro_kernel.columns / lanes, 4.0) / (micro_kernel.columns / lanes)
        block = depth * of_step * BLOCK / lanes + rows * (_SOFTMAX_CYCLES * BLOCK / lanes + _ROW_CYCLES)
        key, copied = of_step * width / lanes, _COPY_CYCLES * depth / lanes
        if micro_kernel.tiles > 1:
            copied += width / lanes
        tiles, blocks, keys, copies, beyond = counts.work(self.bandwidth(micro_kernel)).T
        cycles = tiles * _TILE_CYCLES + blocks * block + keys * key + copies * copied
        cycles = cycles + beyond * self.cycles_per_sec
        total: FloatArray = cycles * counts.stretch(self.kappa)
        return total

    def values(
        self,
        problem: AttentionProblem,
        micro_kernel: AttentionKernel,
        counts: AttentionCounts,
        extents: Extents,
    ) -> Sequence[Any]:
        groups, rows, _, keys = problem.sizes(extents)
        return (
            micro_kernel.rows,
            micro_kernel.columns // self.limits.lanes,
            np.log2(micro_kernel.tiles),
            micro_kernel.serial,
            micro_kernel.split,
            np.log2(groups),
            np.log2(rows),
            np.log2(keys),
            counts.padded_flops / counts.flops,
            counts.imbalance,
            np.log2(counts.num_bytes),
        )
