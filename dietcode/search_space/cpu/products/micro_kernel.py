"""What differs between micro-kernels of a block with products. Imports no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ProductKernel:
    """A tile of rows and columns for which one core has all accumulators in registers at once.

    Attributes
    ----------
    rows, columns : int
        Extents in elements; `columns` is a multiple of the lanes.
    serial : bool
        Whether one core computes everything, so that no other is woken.
    """

    rows: int
    columns: int
    serial: bool = False

    @property
    def name(self) -> str:
        """The tile, then what is not the default: ``4x32``, ``1x16-serial``."""
        return f"{self.rows}x{self.columns}" + "-serial" * self.serial

    @property
    def order(self) -> tuple[int, ...]:
        """Sort key: rows, columns, then the other axis."""
        return self.rows, self.columns, self.serial

    @property
    def ways(self) -> frozenset[str]:
        """How it computes; predictions for ways that were not tried have a larger spread."""
        return frozenset({"serial"} if self.serial else ())

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as records have it."""
        data: dict[str, Any] = {"form": "products", "rows": self.rows, "columns": self.columns}
        return data | ({"serial": True} if self.serial else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProductKernel:
        """Read what `to_json` returns; other keys are ignored.

        Raises
        ------
        KeyError, TypeError, ValueError
            The data describe no micro-kernel.
        """
        rows, columns = int(data["rows"]), int(data["columns"])
        if rows < 1 or columns < 1:
            raise ValueError(f"a tile of {rows}x{columns}")
        return cls(rows, columns, data.get("serial", False) is True)
