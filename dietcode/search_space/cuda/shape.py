"""The grids, the workspace and the alignments that a call of a micro-kernel needs at given extents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dietcode.search_space.cuda.classes import class_counts, vector_widths
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.padding import ROLES, block_problem, copies_of, own_batch, writes_parts
from dietcode.search_space.partition import NumpyOps, Ops, ceildiv
from dietcode.search_space.problem import Problem

SUM_THREADS = 256
"""Threads of a block that adds the parts of a split reduction, or copies an operand."""
WORKSPACE = "(workspace)"
"""The argument for accumulators that are not in the output yet; no tensor's name."""
MAX_REGIONS = 3
"""Of a micro-kernel's workspace: copies of both operands, and accumulators."""
_WORDS = 4  # float32s in 16 bytes, of which every region of the workspace begins at a multiple


@dataclass(frozen=True)
class Grid:
    """The tiles of one call; each field is a scalar expression or an array [num_instances].

    Attributes
    ----------
    row_tiles, column_tiles, k_tiles : tiles along the rows, the columns and the reduction.
    blocks : thread blocks of one part of the reduction, one for each tile of each batch; in whole clusters,
        so that some may have no tile. With a persistent grid a launch has fewer, which take tiles in turn.
    elements : elements of the output.
    """

    row_tiles: Any
    column_tiles: Any
    k_tiles: Any
    blocks: Any
    elements: Any


def in_clusters(
    row_tiles: Any, column_tiles: Any, micro_kernel: CudaMicroKernel, ops: Ops
) -> tuple[Any, Any]:
    """Return the clusters of blocks along the rows and along the columns, or tiles, without clusters."""
    down, across = micro_kernel.cluster_rows, micro_kernel.cluster_columns
    return (
        row_tiles if down == 1 else ceildiv(row_tiles, down, ops),
        column_tiles if across == 1 else ceildiv(column_tiles, across, ops),
    )


@dataclass(frozen=True)
class Demand:
    """The work of one call as the cost model counts it; scalar expressions or arrays [num_instances].

    Attributes
    ----------
    blocks : thread blocks of the block function, of all parts of the reduction.
    num_steps : steps of the reduction that a block does, in whole tiles.
    padded_flops : FLOPs of all tiles, reduction included.
    elements : elements that other functions than the block function read and write.
    vectors : loads and stores of global memory of the block functions, of the widest alignment class that the
        extents fit; 0 of blocks, which read and write single elements.
    """

    blocks: Any
    num_steps: Any
    padded_flops: Any
    elements: Any
    vectors: Any = 0


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


@dataclass(frozen=True)
class Region:
    """A part of the workspace, in float32s; scalar expressions.

    Attributes
    ----------
    first, size : where it begins, a multiple of 16 bytes, and how long it is.
    """

    first: Any
    size: Any


