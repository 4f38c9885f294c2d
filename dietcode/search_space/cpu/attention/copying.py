"""Blocks of keys and values next to each other: keys transposed, so that vectors lie along them."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.attention.micro_kernel import BLOCK
from dietcode.search_space.tir import TirOps, as_int64, first_lanes, i64, load, load_masked, store
from dietcode.search_space.vectors import named


def transpose_keys(source: Any, begin: Any, stride: Any, count: Any, depth: int, to: Any, lanes: int) -> None:
    """Write ``to[d, k] = source[begin + k·stride + d]`` for a block of keys.

    Parameters
    ----------
    begin : int64 expression
        Offset of the first key.
    stride : int64 expression
        From key to key.
    count : int64 expression
        Keys that exist, at least one; in the lanes of others the last one is repeated.
    depth : int
        Elements of a key.
    to : Buffer
        float32 [depth, BLOCK], flattened.
    """
    bind, whole, rest = TirOps().bind, depth // lanes, depth % lanes
    groups = bind(tirx.truncdiv(count + (lanes - 1), i64(lanes)))
    with T.serial(i64(0), groups) as group:
        offsets = [
            bind(begin + tirx.min(group * lanes + i, count - 1) * as_int64(stride)) for i in range(lanes)
        ]
        if whole:
            with T.serial(i64(0), i64(whole)) as number:
                square = [named(load(source, [o + number * lanes], lanes), lanes) for o in offsets]
                for i, row in enumerate(_transposed(square, lanes)):
                    store(to, row, [(number * lanes + i) * BLOCK + group * lanes], lanes)
        if rest:
            mask = first_lanes(i64(rest), lanes)
            square = [
                named(load_masked(source, o + whole * lanes, lanes, mask), lanes) for o in offsets
            ]
            for i, row in enumerate(_transposed(square, lanes)[:rest]):
                store(to, row, [i64((whole * lanes + i) * BLOCK) + group * lanes], lanes)


def _transposed(square: list[Any], lanes: int) -> list[Any]:
    """Return as many vectors as lanes, transposed: each step interleaves the two halves of the list."""
    half, steps = lanes // 2, lanes.bit_length() - 1
    low = [k // 2 + (k % 2) * lanes for k in range(lanes)]
    orders = [[tirx.IntImm("int32", k + begin) for k in low] for begin in (0, half)]
    for _ in range(steps):
        square = [
            named(tirx.Shuffle([square[i], square[i + half]], order), lanes)
            for i in range(half)
            for order in orders
        ]
    return square


def copy_values(source: Any, begin: Any, stride: Any, count: Any, width: int, to: Any, lanes: int) -> None:
    """Write ``to[k, e] = source[begin + k·stride + e]`` for a block of values, whole vectors for each key.

    Parameters
    ----------
    begin : int64 expression
        Offset of the first key's value.
    stride : int64 expression
        From key to key.
    count : int64 expression
        Keys that exist.
    width : int
        Elements of a value.
    to : Buffer
        float32 [BLOCK, width rounded up to whole vectors], flattened.
    """
    pitch = -(-width // lanes) * lanes
    with T.serial(i64(0), as_int64(count)) as k:
        offset = TirOps().bind(begin + k * as_int64(stride))
        for first in range(0, width, lanes):
            store(to, value_vector(source, offset + first, width - first, lanes), [k * pitch + first], lanes)


def value_vector(source: Any, offset: Any, left: int, lanes: int) -> Any:
    """Return a vector, zero from element `left` on, where nothing is read."""
    if left >= lanes:
        return load(source, [offset], lanes)
    return load_masked(source, offset, lanes, first_lanes(i64(left), lanes))
