"""The limits of one core, which bound the search space, all derived from the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dietcode.search_space.tails import TAILS

if TYPE_CHECKING:  # records are read by processes without the compiler
    from dietcode.target.cpu import CpuTarget

# Loads do not slow down a core with two load ports and two FMA ports below one load an FMA; two thirds
# leave room for the loads of the packed operand that miss L1.
_MAX_LOADS_PER_FMA = 2 / 3


CHUNKS = 8
"""Tasks that a core's part of a loop is cut into at most, a power of two."""

MOST_VECTORS = 3
"""Vectors of the widest tile whose left-over columns take one body; in wider ones each vector takes one."""


@dataclass(frozen=True)
class MicroKernel:
    """A tile of the output that one core accumulates in registers over the whole reduction.

    Its two extents are the paper's inner tile T0 (section 4.3): the level that is mutated in
    [T0/2, 2·T0], the level that padding rounds up to, and the tile that is counted in f_spatial.

    Attributes
    ----------
    rows, columns : int
        Extents in elements; `columns` is a multiple of the vector lanes.
    tails : str
        One of `TAILS`, see `dietcode.search_space.cpu.tails`.
    k_tile : int
        Steps of the reduction after which the tile is set aside for the next one, so that a panel of the
        column operand stays in L1 while the rows pass by; 0 for all of them at once.
    gather : bool
        Whether each task copies its rows next to each other first. Windows are copied in any case.
    direct : bool
        Whether a column operand that is not constant is read where it lies, rather than packed by the tasks.
    window : bool
        Whether each task keeps the lines under a window, rather than each row of the window by itself; see
        `dietcode.search_space.cpu.windowing`.

    Raises
    ------
    ValueError
        `tails` is not one of `TAILS`, or `k_tile` is negative.
    """

    rows: int
    columns: int
    tails: str = TAILS[0]
    k_tile: int = 0
    gather: bool = False
    direct: bool = False
    window: bool = False

    def __post_init__(self) -> None:
        if self.tails not in TAILS:
            raise ValueError(f"tails {str(self.tails)[:40]!r}; allowed: {', '.join(TAILS)}")
        if self.k_tile < 0:
            raise ValueError(f"steps {self.k_tile}; allowed: from 0")

    @property
    def name(self) -> str:
        """The tile, then what is not the default: ``12x32``, ``12x32-partition-k256-gather``."""
        parts = [f"{self.rows}x{self.columns}"]
        parts += [self.tails] * (self.tails != TAILS[0])
        parts += [f"k{self.k_tile}"] * bool(self.k_tile)
        parts += ["gather"] * self.gather + ["direct"] * self.direct + ["window"] * self.window
        return "-".join(parts)

    @property
    def order(self) -> tuple[int, ...]:
        """Sort key: rows, columns, position in `TAILS`, then the other axes."""
        others = (self.k_tile, self.gather, self.direct, self.window)
        return self.rows, self.columns, TAILS.index(self.tails), *others

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as records have it."""
        data: dict[str, Any] = {"rows": self.rows, "columns": self.columns, "tails": self.tails}
        others = {"steps": self.k_tile, "gather": self.gather, "direct": self.direct, "window": self.window}
        return data | {name: value for name, value in others.items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MicroKernel:
        """Read what `to_json` returns; other keys are ignored, and tails are local where none are given.

        Raises
        ------
        KeyError, TypeError, ValueError
            The data describe no micro-kernel.
        """
        rows, columns = int(data["rows"]), int(data["columns"])
        if rows < 1 or columns < 1:
            raise ValueError(f"a tile of {rows}x{columns}")
        axes = (data.get(name, False) is True for name in ("gather", "direct", "window"))
        return cls(rows, columns, data.get("tails", TAILS[0]), int(data.get("steps", 0)), *axes)


@dataclass(frozen=True)
class Limits:
    """Hardware limits of one core.

    Attributes
    ----------
    lanes : int
        Elements of a vector register.
    num_registers : int
        Vector registers.
    l2_bytes : int
        Private cache that a block of the row operand should fit.
    num_cores : int
        Execution slots P.
    fuses : bool
        Whether a product and an addition are one instruction, rounded once.
    """

    lanes: int
    num_registers: int
    l2_bytes: int
    num_cores: int
    fuses: bool = True

    @classmethod
    def of(cls, target: CpuTarget) -> Limits:
        """Return the limits of a resolved CPU target, for float32."""
        fuses = bool({"fma", "neon"} & set(target.features))
        return cls(target.lanes(), target.num_vector_registers, target.l2_bytes, target.num_cores, fuses)

    def holds(self, micro_kernel: MicroKernel) -> bool:
        """Whether accumulators, a row of vectors and a broadcast fit the registers, and the axes agree."""
        other = micro_kernel.k_tile or micro_kernel.gather or micro_kernel.tails == "global"
        if micro_kernel.window and other:
            return False
        vectors, remainder = divmod(micro_kernel.columns, self.lanes_of(micro_kernel))
        if remainder or vectors < 1 or micro_kernel.rows < 1:
            return False
        return micro_kernel.rows * vectors + vectors + 1 <= self.num_registers

    def lanes_of(self, micro_kernel: MicroKernel) -> int:
        """Return the lanes of a tile's vectors: half or a quarter of a register where its columns are as few.

        A constant column operand has one packed layout, of whole registers.
        """
        narrow = {self.lanes // 2, self.lanes // 4} - {0, 1, 2}
        return micro_kernel.columns if micro_kernel.columns in narrow else self.lanes

    def narrow_tile(self) -> MicroKernel:
        """Return the tile that fills the register file with the fewest column vectors at ≤ 2/3 load an FMA.

        14×32 for AVX-512, 6×16 for AVX2.
        """
        for vectors in range(2, self.num_registers):
            rows = self._tallest(vectors)
            if rows < 1 or (rows + vectors) / (rows * vectors) <= _MAX_LOADS_PER_FMA:
                break
        return MicroKernel(max(1, rows), vectors * self.lanes)

    def square_tile(self) -> MicroKernel:
        """Return the tile with the fewest loads for each FMA: 5×80 for AVX-512, 4×24 for AVX2."""
        tiles = [(self._tallest(v), v) for v in range(1, self.num_registers) if self._tallest(v) >= 1]
        rows, vectors = min(tiles, key=lambda t: ((t[0] + t[1]) / (t[0] * t[1]), t[1]))
        return MicroKernel(rows, vectors * self.lanes)

    def _tallest(self, vectors: int) -> int:
        return (self.num_registers - 1 - vectors) // vectors
