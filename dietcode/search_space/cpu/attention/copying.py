"""Blocks of keys and values next to each other: keys transposed, so that vectors lie along them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script.builder import ir as T

from dietcode.search_space.cpu.attention.micro_kernel import BLOCK
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
from dietcode.search_space.vectors import named

_QUARTER = 4  # floats within which shuffles of x86 are cheapest


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


def transpose_keys(keys: KeyRows, count: Any, depth: int, to: Any, lanes: int, ahead: KeyRows | None) -> None:
    """Write ``to[d, k] = keys[k, d]`` for a block of keys.

    Parameters
    ----------
    count : int64 expression
        Keys that exist, at least one; in the lanes of others the last one is repeated.
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
                for i, row in enumerate(_transposed(square, lanes)):
                    store(to, row, [(first + i) * BLOCK + begin], lanes)
        if rest:
            mask = first_lanes(i64(rest), lanes)
            square = [named(load_masked(keys.buffer, o + whole * lanes, lanes, mask), lanes) for o in offsets]
            for i, row in enumerate(_transposed(square, lanes)[:rest]):
                store(to, row, [begin + (whole * lanes + i) * BLOCK], lanes)


def _transposed(square: list[Any], lanes: int) -> list[Any]:
    """Return as many vectors as lanes, transposed.

    First four by four within each quarter of a vector of 16, which takes no index registers; then quarters.
    """
    quarters = [_four_by_four(square[i : i + _QUARTER], lanes) for i in range(0, lanes, _QUARTER)]
    columns: dict[int, Any] = {}
    for c in range(_QUARTER):
        vectors, half = [quarter[c] for quarter in quarters], lanes // _QUARTER // 2
        orders = [[2 * k + odd for k in range(2 * half)] for odd in (0, 1)]
        for _ in range((lanes // _QUARTER).bit_length() - 1):
            pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
            vectors = [_shuffled(pair, order, lanes, _QUARTER) for order in orders for pair in pairs]
        columns |= {_QUARTER * number + c: vector for number, vector in enumerate(vectors)}
    return [columns[number] for number in range(lanes)]


def _four_by_four(rows: list[Any], lanes: int) -> list[Any]:
    """Return four vectors: in each quarter of number c, column c of that quarter of the rows."""
    begins = range(0, lanes, _QUARTER)
    singles = [[k for b in begins for i in (0, 1) for k in (b + h + i, lanes + b + h + i)] for h in (0, 2)]
    pairs = [
        [k for b in begins for k in (b + h, b + h + 1, lanes + b + h, lanes + b + h + 1)] for h in (0, 2)
    ]
    upper, lower = (
        [_shuffled(two, order, lanes) for order in singles] for two in (tuple(rows[:2]), tuple(rows[2:]))
    )
    return [
        _shuffled((one, other), order, lanes)
        for one, other in zip(upper, lower, strict=True)
        for order in pairs
    ]


def _shuffled(vectors: tuple[Any, Any], order: list[int], lanes: int, size: int = 1) -> Any:
    """Return elements of two vectors, `size` that follow each other for each number of `order`."""
    numbers = [tirx.IntImm("int32", size * k + i) for k in order for i in range(size)]
    return named(tirx.Shuffle(list(vectors), numbers), lanes)


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
