"""f_local of blocks with products: seconds of a call from the multiply-adds, the panels and the tiles.

    t_work = Σᵢ cᵢ·termᵢ                           seconds of a balanced core
    t      = c₀ + t_work · (κ·x + 1 − κ)           seconds of a call

The terms are multiply-adds of vectors, rows and columns rounded up to tiles; elements of panels that a core
streams, once for each block of rows; tiles, with the functions of what they sum; elements of column tensors
that a call packs; and vectors of rows that follow a reduction along them. f_spatial and f_pad are those of
contractions.
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
from dietcode.search_space.cpu.products.loops import loops_of
from dietcode.search_space.cpu.products.micro_kernel import ProductKernel
from dietcode.search_space.cpu.products.space import allows, num_tasks, row_elements
from dietcode.search_space.partition import NumpyOps, choose_partition, row_tiles_in_l2
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.passes import COSTLY

_CYCLES_PER_PRIMITIVE = 0.6  # of a vector
_CYCLES_PER_COSTLY = 12.0
_CYCLES_PER_VECTOR_AFTER = 8.0  # a norm, from L2
_TILE_CYCLES = 40.0  # begin and end of a tile
_LEAST_CHAIN = 8  # multiply-adds that have to be in flight on two ports
_PANEL_BYTES_PER_CYCLE = 16.0
_PACKED_PER_CYCLE = 1.0
_FLOAT_BYTES = 4
TERMS = (
    "secs_per_multiply_add",
    "secs_per_panel_element",
    "secs_per_tile",
    "secs_per_packed_element",
    "secs_per_vector_after",
)

FEATURES = (
    Feature("rows", "elements", "rows of the tile"),
    Feature("vectors", "registers", "vectors of a row of the tile"),
    Feature("accumulators", "accumulators", "sets of accumulators"),
    Feature("registers_share", "ratio", "registers that a loop takes over those that there are"),
    Feature("is_serial", "0/1", "one core computes everything"),
    Feature("functions", "functions", "functions of an element, those that take long twenty times"),
    Feature("log_rows", "log2 rows", "flattened rows"),
    Feature("log_columns", "log2 elements", "flattened columns"),
    Feature("log_depth", "log2 elements", "reductions of all products, once for each set of accumulators"),
    Feature("padding", "ratio", "computed over needed rows and columns"),
    Feature("imbalance", "ratio", "the most loaded core's tiles over the mean"),
    Feature("log_tiles", "log2 tiles", "tiles of a core"),
    Feature("packed_share", "ratio", "packed elements over multiply-adds"),
    Feature("log_estimate", "log2 seconds", "estimated seconds of the call"),
)


@dataclass(frozen=True)
class ProductCounts(CoreCounts):
    """Counts for each instance; every array is float64 [num_instances].

    Attributes
    ----------
    padded_flops : the same with rows and columns rounded up to tiles.
    tiles : tiles of a core, mean.
    multiply_adds : vectors that a core multiplies and adds, mean.
    panel_elements : elements of panels that a core streams, mean.
    packed : elements of column tensors that a core packs, mean.
    after : vectors of rows that a core computes after a reduction along them, mean.
    depth : extents of the reductions of all products, once for each set of accumulators.
    """

    tiles: FloatArray
    multiply_adds: FloatArray
    panel_elements: FloatArray
    packed: FloatArray
    after: FloatArray
    depth: FloatArray

    def work(self, bandwidth: Bandwidth | None = None) -> FloatArray:
        """Return the terms of t_work, [num_instances, num_terms], in the order of `TERMS`."""
        terms = (self.multiply_adds, self.panel_elements, self.tiles, self.packed, self.after)
        return np.stack(terms, axis=1)


def count_products(
    problem: ProductProblem, micro_kernel: ProductKernel, limits: Limits, extents: Extents
) -> ProductCounts:
    """Count for all instances at once.

    Parameters
    ----------
    extents : dict of str to int64 array [num_instances]
        Extent of every index.
    """
    shape, tasks, ops = next(iter(extents.values())).shape, num_tasks(micro_kernel, limits), NumpyOps()
    _, rows, columns, depth = (
        np.broadcast_to(np.asarray(s, dtype=np.int64), shape) for s in problem.sizes(extents)
    )
    row_tiles, column_tiles = -(-rows // micro_kernel.rows), -(-columns // micro_kernel.columns)
    grid = choose_partition(1 + 0 * rows, row_tiles, column_tiles, tasks, False, ops)
    tiles = row_tiles * column_tiles / tasks
    vectors = micro_kernel.columns // limits.lanes
    flops = np.broadcast_to(np.asarray(problem.flops(extents), dtype=np.float64), shape)
    in_l2 = row_tiles_in_l2(row_elements(problem, extents), micro_kernel.rows, limits.l2_bytes, ops)
    blocks = np.ceil(np.maximum(row_tiles / grid.row_parts, 1.0) / in_l2)
    packed = sum(
        1.0 * problem.product(problem.layout(name).reduction, extents) * columns
        for name in problem.column_tensors
        if name not in problem.constants
    )
    return ProductCounts(
        flops=flops,
        padded_flops=flops
        * (row_tiles * micro_kernel.rows / rows)
        * (column_tiles * micro_kernel.columns / columns),
        imbalance=np.asarray(grid.largest_load * tasks / (row_tiles * column_tiles), dtype=np.float64),
        tiles=tiles,
        multiply_adds=tiles * micro_kernel.rows * vectors * depth,
        panel_elements=blocks * column_tiles * micro_kernel.columns * depth / grid.column_parts,
        packed=np.broadcast_to(np.asarray(packed, dtype=np.float64), shape) / limits.num_cores,
        after=rows * -(-columns // limits.lanes) / tasks * (problem.rest is not None),
        depth=depth.astype(np.float64),
    )


FORM = TermForm(TERMS, count_products, allows)


@dataclass(frozen=True)
class ProductEstimator(TermEstimator):
    """`dietcode.cost_model.model.Estimator` of blocks with products on a CPU."""

    form: ClassVar[TermForm] = FORM
    columns: ClassVar[tuple[Feature, ...]] = FEATURES
    version: ClassVar[int] = 2002

    def cycles(
        self, problem: ProductProblem, micro_kernel: ProductKernel, counts: ProductCounts
    ) -> FloatArray:
        vectors = micro_kernel.columns // self.limits.lanes
        loops = loops_of(problem, micro_kernel.rows, vectors, self.limits.num_registers)
        # Of one step of a loop: FMAs, loads, the chains' latency, and the panel from L2; then for each sum.
        step = sum(
            max(
                micro_kernel.rows * vectors * loop.num_accumulators,
                micro_kernel.rows * len(loop.targets) + vectors * len(loop.gates),
                _LEAST_CHAIN,
                micro_kernel.columns * len(loop.gates) * _FLOAT_BYTES / _PANEL_BYTES_PER_CYCLE,
            )
            / 2
            for loop in loops
        ) / sum(loop.num_accumulators for loop in loops)
        per_tile = _TILE_CYCLES + micro_kernel.rows * vectors * _function_cycles(problem)
        cycles = counts.tiles * (counts.depth * step + per_tile)
        cycles += counts.after * _CYCLES_PER_VECTOR_AFTER
        total: FloatArray = cycles * counts.stretch(self.kappa) + counts.packed / _PACKED_PER_CYCLE
        return total

    def values(
        self, problem: ProductProblem, micro_kernel: ProductKernel, counts: ProductCounts, extents: Extents
    ) -> Sequence[Any]:
        _, rows, columns, depth = problem.sizes(extents)
        vectors, sets = micro_kernel.columns // self.limits.lanes, len(problem.plan.accumulators)
        loops = loops_of(problem, micro_kernel.rows, vectors, self.limits.num_registers)
        most = max(loop.num_accumulators for loop in loops)
        return (
            micro_kernel.rows,
            vectors,
            sets,
            (micro_kernel.rows * vectors * most + vectors + 1) / self.limits.num_registers,
            micro_kernel.serial,
            _function_cycles(problem) / _CYCLES_PER_PRIMITIVE,
            np.log2(rows),
            np.log2(columns),
            np.log2(depth),
            counts.padded_flops / counts.flops,
            counts.imbalance,
            np.log2(counts.tiles),
            counts.packed / np.maximum(counts.multiply_adds, 1.0),
        )


def _function_cycles(problem: ProductProblem) -> float:
    """Return the cycles of the functions of one vector."""
    kinds = [primitive.kind for primitive in problem.plan.primitives]
    costly = sum(kind in COSTLY for kind in kinds)
    return costly * _CYCLES_PER_COSTLY + (len(kinds) - costly) * _CYCLES_PER_PRIMITIVE
