"""The grids and the workspace that a call of a block needs at given extents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.cuda.blocks.demands import rest_kernel
from dietcode.search_space.cuda.blocks.functions import aside
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.shape import Demand, Grid, Region
from dietcode.search_space.partition import NumpyOps, Ops, ceildiv
from dietcode.search_space.products.problem import ProductProblem
from dietcode.search_space.rows.problem import RowProblem

_WORDS = 4  # float32s in 16 bytes, of which every region of the workspace begins at a multiple


@dataclass(frozen=True)
class BlockShape:
    """Grids and workspace of one call of a block: written once for TIR, NumPy, C and plain integers.

    Attributes
    ----------
    extents : dict of str to int, array or expression
        Of every index of the problem.
    ops : Ops
        Arithmetic on them.
    """

    problem: BlockProblem
    micro_kernel: CudaMicroKernel
    extents: dict[str, Any]
    ops: Ops = field(default_factory=NumpyOps)

    @property
    def _sizes(self) -> tuple[Any, Any]:
        problem = self.problem
        return problem.product(problem.rows, self.extents), problem.product(problem.columns, self.extents)

    @property
    def _rest(self) -> RowProblem | None:
        return self.problem.rest if isinstance(self.problem, ProductProblem) else None

    @property
    def num_steps(self) -> Any:
        """Steps of columns that one block of threads takes: all of a row that is reduced, else one."""
        is_whole = isinstance(self.problem, RowProblem) and self.problem.reduces
        return ceildiv(self._sizes[1], self.micro_kernel.columns, self.ops) if is_whole else 1

    @property
    def grid(self) -> Grid:
        """The grid of the first function; of a row that is reduced all columns are one tile."""
        rows, columns = self._sizes
        row_tiles = ceildiv(rows, self.micro_kernel.rows, self.ops)
        is_whole = isinstance(self.problem, RowProblem) and self.problem.reduces
        column_tiles = 1 if is_whole else ceildiv(columns, self.micro_kernel.columns, self.ops)
        return Grid(row_tiles, column_tiles, 1, row_tiles * column_tiles, rows * columns)

    @property
    def grids(self) -> list[tuple[Any, int]]:
        """Blocks along x and y of each function that a call launches."""
        grids = [(self.grid.blocks, 1)]
        if isinstance(self.problem, ProductProblem) and self.problem.rest is not None:
            own = BlockShape(self.problem.rest, rest_kernel(self.problem), self.extents, self.ops)
            grids.append((own.grid.blocks, 1))
        return grids

    @property
    def regions(self) -> dict[str, Region]:
        """Parts of the workspace: values that are set aside between the functions, by name."""
        if not isinstance(self.problem, ProductProblem):
            return {}
        found: dict[str, Region] = {}
        first: Any = 0
        problem = self.problem
        names = {name: name for name in problem.halves.set_aside} | {
            aside(name): name for name in problem.kept
        }
        for region, name in names.items():
            elements = problem.product(problem.indices[name], self.extents)
            found[region] = Region(first, ceildiv(elements, _WORDS, self.ops) * _WORDS)
            first = found[region].size + first
        return found

    @property
    def workspace_elements(self) -> int:
        """Number of float32s that a call of integer extents keeps in global memory."""
        return max((int(region.first + region.size) for region in self.regions.values()), default=0)

    @property
    def demand(self) -> Demand:
        """What the cost model counts; FLOPs are padded as the grid is."""
        rows, columns = self._sizes
        grid, micro_kernel = self.grid, self.micro_kernel
        padding = (grid.row_tiles * micro_kernel.rows / rows) * (
            grid.column_tiles * self.num_steps * micro_kernel.columns / columns
        )
        num_steps: Any = self.num_steps
        if isinstance(self.problem, ProductProblem):
            num_steps, depth = 0, 0
            for term, targets in self.problem.plan.terms:
                own = self.problem.product(term.reduction, self.extents)
                k_tile = micro_kernel.k_tile
                num_steps = num_steps + ceildiv(own, k_tile, self.ops) * (k_tile * len(targets))
                depth = depth + own * len(targets)
            padding = padding * (num_steps / depth)
        copied = 0 if self._rest is None else 2 * grid.elements
        return Demand(grid.blocks, num_steps, self.problem.flops(self.extents) * padding, copied)
