"""Grid and workspace of a micro-kernel at given extents: written once for TIR, NumPy and plain integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.partition import Ops, ceildiv
from dietcode.search_space.problem import Problem

SUM_THREADS = 256
"""Threads of a block that adds the parts of a split reduction."""


@dataclass(frozen=True)
class Grid:
    """How one call is launched; each field is a scalar expression or an array [num_instances].

    Attributes
    ----------
    row_tiles, column_tiles : tiles along each axis.
    blocks : thread blocks of one part of the reduction, one for each tile of each batch.
    step_tiles : pieces of `CudaMicroKernel.steps` that the reduction is cut in.
    elements : elements of the output.
    """

    row_tiles: Any
    column_tiles: Any
    blocks: Any
    step_tiles: Any
    elements: Any


def grid_of(problem: Problem, tile: CudaMicroKernel, extents: dict[str, Any], ops: Ops) -> Grid:
    """The grid; 16·T = 2048 rows and 2304 columns in tiles of 128x128 are 16·18 blocks."""
    batch, rows, columns, reduction = problem.sizes(extents)
    row_tiles, column_tiles = ceildiv(rows, tile.rows, ops), ceildiv(columns, tile.columns, ops)
    return Grid(
        row_tiles,
        column_tiles,
        batch * row_tiles * column_tiles,
        ceildiv(reduction, tile.steps, ops),
        batch * rows * columns,
    )


def workspace_elements(problem: Problem, tile: CudaMicroKernel, extents: dict[str, Any]) -> Any:
    """float32 elements that a call keeps in global memory: each part's sums, where the reduction is split."""
    batch, rows, columns, _ = problem.sizes(extents)
    return batch * rows * columns * (tile.splits if tile.splits > 1 else 0)
