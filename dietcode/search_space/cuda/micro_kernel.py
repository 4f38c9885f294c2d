"""What one thread block computes, and how: a point of the search space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dietcode.search_space.cpu.limits import TAILS
from dietcode.target.cuda import WARP

CUDA_TAILS = TAILS
"""Ways to treat a tile that reaches past an edge."""
UNITS = ("simt", "mma")
"""What multiplies: each thread for itself, in float32, or the tensor cores, a warp at a time."""
_SPACER = 4  # floats after each row of a tile in shared memory: rows start in other banks, at 16 bytes
_TENSOR_TAILS = ("local", "partition", "global")  # fragments are multiplied as a whole
_FRAGMENT = (16, 8, 16)  # rows, columns and steps of one instruction of the tensor cores
_SUMS_SPACER = 8  # floats after each row of sums in shared memory: those of other rows are in other banks
_MAX_STAGES = {"simt": 2, "mma": 4}
_STATIC_SHARED_BYTES = 48 << 10  # of a block; more has to be asked for when a kernel is loaded
MAX_SPLITS = 16
"""Parts of the reduction: the kernel that adds them has a statement for each."""
_MAX_EXTENT = 65_536  # beyond what any multiprocessor holds


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
        Extents of what one thread accumulates; with `unit` "mma" of what one warp does.
    steps : int
        Steps of the reduction that are in shared memory at a time.
    row_vthreads, column_vthreads : int
        Parts of a thread's tile, spread over the block's; each is contiguous.
    stages : int
        1, or 2: the next steps are fetched to registers while the block computes. With `unit` "mma" up to 4:
        so many pieces of the reduction are in shared memory, all but one of them on their way there.
    splits : int
        Parts of the reduction that blocks of their own compute; a second kernel adds them, always in the
        same order.
    tails : str
        One of `CUDA_TAILS`.
    unit : str
        One of `UNITS`.

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
    unit: str = UNITS[0]

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"unit {str(self.unit)[:40]!r}; allowed: {', '.join(UNITS)}")
        numbers = (self.rows, self.columns, self.thread_rows, self.thread_columns, self.steps, self.splits)
        most = _MAX_STAGES[self.unit]
        if min(*numbers, self.row_vthreads, self.column_vthreads) < 1 or not 1 <= self.stages <= most:
            raise ValueError(f"{self.name}: allowed: numbers from 1, and 1 to {most} stages")
        if max(numbers) > _MAX_EXTENT or self.splits > MAX_SPLITS:
            allowed = f"extents up to {_MAX_EXTENT}, and up to {MAX_SPLITS} splits"
            raise ValueError(f"{self.name[:120]}: allowed: {allowed}")
        if self.rows % self.thread_rows or self.columns % self.thread_columns:
            raise ValueError(f"{self.name}: a block's tile must be whole tiles of threads")
        if self.thread_rows % self.row_vthreads or self.thread_columns % self.column_vthreads:
            raise ValueError(f"{self.name}: a thread's tile must be whole parts")
        if self.tails not in self.allowed_tails:
            of = "" if self.unit == UNITS[0] else f" of unit {self.unit}"
            raise ValueError(f"tails {str(self.tails)[:40]!r}{of}; allowed: {', '.join(self.allowed_tails)}")
        if self.unit == "mma":
            self._check_fragments()

    def _check_fragments(self) -> None:
        extents = (self.thread_rows, self.thread_columns, self.steps)
        is_odd = self.steps > _FRAGMENT[2] and self.steps % (2 * _FRAGMENT[2])  # fragments come in turns
        if is_odd or any(extent % of for extent, of in zip(extents, _FRAGMENT, strict=True)):
            allowed = "multiples of 16 rows and 8 columns of a warp; 16 steps, or a multiple of 32"
            raise ValueError(f"{self.name}: allowed: {allowed}")
        if self.row_vthreads * self.column_vthreads > 1:
            raise ValueError(f"{self.name}: a warp's tile is in one part; allowed: no vthreads")

    @property
    def allowed_tails(self) -> tuple[str, ...]:
        """What `tails` may be with this unit."""
        return _TENSOR_TAILS if self.unit == "mma" else CUDA_TAILS

    @property
    def parts(self) -> int:
        """Tiles of a thread, or with `unit` "mma" of a warp, that the block's tile is made of."""
        return (self.rows // self.thread_rows) * (self.columns // self.thread_columns)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.parts * (WARP if self.unit == "mma" else 1)

    @property
    def row_pitch(self) -> int:
        """Floats from one step to the next of the row operand in shared memory."""
        return self.rows + _SPACER

    @property
    def column_pitch(self) -> int:
        """Floats from one step to the next of the column operand in shared memory."""
        return self.columns + _SPACER

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one piece of both operands."""
        if self.unit == "mma":
            return 2 * self.steps * (self.rows + self.columns)
        return 4 * self.steps * (self.row_pitch + self.column_pitch)

    @property
    def sums_pitch(self) -> int:
        """With `unit` "mma": floats from one row of a warp's sums to the next, on their way to the output."""
        return self.thread_columns + _SUMS_SPACER

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        sums = 4 * _FRAGMENT[0] * self.sums_pitch * self.parts if self.unit == "mma" else 0
        return max(self.stages * self.stage_bytes, sums)

    @property
    def dynamic_bytes(self) -> int:
        """How much of `shared_bytes` a launch has to ask for; the rest the code declares."""
        return self.shared_bytes if self.unit == "mma" or self.shared_bytes > _STATIC_SHARED_BYTES else 0

    @property
    def name(self) -> str:
        """As in ``128x128-t8x8-k16``, and what is not at rest: ``-v2x2-s2-split4-partition-mma``."""
        parts = [
            f"{self.rows}x{self.columns}",
            f"t{self.thread_rows}x{self.thread_columns}",
            f"k{self.steps}",
        ]
        if self.row_vthreads * self.column_vthreads > 1:
            parts.append(f"v{self.row_vthreads}x{self.column_vthreads}")
        parts += [f"s{self.stages}"] * (self.stages > 1) + [f"split{self.splits}"] * (self.splits > 1)
        parts += [self.tails] * (self.tails != CUDA_TAILS[0]) + [self.unit] * (self.unit != UNITS[0])
        return "-".join(parts)

    @property
    def symbol(self) -> str:
        """The name as an identifier."""
        return f"micro_kernel_{self.name}".replace("-", "_")

    @property
    def sum_order(self) -> tuple[str, int, int]:
        """What the order of the additions depends on: micro-kernels that are alike in it give the same bits.

        Parts of the reduction are of whole pieces, so that their lengths depend on `steps`; but for these all
        add one step after the other, and zeros past the end change nothing.
        """
        return self.unit, self.splits, self.steps if self.splits > 1 else 0

    @property
    def order(self) -> tuple[int, ...]:
        """What micro-kernels are sorted by."""
        tiles = (self.rows, self.columns, self.thread_rows, self.thread_columns, self.steps)
        vthreads = (self.row_vthreads, self.column_vthreads)
        rest = (CUDA_TAILS.index(self.tails), UNITS.index(self.unit))
        return (*tiles, *vthreads, self.stages, self.splits, *rest)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CudaMicroKernel:
        """The inverse of `to_json`; other keys are passed over, and "simt" is meant where there is no unit.

        Raises
        ------
        KeyError, TypeError, ValueError
            It is no micro-kernel.
        """
        names = [name for name in cls.__dataclass_fields__ if name not in {"tails", "unit"}]
        wrong = [name for name in names if type(data[name]) is not int]
        if wrong:
            raise TypeError(f"{wrong[0]}: given {str(data[wrong[0]])[:40]!r}; allowed: a whole number")
        numbers = {name: data[name] for name in names}
        return cls(**numbers, tails=data["tails"], unit=data.get("unit", UNITS[0]))
