"""Moves: elements of rows that the loop itself writes from elsewhere, for slices and concatenations.

    {"move": value or null,     what is read; null: all elements become "filler"
     "rows": positions or null, of the rows that are read; null: each row is of its own
     "shape": [extent],         of what is moved in a row
     "from": [begin, strides],  in elements of a row
     "result", "to": [begin, strides], "filler"}

A value may be the result of several moves, which write other elements of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dietcode.graph.tensor_type import TensorType

MAX_AXES = 8
_WORD_DTYPES = ("float32", "int32")
Layout = tuple[int, tuple[int, ...]]  # the first element of a row, and how far apart those of each axis are


@dataclass(frozen=True)
class MoveStep:
    """Elements that are written to a row for each row of a range.

    Attributes
    ----------
    source : str or None
        What is read; None where all elements become `filler`.
    positions : str or None
        Which rows of it; None where each row is of its own, or where it is a constant, of all of them.
    value : str
        What is written.
    shape : tuple of int
        Of the elements that are moved in a row.
    read, written : (int, tuple of int)
        Where they lie in a row.
    filler : float
    """

    source: str | None
    positions: str | None
    value: str
    shape: tuple[int, ...]
    read: Layout
    written: Layout
    filler: float

    @property
    def reads(self) -> list[str]:
        """The names of what it reads."""
        return [one for one in (self.source, self.positions) if one is not None]

    @property
    def axes(self) -> list[tuple[int, int, int]]:
        """Extent and strides of each axis, those together that are one in both."""
        found: list[tuple[int, int, int]] = []
        for extent, own, other in zip(self.shape, self.read[1], self.written[1], strict=True):
            if extent == 1:
                continue
            if found and found[-1][1:] == (own * extent, other * extent):
                found[-1] = (found[-1][0] * extent, own, other)
            else:
                found.append((extent, own, other))
        return found or [(1, 1, 1)]


def read_move(data: Mapping[str, Any]) -> MoveStep:
    """Return a move; raises ValueError, KeyError or TypeError for what is none."""
    read, written = (_layout(data[word]) for word in ("from", "to"))
    shape = tuple(map(int, data["shape"]))
    if not len(shape) == len(read[1]) == len(written[1]) <= MAX_AXES or min(shape, default=1) < 1:
        raise ValueError(f"a move of the shape {list(shape)[:9]}")
    source, rows = (None if data[word] is None else str(data[word]) for word in ("move", "rows"))
    return MoveStep(source, rows, str(data["result"]), shape, read, written, float(data["filler"]))


def _layout(data: Sequence[Any]) -> Layout:
    begin, strides = data
    return int(begin), tuple(map(int, strides))


def check_move(step: MoveStep, target: TensorType, source: TensorType | None) -> None:
    """Refuse a move to or from elements that a row does not have.

    Parameters
    ----------
    step : MoveStep
    target, source : TensorType
        Of a row; no source where numbers are written.

    Raises
    ------
    ValueError
        What is wrong.
    """
    for type_, (begin, strides) in ((target, step.written), (source, step.read)):
        if type_ is None:
            continue
        if type_.dtype not in _WORD_DTYPES:
            raise ValueError(f"a move of {type_}")
        ends = [(extent - 1) * stride for extent, stride in zip(step.shape, strides, strict=True)]
        low, high = (begin + sum(choose(0, end) for end in ends) for choose in (min, max))
        if low < 0 or high >= type_.num_elements.constant:
            raise ValueError(f"a move of the elements {low} to {high} of {type_}")
