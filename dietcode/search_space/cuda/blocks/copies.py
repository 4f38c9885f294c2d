"""Copies of neighbouring elements from global memory to a swizzled tile in shared memory."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from dietcode.search_space.cuda.building import local, only_if, run
from dietcode.search_space.cuda.swizzled_tile import SwizzledTile
from dietcode.search_space.tir import store


def send(tile: SwizzledTile, stage: Any, position: tuple[Any, Any], source: Any, exists: Any | None) -> None:
    """Send elements on their way; a single one, which nothing copies past the registers, is there at once.

    Parameters
    ----------
    stage : int32 expression
        Of shared memory.
    position : (int32 expression, int32 expression)
        Line of the tile, and element of the line, the first one.
    source : (buffer, int64 expression, int)
        Tensor, offset of the first element, and how many there are.
    exists : condition or None
        Zeros are written where it does not hold.
    """
    buffer, offset, width = source
    at = 2 * tile.base + tile.byte(*position)
    if width > 1:
        given = tirx.const(True, "bool") if exists is None else exists
        to = tile.stages.begin(stage) + tirx.Cast("uint32", at)
        run(f"copy_{2 * width}", to, tirx.address_of(buffer[offset]), given)
        return
    kind = str(buffer.dtype)
    value = local("fetched", 1, kind)
    store(value, tirx.const(0, kind), [0], 1)
    with only_if(exists):
        store(value, buffer[offset], [0], 1)
    element = stage * (tile.stages.num_bytes // 2) + tirx.truncdiv(at, 2)
    store(tile.stages.tiles, value[0], [element], 1)
