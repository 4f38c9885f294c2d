"""Grids and workspace of a micro-kernel at given extents: written once for TIR, NumPy, C and plain integers.

Also what it needs of callers' addresses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dietcode.search_space.cuda.fetching import output_width, plan_fetch, stage_width
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.padding import (
    block_extents,
    block_problem,
    copies_of,
    own_batch,
    writes_parts,
)
from dietcode.search_space.partition import NumpyOps, Ops, ceildiv
from dietcode.search_space.problem import Problem

SUM_THREADS = 256
"""Threads of a block that adds the parts of a split reduction, or copies an operand."""
WORKSPACE = "(workspace)"
"""The argument that sums go to which are not in the output yet; no tensor's name."""
MAX_REGIONS = 3
"""Of a micro-kernel's workspace: copies of both operands, and sums."""
_WORDS = 4  # float32s in 16 bytes, of which every region of the workspace begins at a multiple


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


@dataclass(frozen=True)
class CopyShape:
    """A padded copy as its function sees it.

    Attributes
    ----------
    outer, inner : extents of its two axes behind the batch.
    blocks : outer indices of all batches, a thread block each.
    elements : all of them.
    """

    outer: Any
    inner: Any
    blocks: Any
    elements: Any


def copy_shapes(
    problem: Problem, tile: CudaMicroKernel, extents: dict[str, Any], ops: Ops
) -> dict[str, CopyShape]:
    """Extents of the padded copies by name, in the order of `copies_of`."""
    whole, found = block_problem(problem, tile), {}
    sizes = block_extents(problem, tile, extents, ops)
    for copy in copies_of(problem, tile):
        lines = whole.rows if copy.operand == problem.row_operand else whole.columns
        axes = [whole.product(letters, sizes) for letters in (lines, whole.reduction)]
        outer, inner = axes if copy.along_reduction else axes[::-1]
        blocks = problem.product(own_batch(problem, copy.operand), extents) * outer
        found[copy.name] = CopyShape(outer, inner, blocks, blocks * inner)
    return found


def grids_of(
    problem: Problem, tile: CudaMicroKernel, extents: dict[str, Any], ops: Ops
) -> list[tuple[Any, int]]:
    """Blocks along x and y of each function that a call launches: copies, the block function, the sum."""
    grid = grid_of(problem, tile, extents, ops)
    copies: list[tuple[Any, int]] = [
        (shape.blocks, 1) for shape in copy_shapes(problem, tile, extents, ops).values()
    ]
    sums = [(ceildiv(grid.elements, SUM_THREADS, ops), 1)] if writes_parts(problem, tile) else []
    return [*copies, (grid.blocks, tile.splits), *sums]


@dataclass(frozen=True)
class Region:
    """A part of the workspace, in float32s; scalar expressions.

    Attributes
    ----------
    first, size : where it begins, a multiple of 16 bytes, and how long it is.
    """

    first: Any
    size: Any


def regions_of(
    problem: Problem, tile: CudaMicroKernel, extents: dict[str, Any], ops: Ops
) -> dict[str, Region]:
    """What a call keeps in global memory, by the argument that it is: padded copies, sums on their way."""
    sizes: dict[str, Any] = {}
    for name, shape in copy_shapes(problem, tile, extents, ops).items():
        itemsize = block_problem(problem, tile).storage(name).itemsize
        sizes[name] = ceildiv(shape.elements * itemsize, 4 * _WORDS, ops) * _WORDS
    if writes_parts(problem, tile):
        batch, rows, columns, _ = block_problem(problem, tile).sizes(
            block_extents(problem, tile, extents, ops)
        )
        sizes[WORKSPACE] = batch * rows * columns * tile.splits
    regions: dict[str, Region] = {}
    first: Any = 0
    for name, size in sizes.items():  # sums are the last: their size need be no multiple
        regions[name] = Region(first, size)
        first = size + first
    return regions


def workspace_elements(problem: Problem, tile: CudaMicroKernel, extents: dict[str, int]) -> int:
    """float32s that a call keeps in global memory."""
    regions = regions_of(problem, tile, extents, NumpyOps()).values()
    return max((int(region.first + region.size) for region in regions), default=0)


def alignments(problem: Problem, tile: CudaMicroKernel) -> dict[str, int]:
    """Bytes that the address of each tensor must be a multiple of; copies and sums take single elements."""
    whole = block_problem(problem, tile)
    widths = {
        name: plan_fetch(whole, name, tile).width if name in whole.inputs else 1
        for name in problem.inputs[:2]
    }
    own = output_width(problem, tile)
    stages = {name: stage_width(problem, name, own) for name in problem.inputs[2:]}
    parts = writes_parts(problem, tile)
    widths |= {name: 1 if parts else width for name, width in (stages | {problem.output: own}).items()}
    return {name: width * problem.storage(name).itemsize for name, width in widths.items()}
