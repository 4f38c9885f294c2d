"""What one core holds: the bounds of the search space, all derived from the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.target.cpu import CpuTarget

# A core with two load ports and two FMA ports is not held up by loads below one load an FMA; two thirds
# leaves room for the loads of the packed operand that miss L1.
_MAX_LOADS_PER_FMA = 2 / 3


# How tiles that reach past an edge are treated (paper, Figure 7 d, c, b, a); the first is the default.
TAILS = ("local", "partition", "global", "checked")


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
        One of `TAILS`, see `dietcode.search_space.tails`.

    Raises
    ------
    ValueError
        `tails` is none of them.
    """

    rows: int
    columns: int
    tails: str = TAILS[0]

    def __post_init__(self) -> None:
        if self.tails not in TAILS:
            raise ValueError(f"tails {str(self.tails)[:40]!r}; allowed: {', '.join(TAILS)}")

    @property
    def name(self) -> str:
        """As in ``12x32`` for local padding, ``12x32-partition`` otherwise."""
        tile = f"{self.rows}x{self.columns}"
        return tile if self.tails == TAILS[0] else f"{tile}-{self.tails}"

    @property
    def order(self) -> tuple[int, int, int]:
        """What micro-kernels are sorted by: rows, columns, then as in `TAILS`."""
        return self.rows, self.columns, TAILS.index(self.tails)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"rows": self.rows, "columns": self.columns, "tails": self.tails}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MicroKernel:
        """The inverse of `to_json`; other keys are passed over, and without `tails` it is local padding.

        Raises
        ------
        KeyError, TypeError, ValueError
            It is no micro-kernel.
        """
        rows, columns = int(data["rows"]), int(data["columns"])
        if rows < 1 or columns < 1:
            raise ValueError(f"a tile of {rows}x{columns}")
        return cls(rows, columns, data.get("tails", TAILS[0]))


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
    """

    lanes: int
    num_registers: int
    l2_bytes: int
    num_cores: int

    @classmethod
    def of(cls, target: CpuTarget) -> Limits:
        """Limits of a resolved CPU target, for float32."""
        return cls(target.lanes(), target.num_vector_registers, target.l2_bytes, target.num_cores)

    def holds(self, micro_kernel: MicroKernel) -> bool:
        """Whether accumulators, one row of column vectors and one broadcast fit the register file."""
        vectors, rest = divmod(micro_kernel.columns, self.lanes)
        if rest or vectors < 1 or micro_kernel.rows < 1:
            return False
        return micro_kernel.rows * vectors + vectors + 1 <= self.num_registers

    def narrow_tile(self) -> MicroKernel:
        """The tile that fills the register file with the fewest column vectors at ≤ 2/3 load an FMA.

        14×32 for AVX-512, 6×16 for AVX2.
        """
        for vectors in range(2, self.num_registers):
            rows = self._tallest(vectors)
            if rows < 1 or (rows + vectors) / (rows * vectors) <= _MAX_LOADS_PER_FMA:
                break
        return MicroKernel(max(1, rows), vectors * self.lanes)

    def square_tile(self) -> MicroKernel:
        """The tile with the fewest loads for each FMA: 5×80 for AVX-512, 4×24 for AVX2."""
        tiles = [(self._tallest(v), v) for v in range(1, self.num_registers) if self._tallest(v) >= 1]
        rows, vectors = min(tiles, key=lambda t: ((t[0] + t[1]) / (t[0] * t[1]), t[1]))
        return MicroKernel(rows, vectors * self.lanes)

    def _tallest(self, vectors: int) -> int:
        return (self.num_registers - 1 - vectors) // vectors
