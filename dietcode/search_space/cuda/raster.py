"""Which tile of the output each block of threads computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tvm import tirx

from dietcode.search_space.cuda.building import narrow, once, wide
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.shape import Grid, in_clusters
from dietcode.search_space.partition import Ops
from dietcode.search_space.tir import as_int64

_GROUP = 8  # row tiles


def tile_in_row(index: Any, row_tiles: Any, column_tiles: Any) -> tuple[Any, Any, Any]:
    """Return the batch, the row tile and the column tile of a block, int32: row tiles one after the other."""
    column_tile = once("column_tile", tirx.truncmod(index, column_tiles))
    lines = tirx.truncdiv(index, column_tiles)
    row_tile = once("row_tile", tirx.truncmod(lines, row_tiles))
    return once("batch", tirx.truncdiv(lines, row_tiles)), row_tile, column_tile


def tile_in_group(index: Any, row_tiles: Any, column_tiles: Any) -> tuple[Any, Any, Any]:
    """Return what `tile_in_row` does, in another order.

    Blocks go down `_GROUP` row tiles before they go on to the next column tile: those that run at a time then
    need fewer tiles of both operands together than if they went through all of one row tile's columns. On
    tensor cores alone: kernels of SIMT units take more registers with it, and fewer of their blocks fit.
    """
    of_batch = once("tiles", row_tiles * column_tiles)
    rest = once("tile", tirx.truncmod(index, of_batch))
    first = once("first_tile", tirx.truncdiv(rest, column_tiles * _GROUP) * _GROUP)
    height = once("group_tiles", tirx.min(row_tiles - first, _GROUP))
    inside = once("group_tile", rest - first * column_tiles)
    row_tile = once("row_tile", first + tirx.truncmod(inside, height))
    return (
        once("batch", tirx.truncdiv(index, of_batch)),
        row_tile,
        once("column_tile", tirx.truncdiv(inside, height)),
    )


class OutputTile(NamedTuple):
    """Where a tile of the output is, int64 expressions, and whether it exists: None where it does."""

    batch: Any
    first_row: Any
    first_column: Any
    exists: Any | None


@dataclass(frozen=True)
class TileOrder:
    """Which tile each block of a grid computes: blocks of a cluster have neighbours of a row, or of a column.

    Attributes
    ----------
    micro_kernel : CudaMicroKernel
        Whose grid it is: also of code without clusters that is launched under its name.
    grid : Grid
        Of int64 expressions.
    factors : tuple of int
        What the rows and the columns are known to be multiples of.
    ops : Ops
    """

    micro_kernel: CudaMicroKernel
    grid: Grid
    factors: tuple[int, int]
    ops: Ops

    @property
    def num_blocks(self) -> Any:
        """Blocks that the grid would have with one for each tile, int32."""
        return narrow(as_int64(self.grid.blocks))

    def locate(self, index: Any) -> OutputTile:
        """Return the tile of a block of such a grid, by its index, int32."""
        own, grid = self.micro_kernel, self.grid
        counts = in_clusters(grid.row_tiles, grid.column_tiles, own, self.ops)
        # All of these are below 2^31, as the number of blocks is, and division of 64 bits is slow.
        down, across = (narrow(as_int64(count)) for count in counts)
        tile_of = tile_in_group if own.is_tensor else tile_in_row
        if own.cluster == 1:
            batch, row_tile, column_tile = tile_of(index, down, across)
            return OutputTile(wide(batch), wide(row_tile) * own.rows, wide(column_tile) * own.columns, None)
        number = once("cluster", tirx.truncdiv(index, own.cluster))
        batch, row_tile, column_tile = tile_of(number, down, across)
        rank = once("rank", tirx.truncmod(index, own.cluster))
        tiles, exists = [row_tile, column_tile], None
        axis, extent = (0, own.rows) if own.cluster_rows > 1 else (1, own.columns)
        tiles[axis] = once("own_tile", tiles[axis] * own.cluster + rank)
        if self.factors[axis] % (own.cluster * extent):
            exists = tiles[axis] < narrow(as_int64((grid.row_tiles, grid.column_tiles)[axis]))
        first_row, first_column = wide(tiles[0]) * own.rows, wide(tiles[1]) * own.columns
        return OutputTile(wide(batch), first_row, first_column, exists)
