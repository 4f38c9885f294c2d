"""What differs between micro-kernels of attention. Imports no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

BLOCK = 64
"""Keys after which a query's maximum and sums are brought up to date, in every micro-kernel."""
SEGMENT = 8 * BLOCK
"""Keys that are never divided among cores."""


@dataclass(frozen=True)
class AttentionKernel:
    """Queries and keys whose scores stay in registers, and what is computed with a block of keys at once.

    Attributes
    ----------
    rows, columns : int
        Queries of a tile, and keys, or elements of the result, that are computed together; `columns` is a
        multiple of the lanes and divides a block of keys.
    tiles : int
        Tiles of queries that take a block of keys and values one after the other, once it is copied; 1 does
        not copy the values.
    serial : bool
        Whether one core computes everything, so that no other is woken.
    split : bool
        Whether the keys of a query may be divided among cores.
    """

    rows: int
    columns: int
    tiles: int = 1
    serial: bool = False
    split: bool = False

    @property
    def name(self) -> str:
        """The tile, then what is not the default: ``6x64-t16``, ``1x64-split``."""
        parts = [f"{self.rows}x{self.columns}"] + [f"t{self.tiles}"] * (self.tiles > 1)
        return "-".join(parts + ["serial"] * self.serial + ["split"] * self.split)

    @property
    def order(self) -> tuple[int, ...]:
        """Sort key: rows, columns, then the other axes."""
        return self.rows, self.columns, self.tiles, self.serial, self.split

    @property
    def ways(self) -> frozenset[str]:
        """How it computes; predictions for ways that were not tried have a larger spread."""
        axes = {"shared": self.tiles > 1, "serial": self.serial, "split": self.split}
        return frozenset(name for name, is_on in axes.items() if is_on)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as records have it."""
        data: dict[str, Any] = {"form": "attention", "rows": self.rows, "columns": self.columns}
        others = {"serial": self.serial, "split": self.split}
        data |= {"tiles": self.tiles} if self.tiles > 1 else {}
        return data | {name: value for name, value in others.items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AttentionKernel:
        """Read what `to_json` returns; other keys are ignored.

        Raises
        ------
        KeyError, TypeError, ValueError
            The data describe no micro-kernel.
        """
        rows, columns, tiles = int(data["rows"]), int(data["columns"]), int(data.get("tiles", 1))
        if rows < 1 or columns < 1 or tiles < 1:
            raise ValueError(f"{tiles} tiles of {rows}x{columns}")
        return cls(rows, columns, tiles, data.get("serial", False) is True, data.get("split", False) is True)
