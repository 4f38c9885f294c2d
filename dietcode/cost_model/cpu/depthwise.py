"""f_local of depthwise convolutions: seconds of a call from the vectors that tiles compute and move.

    t_work = Σᵢ cᵢ·termᵢ                           seconds of a balanced core
    t      = c₀ + t_work · (κ·x + 1 − κ)           seconds of a call

The terms are the tiles of a core (their begin, and the vectors of the packed kernel that each reads), the
products of vectors, those of tiles at an edge again (their loads are masked), and the seconds that a copy of
the call's bytes takes on this device beyond those within a cache.
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
from dietcode.search_space.cpu.depthwise.micro_kernel import DepthwiseKernel
from dietcode.search_space.cpu.depthwise.space import allows, num_panels, num_tasks
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.depthwise import DepthwiseProblem
from dietcode.search_space.partition import NumpyOps, choose_partition
from dietcode.search_space.problem import IntArray

_FLOAT_BYTES = 4
_TILE_CYCLES = 10.0  # begin and end
_EDGE_CYCLES = 0.4  # of a product at an edge, more than inside
_STREAMED_BYTES_PER_CYCLE = 4.0
TERMS = (
    "secs_per_tile",
    "secs_per_product",
    "secs_per_edge_product",
    "share_of_copy_beyond_caches",
)

FEATURES = (
    Feature("rows", "elements", "positions that are computed together"),
    Feature("vectors", "registers", "vectors of channels that are computed together"),
    Feature("window", "elements", "of the window"),
    Feature("stride", "elements", "along a line"),
    Feature("has_strips", "0/1", "a tile of channels passes by a whole line"),
    Feature("is_serial", "0/1", "one core computes everything"),
    Feature("is_streaming", "0/1", "outputs are written past the caches"),
    Feature("stages", "stages", "epilogue stages"),
    Feature("log_lines", "log2 lines", "lines of the output"),
    Feature("log_width", "log2 elements", "positions along a line"),
    Feature("log_channels", "log2 elements", "channels"),
    Feature("at_edges", "ratio", "tiles at an edge over all"),
    Feature("padding", "ratio", "positions that tiles compute beyond the end of lines over all"),
    Feature("log_bytes", "log2 bytes", "bytes of all tensors"),
    Feature("log_estimate", "log2 seconds", "estimated seconds of the call"),
)


@dataclass(frozen=True)
class DepthwiseCounts(CoreCounts):
    """Counts for each instance; every array is float64 [num_instances].

    Attributes
    ----------
    padded_flops : the same with whole tiles of positions and whole vectors of channels.
    tiles : tiles of a core, mean of the cores.
    products : products of vectors that a core computes, mean of the cores.
    at_edges : tiles that reach past an edge, or read outside of the data, over all.
    num_bytes : bytes of all tensors.
    tasks : cores that take part.
    """

    tiles: FloatArray
    products: FloatArray
    at_edges: FloatArray
    num_bytes: FloatArray
    tasks: int

    def work(self, bandwidth: Bandwidth) -> FloatArray:
        """Return the terms of t_work, [num_instances, num_terms], in the order of `TERMS`."""
        edges, beyond = self.products * self.at_edges, bandwidth.excess_secs(self.num_bytes)
        return np.stack([self.tiles, self.products, edges, beyond], axis=1)


def count_depthwise(
    problem: DepthwiseProblem, micro_kernel: DepthwiseKernel, limits: Limits, extents: Extents
) -> DepthwiseCounts:
    """Count for all instances at once.

    Parameters
    ----------
    extents : dict of str to int64 array [num_instances]
        Extent of every index.
    """
    shape, tasks = next(iter(extents.values())).shape, num_tasks(micro_kernel, limits)
    _, rows, columns, window = (
        np.broadcast_to(np.asarray(s, dtype=np.int64), shape) for s in problem.sizes(extents)
    )
    width = extents[problem.rows[-1]]
    lines, row_tiles = rows // width, -(-width // micro_kernel.rows)
    panels, vectors = num_panels(problem, limits), micro_kernel.columns // limits.lanes
    column_tiles = -(-panels // vectors) + 0 * rows
    grid = choose_partition(
        1 + 0 * rows, lines * row_tiles, column_tiles, tasks, False, NumpyOps(), rows_first=True
    )
    tiles = lines * row_tiles * column_tiles
    products = 1.0 * lines * row_tiles * micro_kernel.rows * panels * window
    padding = products * limits.lanes / (1.0 * rows * columns * window)
    flops = np.broadcast_to(np.asarray(problem.flops(extents), dtype=np.float64), shape)
    return DepthwiseCounts(
        flops=flops,
        padded_flops=flops * padding,
        imbalance=grid.largest_load * tasks / tiles,
        tiles=tiles / tasks,
        products=products / tasks,
        at_edges=_at_edges(problem, micro_kernel.rows, row_tiles, extents),
        num_bytes=_num_bytes(problem, extents) + 0.0 * flops,
        tasks=tasks,
    )


def _at_edges(problem: DepthwiseProblem, tile: int, row_tiles: IntArray, extents: Extents) -> FloatArray:
    """Return the share of the tiles that reach past an edge, or read outside of the data."""
    inside = np.ones(row_tiles.shape)
    for window, step, num_tiles in zip(
        reversed(problem.spatial), (tile, 1), (row_tiles, extents[problem.rows[-2]]), strict=False
    ):
        reach = (step - 1) * window.stride + (extents[window.kernel] - 1) * window.dilation
        first = -(-window.padding // (step * window.stride))
        last = (extents[window.axis] - 1 - reach + window.padding) // (step * window.stride)
        whole = extents[window.output] // step - 1  # the last that exists as a whole
        inside = inside * np.clip(np.minimum(last, whole) - first + 1, 0, num_tiles) / num_tiles
    return 1.0 - inside


def _num_bytes(problem: DepthwiseProblem, extents: Extents) -> Any:
    """Return the bytes of all tensors once."""
    names = (*problem.inputs, problem.output)
    return sum(
        1.0 * _FLOAT_BYTES * problem.product(tuple(problem.indices[name]), dict(extents)) for name in names
    )


FORM = TermForm(TERMS, count_depthwise, allows)


@dataclass(frozen=True)
class DepthwiseEstimator(TermEstimator):
    """`dietcode.cost_model.model.Estimator` of depthwise convolutions on a CPU."""

    form: ClassVar[TermForm] = FORM
    columns: ClassVar[tuple[Feature, ...]] = FEATURES
    version: ClassVar[int] = 3002

    def cycles(
        self, problem: DepthwiseProblem, micro_kernel: DepthwiseKernel, counts: DepthwiseCounts
    ) -> FloatArray:
        tiles, products, edges, beyond = counts.work(self.bandwidth(micro_kernel)).T
        window = problem.product(problem.reduction, dict(problem.extents))
        vectors, along = micro_kernel.columns // self.limits.lanes, problem.spatial[-1]
        width = problem.extents[along.kernel] or 1
        # Vectors of the data that a line of the window takes, and of the kernel; a core loads one in the time
        # of a product.
        positions = len(
            {i * along.stride + t * along.dilation for i in range(micro_kernel.rows) for t in range(width)}
        )
        loads = tiles * vectors * window * (positions / width + 1)
        moved = beyond * self.cycles_per_sec
        if micro_kernel.stream:  # about half of the bytes are written
            moved = np.maximum(moved, counts.num_bytes / counts.tasks / 2 / _STREAMED_BYTES_PER_CYCLE)
        cycles = np.maximum(np.maximum(products, loads) + edges * _EDGE_CYCLES, moved)
        cycles = cycles + tiles * _TILE_CYCLES
        total: FloatArray = cycles * counts.stretch(self.kappa)
        return total

    def values(
        self,
        problem: DepthwiseProblem,
        micro_kernel: DepthwiseKernel,
        counts: DepthwiseCounts,
        extents: Extents,
    ) -> Sequence[Any]:
        _, rows, columns, window = problem.sizes(extents)
        width = extents[problem.rows[-1]]
        return (
            micro_kernel.rows,
            micro_kernel.columns // self.limits.lanes,
            window,
            problem.spatial[-1].stride,
            micro_kernel.strips,
            micro_kernel.serial,
            micro_kernel.stream,
            len(problem.stages),
            np.log2(rows / width),
            np.log2(width),
            np.log2(columns),
            counts.at_edges,
            -(-width // micro_kernel.rows) * micro_kernel.rows / width - 1.0,
            np.log2(counts.num_bytes),
        )
