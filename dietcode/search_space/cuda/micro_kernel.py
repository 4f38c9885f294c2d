"""What one thread block computes, and how: a point of the search space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.search_space.limits import TAILS

CUDA_TAILS = TAILS
"""Ways to treat a tile that reaches past an edge."""
_SPACER = 4  # floats after each row of a tile in shared memory: rows start in other banks, at 16 bytes


@dataclass(frozen=True)
class CudaMicroKernel:
    """A tile of the output that one thread block accumulates in registers.

    `rows` and `columns` are the paper's inner tile T0 (section 4.3): the level that is mutated in
    [T0/2, 2·T0], the level that padding rounds up to, and the tile that is counted in f_spatial.

    Attributes
    ----------
    rows, columns : int
        Extents of the block's tile.
    thread_rows, thread_columns : int
        Extents of what one thread accumulates.
    steps : int
        Steps of the reduction that are in shared memory at a time.
    row_vthreads, column_vthreads : int
        Parts of a thread's tile, spread over the block's; each is contiguous.
    stages : int
        1, or 2: the next steps are fetched to registers while the block computes.
    splits : int
        Parts of the reduction that blocks of their own compute; a second kernel adds them, always in the
        same order.
    tails : str
        One of `CUDA_TAILS`.

    Raises
    ------
    ValueError
        The numbers do not fit together.
    """

    rows: int
    columns: int
    thread_rows: int
    thread_columns: int
    steps: int
    row_vthreads: int = 1
    column_vthreads: int = 1
    stages: int = 1
    splits: int = 1
    tails: str = CUDA_TAILS[0]

    def __post_init__(self) -> None:
        numbers = (self.rows, self.columns, self.thread_rows, self.thread_columns, self.steps, self.splits)
        if min(*numbers, self.row_vthreads, self.column_vthreads) < 1 or self.stages not in {1, 2}:
            raise ValueError(f"{self.name}: allowed: numbers from 1, and 1 or 2 stages")
        if self.rows % self.thread_rows or self.columns % self.thread_columns:
            raise ValueError(f"{self.name}: a block's tile must be whole tiles of threads")
        if self.thread_rows % self.row_vthreads or self.thread_columns % self.column_vthreads:
            raise ValueError(f"{self.name}: a thread's tile must be whole parts")
        if self.tails not in CUDA_TAILS:
            raise ValueError(f"tails {str(self.tails)[:40]!r}; allowed: {', '.join(CUDA_TAILS)}")

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return (self.rows // self.thread_rows) * (self.columns // self.thread_columns)

    @property
    def row_pitch(self) -> int:
        """Floats from one step to the next of the row operand in shared memory."""
        return self.rows + _SPACER

    @property
    def column_pitch(self) -> int:
        """Floats from one step to the next of the column operand in shared memory."""
        return self.columns + _SPACER

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return 4 * self.stages * self.steps * (self.row_pitch + self.column_pitch)

    @property
    def name(self) -> str:
        """As in ``128x128-t8x8-k16``, and what is not at rest: ``-v2x2-s2-split4-partition``."""
        parts = [
            f"{self.rows}x{self.columns}",
            f"t{self.thread_rows}x{self.thread_columns}",
            f"k{self.steps}",
        ]
        if self.row_vthreads * self.column_vthreads > 1:
            parts.append(f"v{self.row_vthreads}x{self.column_vthreads}")
        parts += [f"s{self.stages}"] * (self.stages > 1) + [f"split{self.splits}"] * (self.splits > 1)
        return "-".join([*parts, *[self.tails] * (self.tails != CUDA_TAILS[0])])

    @property
    def symbol(self) -> str:
        """The name as an identifier."""
        return f"micro_kernel_{self.name}".replace("-", "_")

    @property
    def order(self) -> tuple[int, ...]:
        """What micro-kernels are sorted by."""
        tiles = (self.rows, self.columns, self.thread_rows, self.thread_columns, self.steps)
        vthreads = (self.row_vthreads, self.column_vthreads)
        return (*tiles, *vthreads, self.stages, self.splits, CUDA_TAILS.index(self.tails))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CudaMicroKernel:
        """The inverse of `to_json`; other keys are passed over.

        Raises
        ------
        KeyError, TypeError, ValueError
            It is no micro-kernel.
        """
        names = [name for name in cls.__dataclass_fields__ if name != "tails"]
        wrong = [name for name in names if type(data[name]) is not int]
        if wrong:
            raise TypeError(f"{wrong[0]}: given {str(data[wrong[0]])[:40]!r}; allowed: a whole number")
        return cls(**{name: data[name] for name in names}, tails=data["tails"])
