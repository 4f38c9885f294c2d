"""Rotations of columns within groups that lie in one vector."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from dietcode.search_space.rows.problem import RowRead
from dietcode.search_space.vectors import const, named


def turned(read: RowRead, value: Any, lanes: int, within: int) -> Any:
    """Return a vector whose groups of columns, which lie in it as a whole, are shifted to the right.

    Parameters
    ----------
    read : RowRead
        How far, and whether those that come around are negated.
    value : float32 expression [lanes]
    within : int
        Columns of a group, which `lanes` is a multiple of.
    """
    shift = read.shift
    begins = [lane - lane % within for lane in range(lanes)]
    sources = [begin + (lane - shift) % within for lane, begin in enumerate(begins)]
    value = named(tirx.Shuffle([named(value, lanes)], [tirx.IntImm("int32", k) for k in sources]), lanes)
    if not read.negates:
        return value
    lane = tirx.Ramp(tirx.IntImm("int32", 0), tirx.IntImm("int32", 1), lanes)
    position = tirx.truncmod(lane, tirx.Broadcast(tirx.IntImm("int32", within), lanes))
    wraps = tirx.LT(position, tirx.Broadcast(tirx.IntImm("int32", shift), lanes))
    return named(tirx.Select(wraps, const(-1.0, lanes) * value, value), lanes)
