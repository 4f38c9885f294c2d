"""Counts of one micro-kernel at many instances: tiles, padding and imbalance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from dietcode.cost_model.cpu.steps import cycles_of_step
from dietcode.cost_model.model import FloatArray
from dietcode.search_space.access import lines_of
from dietcode.search_space.cpu.axes import copies_rows, problem_for, splits_rows_first
from dietcode.search_space.cpu.limits import MOST_VECTORS, Limits, MicroKernel
from dietcode.search_space.partition import NumpyOps, ceildiv, choose_partition, row_tiles_in_l2
from dietcode.search_space.problem import IntArray, Problem
from dietcode.target.fma import FMAS


@dataclass(frozen=True)
class CoreCounts:
    """Counts of what cores compute, and what follows from them; every array is float64 [num_instances].

    Attributes
    ----------
    flops : FLOPs of the instance.
    padded_flops : FLOPs that are computed.
    imbalance : x of f_spatial: the most loaded core's share over the mean.
    """

    flops: FloatArray
    padded_flops: FloatArray
    imbalance: FloatArray

    @property
    def f_pad(self) -> FloatArray:
        """FLOPs(W) / FLOPs(pad(W, M)), at most 1."""
        return self.flops / self.padded_flops

    def stretch(self, kappa: float) -> FloatArray:
        """Return κ·x + 1 − κ, the time of a partly filled wave over that of a full one; 1 / f_spatial."""
        return kappa * self.imbalance + 1.0 - kappa


@dataclass(frozen=True)
class Counts(CoreCounts):
    """Counts for each instance; every array is float64 [num_instances].

    Attributes
    ----------
    flops : FLOPs of the instance, 2·batch·rows·columns·reduction.
    padded_flops : FLOPs that are computed, rows and columns rounded up to tiles; with loop partitioning only
        the columns, up to vectors.
    imbalance : x of f_spatial: the most loaded core's tiles over the mean, pad(n, P)/n for equal tiles.
    tiles : tiles of all cores over P.
    visits : column tiles that a core streams from memory (once for each block of rows), mean of the cores.
    padded_tiles : tiles that reach past an edge, over P.
    tail_bodies : bodies that loop partitioning runs in tiles that reach past an edge, over P.
    tail_vectors : rows × vectors that those bodies compute, over P.
    tail_cycles : cycles that a step of the reduction takes in each of those bodies, by arithmetic, over P.
    step_cycles : the same of all bodies, those of whole tiles too.
    streamed : elements that a step of the reduction reads of the panels of all visits; 0 where tasks pack the
        panels themselves, just before they read them.
    written : vectors of the output that are written, over P.
    edge_written : those of them in tiles that reach past an edge, over P.
    packed : elements of the column operand that tasks pack, over P; 0 where it is constant or read directly.
    gathered : elements of the row operand that tasks copy next to each other, over P: rows, or the lines
        under a window, each of which is copied once while the window passes by.
    copied : elements that global padding copies: the row operand, its rows rounded up to tiles, and the
        output, over P.
    reduction : extent of the flattened reduction.
    """

    tiles: FloatArray
    visits: FloatArray
    padded_tiles: FloatArray
    tail_bodies: FloatArray
    tail_vectors: FloatArray
    tail_cycles: FloatArray
    step_cycles: FloatArray
    streamed: FloatArray
    written: FloatArray
    edge_written: FloatArray
    packed: FloatArray
    gathered: FloatArray
    copied: FloatArray
    reduction: FloatArray


def count(
    problem: Problem,
    micro_kernel: MicroKernel,
    limits: Limits,
    extents: dict[str, IntArray],
    fmas: float = FMAS[0],
) -> Counts:
    """Count for all instances at once.

    Parameters
    ----------
    extents : dict of str to int64 array [num_instances]
        Extent of every index.
    fmas : float
        As of `cycles_of_step`.
    """
    ops, problem = NumpyOps(), problem_for(problem, micro_kernel)
    shape = next(iter(extents.values())).shape
    batch, rows, columns, reduction = (
        np.broadcast_to(np.asarray(size, dtype=np.int64), shape) for size in problem.sizes(extents)
    )
    row_tiles = ceildiv(rows, micro_kernel.rows, ops)
    column_tiles = ceildiv(columns, micro_kernel.columns, ops)
    lanes, rows_first = limits.lanes_of(micro_kernel), splits_rows_first(problem, micro_kernel)
    grid = choose_partition(
        batch, row_tiles, column_tiles, limits.num_cores, bool(problem.batch), ops, rows_first
    )
    tiles = batch * row_tiles * column_tiles
    height = row_tiles / grid.row_parts
    in_l2 = row_tiles_in_l2(reduction, micro_kernel.rows, limits.l2_bytes, ops)
    blocks = np.ceil(np.maximum(height, 1.0) / in_l2) if not micro_kernel.window else 1.0
    own_batch = batch / grid.batch_parts
    visits = own_batch * blocks * column_tiles / grid.column_parts
    full = (rows // micro_kernel.rows) * (columns // micro_kernel.columns) * batch
    flops = 2.0 * batch * rows * columns * reduction
    bodies, edge_vectors, cycles = _tails(rows, columns, micro_kernel, lanes, fmas)
    panels = ceildiv(columns, lanes, ops)
    if micro_kernel.tails == "partition":
        computed, vectors = batch * rows * panels * lanes, edge_vectors
    else:
        computed = tiles * micro_kernel.rows * micro_kernel.columns
        bodies, vectors, cycles = bodies * 0, edge_vectors * 0, cycles * 0
    whole = full if micro_kernel.tails == "partition" else tiles
    step = cycles_of_step(micro_kernel.rows, micro_kernel.columns // lanes, lanes, fmas)
    packs = not problem.column_operand_constant and not micro_kernel.direct
    packed = own_batch * blocks * panels * lanes / grid.column_parts * reduction
    gathered = _gathered(problem, micro_kernel, extents, own_batch, rows / grid.row_parts * reduction)
    copied = batch * (row_tiles * micro_kernel.rows * reduction + rows * columns)
    return Counts(
        flops=flops.astype(np.float64),
        padded_flops=2.0 * computed * reduction,
        imbalance=grid.largest_load * limits.num_cores / tiles,
        tiles=tiles / limits.num_cores,
        visits=visits,
        padded_tiles=(tiles - full) / limits.num_cores,
        tail_bodies=batch * bodies / limits.num_cores,
        tail_vectors=batch * vectors / limits.num_cores,
        tail_cycles=batch * cycles / limits.num_cores,
        step_cycles=(whole * step + batch * cycles) / limits.num_cores,
        streamed=visits * micro_kernel.columns * (not packs),
        written=(batch * rows * panels / limits.num_cores).astype(np.float64),
        edge_written=batch * edge_vectors / limits.num_cores,
        packed=packed * packs,
        gathered=gathered * copies_rows(problem, micro_kernel),
        copied=copied * (micro_kernel.tails == "global") / limits.num_cores,
        reduction=reduction.astype(np.float64),
    )


def _gathered(
    problem: Problem,
    micro_kernel: MicroKernel,
    extents: dict[str, IntArray],
    batch: FloatArray,
    of_rows: FloatArray,
) -> FloatArray:
    """Return the elements that a core copies, if it copies.

    Parameters
    ----------
    problem : Problem
        With the roles of the micro-kernel.
    batch : float64 array [num_instances]
        Batch indices of a core; with a window these are lines of the output.
    of_rows : float64 array [num_instances]
        Elements of the rows of each.
    """
    lines = lines_of(problem) if micro_kernel.window else None
    if lines is None:
        return batch * of_rows
    length, across = problem.product((lines.along.axis, *lines.channels), extents), lines.across
    if across is None:
        return np.asarray(batch * length, dtype=np.float64)
    height = (extents[across.kernel] - 1) * across.dilation + 1
    new = np.minimum(across.stride, height)  # and all of them at the first position
    copied: FloatArray = batch * length * (new + (height - new) / extents[across.output])
    return copied


def _tails(
    rows: IntArray, columns: IntArray, micro_kernel: MicroKernel, lanes: int, fmas: float
) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the bodies of loop partitioning in one batch's tails, their rows × vectors, and their cycles.

    Left-over rows take one body for each bit of their number; left-over columns one, or one for each
    vector in wide tiles; where both are left over, one for each of both. The cycles are those of one step
    of the reduction in each body.
    """
    full_rows, left_rows = np.divmod(rows, micro_kernel.rows)
    full_columns, left_columns = np.divmod(columns, micro_kernel.columns)
    left_vectors, width = -(-left_columns // lanes), micro_kernel.columns // lanes
    wide = width > MOST_VECTORS
    across = left_vectors if wide else np.minimum(left_vectors, 1)
    cut = np.ones_like(left_vectors) if wide else left_vectors
    step = partial(cycles_of_step, lanes=lanes, fmas=fmas)
    bodies, cycles = full_rows * across, full_rows * across * step(micro_kernel.rows, cut)
    for bit in range(micro_kernel.rows.bit_length()):
        height, has = 1 << bit, (left_rows >> bit) & 1
        bodies = bodies + has * (full_columns + across)
        cycles = cycles + has * (full_columns * step(height, width) + across * step(height, cut))
    vectors = left_rows * (full_columns * width + left_vectors) + full_rows * micro_kernel.rows * left_vectors
    return bodies, vectors, cycles
