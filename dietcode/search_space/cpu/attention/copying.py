"""Blocks of keys and values next to each other: keys transposed, so that vectors lie along them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.attention.micro_kernel import BLOCK
from dietcode.search_space.cpu.squares import transposed
from dietcode.search_space.tir import (
    FROM_L2,
    TirOps,
    as_int64,
    first_lanes,
    i64,
    load,
    load_masked,
    prefetch,
    store,
)
from dietcode.search_space.vectors import const, named


@dataclass(frozen=True)
class KeyRows:
    """Where the keys, or the values, of a block lie.

    Attributes
    ----------
    begin : int64 expression
        Offset of the first one.
    stride : int64 expression
        From one to the next.
    """

    buffer: Any
    begin: Any
    stride: Any

    def at(self, number: Any) -> Any:
        """Return the offset of one of them."""
        return self.begin + number * self.stride


def transpose_keys(
    keys: KeyRows, count: Any, depth: int, to: Any, lanes: int, step: int, ahead: KeyRows | None
) -> None:
    """Write ``to[d, k] = keys[k, d]`` for a block of keys.

    Parameters
    ----------
    count : int64 expression
        Keys that exist, at least one; in the lanes of others the last one is repeated. Vectors without any
        are 0 up to the end of a step: what memory held before may be numbers that take a processor long.
    step : int
        Keys whose scores are computed together.
    depth : int
        Elements of a key.
    to : Buffer
        float32 [depth, BLOCK], flattened.
    ahead : KeyRows or None
        Values of the block, which are prefetched together with the next block's keys.
    """
    bind, whole, rest = TirOps().bind, depth // lanes, depth % lanes
    groups = bind(tirx.truncdiv(count + (lanes - 1), i64(lanes)))
    with T.serial(i64(0), groups) as group:
        begin = bind(group * lanes)
        offsets = [bind(keys.at(tirx.min(begin + i, count - 1))) for i in range(lanes)]
        if whole:
            with T.serial(i64(0), i64(whole)) as number:
                first = bind(number * lanes)
                if ahead is not None:
                    for i in range(lanes):
                        prefetch(keys.buffer, keys.at(begin + (i + BLOCK)) + first, FROM_L2)
                        prefetch(ahead.buffer, ahead.at(begin + i) + first, FROM_L2)
                square = [named(load(keys.buffer, [o + first], lanes), lanes) for o in offsets]
                for i, row in enumerate(transposed(square, lanes)):
                    store(to, row, [(first + i) * BLOCK + begin], lanes)
        if rest:
            mask = first_lanes(i64(rest), lanes)
            square = [named(load_masked(keys.buffer, o + whole * lanes, lanes, mask), lanes) for o in offsets]
            for i, row in enumerate(transposed(square, lanes)[:rest]):
                store(to, row, [begin + (whole * lanes + i) * BLOCK], lanes)
    if step > lanes:
        end = bind(tirx.truncdiv(count + (step - 1), i64(step)) * (step // lanes))
        with T.serial(groups, end) as group, T.serial(i64(0), i64(depth)) as d:
            store(to, const(0.0, lanes), [d * BLOCK + group * lanes], lanes)


def copy_values(values: KeyRows, count: Any, width: int, to: Any, lanes: int) -> None:
    """Write ``to[k, e] = values[k, e]`` for a block of values, whole vectors for each key.

    Parameters
    ----------
    count : int64 expression
        Keys that exist.
    width : int
        Elements of a value.
    to : Buffer
        float32 [BLOCK, width rounded up to whole vectors], flattened.
    """
    pitch = -(-width // lanes) * lanes
    with T.serial(i64(0), as_int64(count)) as k:
        offset = TirOps().bind(values.at(k))
        for first in range(0, width, lanes):
            value = value_vector(values.buffer, offset + first, width - first, lanes)
            store(to, value, [k * pitch + first], lanes)


def value_vector(source: Any, offset: Any, left: int, lanes: int) -> Any:
    """Return a vector, zero from element `left` on, where nothing is read."""
    if left >= lanes:
        return load(source, [offset], lanes)
    return load_masked(source, offset, lanes, first_lanes(i64(left), lanes))
