"""The grids and the workspace that a call of attention needs at given extents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cuda.blocks.attention_layout import STATE_THREADS, TOTALS, WEIGHTED
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.shape import Demand, Grid, Region
from dietcode.search_space.partition import NumpyOps, Ops, ceildiv
from dietcode.target.multiprocessor import WARP
from dietcode.workload.attention import SOFTMAX_FLOPS

_WORDS = 4  # float32s in 16 bytes, of which every region of the workspace begins at a multiple


@dataclass(frozen=True)
class AttentionShape:
    """Grids and workspace of one call: written once for TIR, NumPy, C and plain integers.

    Attributes
    ----------
    extents : dict of str to int, array or expression
        Of every index of the problem.
    ops : Ops
        Arithmetic on them.
    """

    problem: AttentionProblem
    micro_kernel: CudaMicroKernel
    extents: dict[str, Any]
    ops: Ops = field(default_factory=NumpyOps)

    @property
    def grid(self) -> Grid:
        """The tiles of queries of all groups, and those of keys, of which each block takes a part."""
        groups, rows, width, keys = self.problem.sizes(self.extents)
        row_tiles = ceildiv(rows, self.micro_kernel.rows, self.ops)
        key_tiles = ceildiv(keys, self.micro_kernel.columns, self.ops)
        return Grid(row_tiles, 1, key_tiles, groups * row_tiles, groups * rows * width)

    @property
    def part_tiles(self) -> Any:
        """Tiles of keys in one part of them; the last parts may have fewer, or none."""
        return ceildiv(self.grid.k_tiles, self.micro_kernel.splits, self.ops)

    @property
    def grids(self) -> list[tuple[Any, int]]:
        """Blocks along x and y of each function that a call launches."""
        grids = [(self.grid.blocks, self.micro_kernel.splits)]
        if self.micro_kernel.splits > 1:
            groups, rows, _, _ = self.problem.sizes(self.extents)
            grids.append((ceildiv(groups * rows, STATE_THREADS // WARP, self.ops), 1))
        return grids

    @property
    def regions(self) -> dict[str, Region]:
        """Parts of the workspace where keys are split: weighted values, and maxima and sums."""
        splits = self.micro_kernel.splits
        if splits == 1:
            return {}
        groups, rows, width, _ = self.problem.sizes(self.extents)
        size = ceildiv(groups * rows * (splits * width), _WORDS, self.ops) * _WORDS
        totals = ceildiv(groups * rows * (2 * splits), _WORDS, self.ops) * _WORDS
        return {WEIGHTED: Region(0, size), TOTALS: Region(size, totals)}

    @property
    def workspace_elements(self) -> int:
        """Number of float32s that a call of integer extents keeps in global memory."""
        return max((int(region.first + region.size) for region in self.regions.values()), default=0)

    @property
    def demand(self) -> Demand:
        """What the cost model counts: a step is a key of a tile, and those hidden from all queries are none.

        With `causal` that is the mean over all tiles of queries: what a query sees, and half of a tile more.
        """
        groups, rows, width, _ = self.problem.sizes(self.extents)
        grid, own = self.grid, self.micro_kernel
        num_steps: Any = self.part_tiles * own.columns
        if self.problem.plan.causal is not None:
            seen = self.problem.num_scores(self.extents) / (1.0 * groups * rows)
            mean = (seen + (own.rows + own.columns) / 2) / own.splits
            num_steps = num_steps - (num_steps - mean) * (mean < num_steps)
        flops = 2.0 * (self.problem.head[0] + width) + SOFTMAX_FLOPS
        padded = grid.blocks * (1.0 * own.rows * own.splits) * num_steps * flops
        combined = groups * rows * (width + 2) * (own.splits + 1) if own.splits > 1 else 0
        return Demand(grid.blocks * own.splits, num_steps, padded, combined)