@dataclass(frozen=True)
class CallShape:
    """Grids and workspace of one call: written once for TIR, NumPy, C and plain integers.

    Attributes
    ----------
    extents : dict of str to int, array or expression
        Of every index of the problem.
    ops : Ops
        Arithmetic on them.
    """

    problem: Problem
    micro_kernel: CudaMicroKernel
    extents: dict[str, Any]
    ops: Ops = field(default_factory=NumpyOps)

    @property
    def grid(self) -> Grid:
        """The grid; 16·T = 2048 rows and 2304 columns in tiles of 128x128 are 16·18 blocks."""
        batch, rows, columns, reduction = self.problem.sizes(self.extents)
        row_tiles, column_tiles, k_tiles = (
            ceildiv(size, tile, self.ops)
            for size, tile in zip((rows, columns, reduction), self.micro_kernel.tile, strict=True)
        )
        down, across = in_clusters(row_tiles, column_tiles, self.micro_kernel, self.ops)
        blocks = batch * down * across
        if self.micro_kernel.cluster != 1:
            blocks = blocks * self.micro_kernel.cluster
        return Grid(row_tiles, column_tiles, k_tiles, blocks, batch * rows * columns)

    @property
    def block_extents(self) -> dict[str, Any]:
        """Extents of the indices of `block_problem`."""
        padded = block_problem(self.problem, self.micro_kernel)
        found = {index: self.extents[index] for index in padded.extents if index in self.extents}
        for role, tile in zip(ROLES, self.micro_kernel.tile, strict=True):
            indices, own = getattr(padded, role), getattr(self.problem, role)
            if indices != own:
                size = self.problem.product(own, self.extents)
                found |= {indices[0]: ceildiv(size, tile, self.ops), indices[1]: tile}
        return found

    @property
    def copies(self) -> dict[str, CopyShape]:
        """Extents of the padded copies by name, in the order of `copies_of`."""
        problem, found, sizes = self.problem, {}, self.block_extents
        padded = block_problem(problem, self.micro_kernel)
        for copy in copies_of(problem, self.micro_kernel):
            lines = padded.rows if copy.operand == problem.row_operand else padded.columns
            axes = [padded.product(indices, sizes) for indices in (lines, padded.reduction)]
            outer, inner = axes if copy.along_reduction else axes[::-1]
            blocks = problem.product(own_batch(problem, copy.operand), self.extents) * outer
            found[copy.name] = CopyShape(outer, inner, blocks, blocks * inner)
        return found

    @property
    def grids(self) -> list[tuple[Any, int]]:
        """Blocks along x and y of each function that a call launches: copies, the block function, the sum."""
        grid = self.grid
        grids = [(copy.blocks, 1) for copy in self.copies.values()] + [
            (grid.blocks, self.micro_kernel.splits)
        ]
        if writes_parts(self.problem, self.micro_kernel):
            grids.append((ceildiv(grid.elements, SUM_THREADS, self.ops), 1))
        return grids

    @property
    def regions(self) -> dict[str, Region]:
        """Parts of the workspace by the argument that each is: padded copies, accumulators."""
        padded, sizes = block_problem(self.problem, self.micro_kernel), {}
        for name, copy in self.copies.items():
            num_bytes = copy.elements * padded.storage(name).itemsize
            sizes[name] = ceildiv(num_bytes, 4 * _WORDS, self.ops) * _WORDS
        if writes_parts(self.problem, self.micro_kernel):
            batch, rows, columns, _ = padded.sizes(self.block_extents)
            sizes[WORKSPACE] = batch * rows * columns * self.micro_kernel.splits
        regions: dict[str, Region] = {}
        first: Any = 0
        for name, size in sizes.items():  # accumulators are the last: their size need be no multiple
            regions[name] = Region(first, size)
            first = size + first
        return regions

    @property
    def demand(self) -> Demand:
        """What the cost model counts."""
        grid, micro_kernel = self.grid, self.micro_kernel
        blocks = grid.blocks * micro_kernel.splits
        num_steps = ceildiv(grid.k_tiles, micro_kernel.splits, self.ops) * micro_kernel.k_tile
        copied = sum(2 * copy.elements for copy in self.copies.values())
        is_added = writes_parts(self.problem, micro_kernel)
        added = grid.elements * (micro_kernel.splits + 1) if is_added else 0
        padded_flops = 2.0 * blocks * micro_kernel.rows * micro_kernel.columns * num_steps
        return Demand(blocks, num_steps, padded_flops, copied + added, blocks * self._vectors(num_steps))

    def _vectors(self, num_steps: Any) -> Any:
        """Return the loads and stores of one block, see `Demand.vectors`."""
        found: Any = None
        for counts in reversed(class_counts(self.problem, self.micro_kernel)):
            own = num_steps * counts.of_step + counts.of_output
            found = own if found is None else self.ops.where(counts.own.serves(self.extents), own, found)
        return found

    @property
    def workspace_elements(self) -> int:
        """Number of float32s that a call of integer extents keeps in global memory."""
        return max((int(region.first + region.size) for region in self.regions.values()), default=0)


def alignments(problem: Problem, micro_kernel: CudaMicroKernel) -> dict[str, int]:
    """Return the bytes that the address of each tensor must be a multiple of.

    Parameters
    ----------
    problem : Problem
        That of an alignment class, `AlignmentClass.problem`, for what that class needs.
    """
    widths = vector_widths(problem, micro_kernel)
    if writes_parts(problem, micro_kernel):
        del widths[problem.output]  # the sum reads and writes single elements
    names = (*problem.inputs, problem.output)  # and so do copies
    return {name: widths.get(name, 1) * problem.storage(name).itemsize for name in names}
