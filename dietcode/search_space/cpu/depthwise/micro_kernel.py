"""What differs between micro-kernels of a depthwise convolution. Imports no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DepthwiseKernel:
    """Positions along a line of the output, and vectors of channels of each, that are computed together.

    Attributes
    ----------
    rows, columns : int
        Extents in elements: positions, and channels, a multiple of the lanes.
    strips : bool
        Whether each tile of channels passes by a whole line before the next one begins, rather than all
        channels of some positions.
    serial : bool
        Whether one core computes everything, so that no other is woken.
    stream : bool
        Whether outputs are written past the caches.
    """

    rows: int
    columns: int
    strips: bool = False
    serial: bool = False
    stream: bool = False

    @property
    def name(self) -> str:
        """The tile, then what is not the default: ``6x32``, ``6x32-strips-serial``."""
        parts = [f"{self.rows}x{self.columns}"] + ["strips"] * self.strips
        parts += ["serial"] * self.serial + ["stream"] * self.stream
        return "-".join(parts)

    @property
    def order(self) -> tuple[int, ...]:
        """Sort key: rows, columns, then the other axes."""
        return self.rows, self.columns, self.strips, self.serial, self.stream

    @property
    def ways(self) -> frozenset[str]:
        """How it computes; predictions for ways that were not tried have a larger spread."""
        axes = {"strips": self.strips, "serial": self.serial, "stream": self.stream}
        return frozenset(name for name, is_on in axes.items() if is_on)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as records have it."""
        data: dict[str, Any] = {"form": "depthwise", "rows": self.rows, "columns": self.columns}
        others = {"strips": self.strips, "serial": self.serial, "stream": self.stream}
        return data | {name: value for name, value in others.items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DepthwiseKernel:
        """Read what `to_json` returns; other keys are ignored.

        Raises
        ------
        KeyError, TypeError, ValueError
            The data describe no micro-kernel.
        """
        rows, columns = int(data["rows"]), int(data["columns"])
        if rows < 1 or columns < 1:
            raise ValueError(f"a tile of {rows}x{columns}")
        axes = (data.get(name, False) is True for name in ("strips", "serial", "stream"))
        return cls(rows, columns, *axes)
