"""Squares of as many vectors as a vector has lanes, transposed in registers."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from dietcode.search_space.vectors import named

_QUARTER = 4  # floats within which shuffles of x86 are cheapest


def transposed(square: list[Any], lanes: int) -> list[Any]:
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
