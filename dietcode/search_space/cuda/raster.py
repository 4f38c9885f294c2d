"""Which tile of the output each block of threads computes."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from dietcode.search_space.cuda.building import once

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
