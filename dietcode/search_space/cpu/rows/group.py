"""Rows that are computed together, and what is known of them on their way through the passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dietcode.search_space.tir import TirOps, i64, load, small_buffer, store

Key = tuple[str, int]
"""A name, and the number of a row in its group."""


@dataclass(frozen=True)
class Span:
    """Columns that a pass goes through, in steps of some vectors.

    Attributes
    ----------
    first, last : int64 expressions
        Steps, the last one excluded.
    is_whole : bool
        Whether these are all columns.
    """

    first: Any
    last: Any
    is_whole: bool


@dataclass
class RowGroup:
    """Some rows.

    Attributes
    ----------
    rows : sequence of int64 expression
        Flattened.
    begins : dict of (str, int) to int64 expression
        Where each row of what is read or written begins.
    inside : dict of (str, int) to boolean expression or None
        Whether the element of a window exists.
    stored : dict of (str, int) to int64 expression
        Whether a table has the row that an output is written to.
    scalars : dict of (str, int) to float32 or int32 expression
        Values of a whole row.
    scratch : int64 expression
        Offset of what these rows keep between passes.
    """

    rows: Sequence[Any]
    begins: dict[Key, Any] = field(default_factory=dict)
    inside: dict[Key, Any] = field(default_factory=dict)
    stored: dict[Key, Any] = field(default_factory=dict)
    scalars: dict[Key, Any] = field(default_factory=dict)
    scratch: Any = field(default_factory=lambda: i64(0))


class LeftToNext:
    """Values that one iteration of a loop leaves to the next; LLVM keeps them in registers.

    Parameters
    ----------
    dtype : str
        Of each value.
    """

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._slots: dict[Key, Any] = {}

    def save(self, values: Mapping[Key, Any]) -> None:
        """Leave these values; the first time tells which ones there are."""
        for key, value in values.items():
            if key not in self._slots:
                self._slots[key] = small_buffer(1, self._dtype)
            store(self._slots[key], value, [0], 1)

    def take(self) -> dict[Key, Any]:
        """Return what was left, which later values do not change."""
        found = {}
        for key, slot in self._slots.items():
            own = small_buffer(1, self._dtype)
            store(own, load(slot, [0], 1), [0], 1)
            found[key] = load(own, [0], 1)
        return found


def rows_of(first: Any, group: Any, height: int, last: Any) -> list[Any]:
    """Return the rows of a group, `height` each from `first` on; past the last row that one again."""
    bind, ops = TirOps().bind, TirOps()
    row = bind(first + group * height)
    return [bind(ops.where(row + i < last, row + i, last)) for i in range(height)]
