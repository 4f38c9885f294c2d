"""The partition of tiles among cores: P nearly equal rectangles, written once for TIR and for NumPy.

A call is cut into P tasks, one for each core: P = pb·pr·pc, the batch in pb parts, the rows of tiles in
pr, the columns of tiles in pc. Of all factorisations the one with the smallest largest part is taken; ties
go to the earlier one, which splits columns, so that each core streams its own part of the packed operand.
The grid is chosen at run time, so that one micro-kernel serves shapes with many tiles and with few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class Ops(Protocol):
    """Integer arithmetic on scalars, arrays or expressions."""

    def floordiv(self, a: Any, b: Any) -> Any:
        """Return ``a // b``."""

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """Return `a` where `condition` holds, else `b`."""

    def maximum(self, a: Any, b: Any) -> Any:
        """Return the larger of `a` and `b`."""

    def bind(self, value: Any) -> Any:
        """Give an intermediate value a name."""


class NumpyOps:
    """Operations on int64 arrays."""

    def floordiv(self, a: Any, b: Any) -> Any:
        """Return it element-wise."""
        return np.floor_divide(a, b)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """Return it element-wise."""
        return np.where(condition, a, b)

    def maximum(self, a: Any, b: Any) -> Any:
        """Return it element-wise."""
        return np.maximum(a, b)

    def bind(self, value: Any) -> Any:
        """Return the value itself."""
        return value


@dataclass(frozen=True)
class Partition:
    """The chosen grid; each field is a scalar expression or an array [num_instances].

    Attributes
    ----------
    batch_parts, row_parts, column_parts
        pb, pr, pc with pb·pr·pc = P.
    largest_load
        Tiles of the most loaded core.
    """

    batch_parts: Any
    row_parts: Any
    column_parts: Any
    largest_load: Any


def ceildiv(a: Any, b: Any, ops: Ops) -> Any:
    """Return ⌈a / b⌉ for positive integers."""
    return ops.floordiv(a + (b - 1), b)


def factorisations(num_cores: int, has_batch: bool, rows_first: bool = False) -> list[tuple[int, int, int]]:
    """Return all (pb, pr, pc) with pb·pr·pc = `num_cores`, in order of preference."""
    divisors = [d for d in range(1, num_cores + 1) if num_cores % d == 0]
    batch_parts = sorted(divisors, reverse=True) if has_batch else [1]
    return [
        (pb, pr, num_cores // pb // pr)
        for pb in batch_parts
        for pr in (reversed(divisors) if rows_first else divisors)
        if num_cores // pb % pr == 0
    ]


def choose_partition(
    batch: Any,
    row_tiles: Any,
    column_tiles: Any,
    num_cores: int,
    has_batch: bool,
    ops: Ops,
    rows_first: bool = False,
) -> Partition:
    """Return the grid with the smallest largest load.

    Parameters
    ----------
    batch, row_tiles, column_tiles
        Tiles along each axis.
    num_cores : int
        P.
    has_batch : bool
        Whether the batch may be split.
    ops : Ops
        Arithmetic of the numbers of tiles.
    rows_first : bool
        Whether rows are split before columns among equals.
    """
    options = factorisations(num_cores, has_batch, rows_first)
    best: Partition | None = None
    for pb, pr, pc in options:
        load = ops.bind(
            ceildiv(batch, pb, ops) * ceildiv(row_tiles, pr, ops) * ceildiv(column_tiles, pc, ops)
        )
        if best is None:
            zero = load * 0
            best = Partition(zero + pb, zero + pr, zero + pc, load)
            continue
        better = load < best.largest_load
        best = Partition(
            ops.bind(ops.where(better, pb, best.batch_parts)),
            ops.bind(ops.where(better, pr, best.row_parts)),
            ops.bind(ops.where(better, pc, best.column_parts)),
            ops.bind(ops.where(better, load, best.largest_load)),
        )
    assert best is not None
    return best


def row_tiles_in_l2(reduction: Any, rows: int, l2_bytes: int, ops: Ops) -> Any:
    """Return the rows of tiles whose part of the row operand takes at most half of L2; at least one.

    Parameters
    ----------
    reduction
        Flattened extent.
    rows : int
        Of a tile.
    l2_bytes : int
        Of a core.
    """
    half = l2_bytes // 2 // 4
    return ops.maximum(ops.floordiv(half, reduction * rows), 1)
