"""What differs between micro-kernels of a row block. Imports no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEEPS = ("costly", "all", "none")
"""What later passes read, not computing it again: what takes long, all, nothing; the first is the default."""
FETCHES = ("all", "next", "none")
"""Lines that an early pass asks for: the next rows' and those that a later pass writes, the former, none."""
OVERLAPS = ("none", "before", "beside")
"""Passes of the next rows: after the last one of these, the first before that, each beside a later one."""
_WORDS = {"keep": KEEPS, "overlap": OVERLAPS, "fetch": FETCHES}


@dataclass(frozen=True)
class RowKernel:
    """Rows that one core takes together, vectors of each that it takes together, and the passes over them.

    Attributes
    ----------
    rows, columns : int
        Extents in elements of what one step of a pass computes; `columns` is a multiple of the lanes, or
        `rows` where the columns are not the last indices.
    keep : str
        One of `KEEPS`: values that later passes read from memory; the others they compute again.
    serial : bool
        Whether one core computes everything, so that no other is woken.
    stream : bool
        Whether outputs that no pass reads are written past the caches.
    overlap : str
        One of `OVERLAPS`.
    fetch : str
        One of `FETCHES`. Some processors find lines that follow each other by themselves, and lose by it.

    Raises
    ------
    ValueError
        `keep` is not one of `KEEPS`, `fetch` not one of `FETCHES`, or `overlap` not one of `OVERLAPS`.
    """

    rows: int
    columns: int
    keep: str = KEEPS[0]
    serial: bool = False
    stream: bool = False
    overlap: str = OVERLAPS[0]
    fetch: str = FETCHES[0]

    def __post_init__(self) -> None:
        for axis, allowed in _WORDS.items():
            if getattr(self, axis) not in allowed:
                raise ValueError(f"{axis} {str(getattr(self, axis))[:40]!r}; allowed: {', '.join(allowed)}")

    @property
    def name(self) -> str:
        """The step, then what is not the default: ``4x64``, ``1x64-keep-all-serial``."""
        parts = [f"{self.rows}x{self.columns}"]
        words = {axis: f"{axis}-{word}" for axis, word in self._words.items()}
        parts += [words.pop("keep")] if "keep" in words else []
        parts += ["serial"] * self.serial + ["stream"] * self.stream
        return "-".join(parts + list(words.values()))

    @property
    def _words(self) -> dict[str, str]:
        """The axes that are said in a word, where that is not the default."""
        found = {axis: str(getattr(self, axis)) for axis in _WORDS}
        return {axis: word for axis, word in found.items() if word != _WORDS[axis][0]}

    @property
    def order(self) -> tuple[int, ...]:
        """Sort key: rows, columns, then the other axes."""
        words = (allowed.index(getattr(self, axis)) for axis, allowed in _WORDS.items())
        return self.rows, self.columns, *words, self.serial, self.stream

    @property
    def ways(self) -> frozenset[str]:
        """How it computes; predictions for ways that were not tried have a larger spread."""
        axes = {"serial": self.serial, "stream": self.stream}
        words = {f"{axis}-{word}" for axis, word in self._words.items()}
        return frozenset(words | {name for name, is_on in axes.items() if is_on})

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as records have it."""
        data: dict[str, Any] = {"form": "rows", "rows": self.rows, "columns": self.columns}
        others = {"serial": self.serial, "stream": self.stream}
        return data | self._words | {name: value for name, value in others.items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RowKernel:
        """Read what `to_json` returns; other keys are ignored.

        Raises
        ------
        KeyError, TypeError, ValueError
            The data describe no micro-kernel.
        """
        rows, columns = int(data["rows"]), int(data["columns"])
        overlap = data.get("overlap", OVERLAPS[0])  # older records have a boolean
        if rows < 1 or columns < 1:
            raise ValueError(f"a step of {rows}x{columns}")
        return cls(
            rows,
            columns,
            data.get("keep", KEEPS[0]),
            data.get("serial", False) is True,
            data.get("stream", False) is True,
            OVERLAPS[overlap] if isinstance(overlap, bool) else overlap,
            data.get("fetch", FETCHES[0]),
        )
