"""The tile that one thread block computes, and how: a point of the search space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dietcode.search_space.tails import TAILS
from dietcode.target.multiprocessor import WARP, WARPGROUP, Multiprocessor

UNITS = ("simt", "mma", "wgmma", "tma")
"""What multiplies: each thread for itself, in float32; tensor cores for a warp, from its registers; tensor
cores for a warpgroup of four warps, from shared memory; these, of what another warpgroup copies in bulk."""
WARPGROUP_UNITS = ("wgmma", "tma")
"""Those whose warpgroups multiply."""
_SPACER = 4  # floats after each row of a tile in shared memory: rows start in other banks, at 16 bytes
_TENSOR_TAILS = ("local", "partition", "global")  # fragments are multiplied as a whole
# Rows, columns and steps of one instruction; and threads that accumulate one tile together.
_FRAGMENTS = {"mma": (16, 8, 16), "wgmma": (64, 8, 16), "tma": (64, 8, 16)}
_UNIT_THREADS = {"simt": 1, "mma": WARP, "wgmma": WARPGROUP, "tma": WARPGROUP}
_STAGED_ROWS = 16  # of accumulators of a warp, on their way to the output
_ACCUMULATORS_SPACER = (
    8  # floats after each row of accumulators in shared memory: other rows are in other banks
)
_MAX_STAGES = {"simt": 2, "mma": 4, "wgmma": 6, "tma": 6}
_STAGE_BARRIER_BYTES = 16  # of one that tells that a stage is full, and one that it is empty
_BLOCK_REGISTERS = 64 << 10  # of a multiprocessor of sm_90a
_ROLE_REGISTERS = {2: (40, 232), 3: (32, 160)}  # of a producer's thread and a consumer's, by their warpgroups
MAX_CLUSTER = 2
"""Blocks of a cluster at most: they copy for each other."""
_SHARED_COLUMNS = 16  # of which a tile has a multiple where two blocks copy a half each, of whole patterns
_STAGED_COLUMNS = (32, 24, 16, 8)  # of accumulators that have shared memory beside that of tiles
_SPARE_REGISTERS = 16  # beyond the estimate of what a thread needs
OTHER_REGISTERS = 40
"""Of a thread of a warpgroup that multiplies, beside accumulators: addresses, bounds, counters."""
MAX_WARPGROUP_COLUMNS = 256
"""Columns that one instruction of a warpgroup multiplies at most."""
SWIZZLE_BYTES = 128
"""The longest line in shared memory that instructions of warpgroups read; a tile is panels of such lines."""
_PATTERN_BYTES = 8 * SWIZZLE_BYTES  # after which their order of chunks comes again: tiles begin at multiples
_STATIC_SHARED_BYTES = 48 << 10  # of a block; more has to be asked for when a kernel is loaded
MAX_SPLITS = 16
"""Parts of the reduction: the kernel that adds them has a statement for each."""
_KEYS = {"k_tile": "steps"}  # of plain data, where it is not the name of the field
_DEFAULTS: dict[str, Any] = {"cluster_rows": 1, "cluster_columns": 1, "persistent": False}  # left out of data
_MAX_EXTENT = 65_536  # beyond what any multiprocessor holds


class Side(NamedTuple):
    """One side of a tile: extents of the block's and of a thread's tile, and the parts of the latter."""

    extent: int
    thread_extent: int
    vthreads: int


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
        Extents of the tile that one thread accumulates; with `unit` "mma" that one warp does, and with
        "wgmma" and "tma" one warpgroup.
    k_tile : int
        Steps of the reduction that are in shared memory at a time.
    row_vthreads, column_vthreads : int
        Parts of a thread's tile, spread over the block's; each is contiguous.
    stages : int
        1, or 2: the next tile of the reduction is fetched to registers while the block computes. With `unit`
        "mma" up to 4: so many of these tiles are in shared memory, all but one of them on their way there.
        With "wgmma" up to 6: from 3 on one more of them is still being multiplied. With "tma" up to 6, a
        ring that a warpgroup of its own fills.
    splits : int
        Parts of the reduction that blocks of their own compute; a second kernel adds them, always in the
        same order.
    tails : str
        One of `TAILS`.
    unit : str
        One of `UNITS`.
    cluster_rows, cluster_columns : int
        With "tma" tiles of a cluster of blocks, along the rows or along the columns: they have the tile of
        the other operand in common, each block copies a part of it to all, and 2 blocks are a cluster.
    persistent : bool
        With "tma" whether there are no more blocks than the device runs at a time: each computes one tile
        after the other, and the copies of the next tile go on while this one is written.

    Raises
    ------
    ValueError
        The numbers do not fit together.
    """

    rows: int
    columns: int
    thread_rows: int
    thread_columns: int
    k_tile: int
    row_vthreads: int = 1
    column_vthreads: int = 1
    stages: int = 1
    splits: int = 1
    tails: str = TAILS[0]
    unit: str = UNITS[0]
    cluster_rows: int = 1
    cluster_columns: int = 1
    persistent: bool = False

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"unit {str(self.unit)[:40]!r}; allowed: {', '.join(UNITS)}")
        numbers = (self.rows, self.columns, self.thread_rows, self.thread_columns, self.k_tile, self.splits)
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
        if self.is_tensor:
            self._check_fragments()
        if (self.cluster_rows, self.cluster_columns) != (1, 1) or self.persistent:
            self._check_blocks()

    def _check_blocks(self) -> None:
        """Check what blocks do together, and one after the other."""
        if self.unit != "tma":
            raise ValueError(f"{self.name}: clusters and a persistent grid; allowed: with unit tma")
        if min(self.cluster_rows, self.cluster_columns) != 1 or self.cluster not in {1, MAX_CLUSTER}:
            raise ValueError(f"{self.name}: allowed: clusters of {MAX_CLUSTER} tiles, of rows or of columns")
        if self.cluster_rows > 1 and self.columns % _SHARED_COLUMNS:
            allowed = f"multiples of {_SHARED_COLUMNS} columns of a tile that a cluster shares"
            raise ValueError(f"{self.name}: allowed: {allowed}")
        if self.persistent and self.splits > 1:
            raise ValueError(f"{self.name}: a persistent grid of parts of the reduction; allowed: one part")

    def _check_fragments(self) -> None:
        fragment, of = _FRAGMENTS[self.unit], "warp" if self.unit == "mma" else "warpgroup"
        extents = (self.thread_rows, self.thread_columns, self.k_tile)
        # Fragments come in turns, and lines of shared memory in panels.
        turn = 2 * fragment[2] if self.unit == "mma" else SWIZZLE_BYTES // 2
        is_odd = self.k_tile % turn != 0 and turn % self.k_tile != 0
        is_wide = self.has_warpgroups and self.thread_columns > MAX_WARPGROUP_COLUMNS
        if is_odd or is_wide or any(extent % of for extent, of in zip(extents, fragment, strict=True)):
            most = f", up to {MAX_WARPGROUP_COLUMNS}," if self.has_warpgroups else ""
            tiles = f"multiples of {fragment[0]} rows and 8 columns{most} of a {of}"
            allowed = "16 steps" if self.unit == "mma" else "16 or 32 steps"
            raise ValueError(f"{self.name}: allowed: {tiles}; {allowed}, or a multiple of {turn}")
        if self.row_vthreads * self.column_vthreads > 1:
            raise ValueError(f"{self.name}: a warp's tile is in one part; allowed: no vthreads")

    @property
    def allowed_tails(self) -> tuple[str, ...]:
        """Values of `tails` that this unit allows."""
        return _TENSOR_TAILS if self.is_tensor else TAILS

    @property
    def is_tensor(self) -> bool:
        """Whether tensor cores multiply."""
        return self.unit != "simt"

    @property
    def has_warpgroups(self) -> bool:
        """Whether tensor cores multiply for warpgroups, from shared memory."""
        return self.unit in WARPGROUP_UNITS

    @property
    def cluster(self) -> int:
        """Blocks of a cluster; 1 where each is for itself."""
        return self.cluster_rows * self.cluster_columns

    @property
    def is_alone(self) -> bool:
        """Whether each block computes one tile, without the help of others."""
        return self.cluster == 1 and not self.persistent

    def sharing(self, is_row: bool) -> int:
        """Return how many blocks of a cluster have the tile of the row operand, or the other, in common."""
        return self.cluster_columns if is_row else self.cluster_rows

    def of_unit(self, unit: str) -> CudaMicroKernel:
        """Return the micro-kernel with another unit, without what "tma" alone has."""
        return replace(self, unit=unit, **_DEFAULTS)

    @property
    def tile(self) -> tuple[int, int, int]:
        """Extents of the block's tile: rows, columns, and steps of the reduction."""
        return self.rows, self.columns, self.k_tile

    @property
    def sides(self) -> tuple[Side, Side]:
        """Extents along the rows and along the columns."""
        return (
            Side(self.rows, self.thread_rows, self.row_vthreads),
            Side(self.columns, self.thread_columns, self.column_vthreads),
        )

    @property
    def num_accumulators(self) -> int:
        """Accumulators of a thread, or of all that accumulate one tile together: a warp, a warpgroup."""
        return self.thread_rows * self.thread_columns

    @property
    def parts(self) -> int:
        """Tiles of a thread, or of a warp or a warpgroup, that the block's tile is made of."""
        return (self.rows // self.thread_rows) * (self.columns // self.thread_columns)

    @property
    def threads(self) -> int:
        """Threads of a block: those that multiply, and with "tma" a warpgroup that copies."""
        return self.parts * _UNIT_THREADS[self.unit] + (WARPGROUP if self.unit == "tma" else 0)

    @property
    def role_registers(self) -> tuple[int, int] | None:
        """With "tma": registers of a thread that copies, and of one that multiplies, once it has begun.

        None where all threads keep what they begin with: there are enough, or too many warpgroups for one to
        give any.
        """
        needed = self.num_accumulators // WARPGROUP + OTHER_REGISTERS
        is_enough = needed + _SPARE_REGISTERS <= self.first_registers
        return None if self.unit != "tma" or is_enough else _ROLE_REGISTERS.get(self.parts)

    @property
    def first_registers(self) -> int:
        """Registers that a thread of a block that is alone on its multiprocessor begins with, at most."""
        return min(255, _BLOCK_REGISTERS // self.threads // 8 * 8)

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
        """Bytes of shared memory of one tile of both operands."""
        if self.is_tensor:
            num_bytes = 2 * self.k_tile * (self.rows + self.columns)
            return num_bytes + (-num_bytes % _PATTERN_BYTES if self.has_warpgroups else 0)
        return 4 * self.k_tile * (self.row_pitch + self.column_pitch)

    @property
    def staged_columns(self) -> int:
        """Columns of a warp's accumulators that are on their way to the output at a time.

        All, in the place of tiles; with a persistent grid tiles are copied meanwhile, and there is less room.
        """
        if not self.persistent:
            return self.thread_columns
        return next(count for count in _STAGED_COLUMNS if self.thread_columns % count == 0)

    @property
    def staged_at(self) -> int:
        """Bytes of shared memory ahead of accumulators on their way to the output."""
        return self.stages * self.stage_bytes if self.persistent else 0

    @property
    def accumulators_pitch(self) -> int:
        """On tensor cores: floats from one row of a warp's accumulators to the next, in shared memory."""
        return self.staged_columns + _ACCUMULATORS_SPACER

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block."""
        return self.barriers_at + (self.stages * _STAGE_BARRIER_BYTES if self.unit == "tma" else 0)

    @property
    def barriers_at(self) -> int:
        """Bytes of shared memory of tiles, and of accumulators on their way; barriers come behind them."""
        of_warp = 4 * _STAGED_ROWS * self.accumulators_pitch if self.is_tensor else 0
        warps = self.parts * _UNIT_THREADS[self.unit] // WARP
        return max(self.stages * self.stage_bytes, self.staged_at + of_warp * warps)

    @property
    def dynamic_bytes(self) -> int:
        """Bytes of `shared_bytes` that a launch has to request; the code declares the rest."""
        return self.shared_bytes if self.is_tensor or self.shared_bytes > _STATIC_SHARED_BYTES else 0

    @property
    def name(self) -> str:
        """The tile, ``128x128-t8x8-k16``, then what is not the default: ``-v2x2-s2-split4-partition-mma``.

        A cluster of two tiles of rows ends it as ``-tma-c2x1``, and a persistent grid as ``-tma-persistent``.
        """
        parts = [
            f"{self.rows}x{self.columns}",
            f"t{self.thread_rows}x{self.thread_columns}",
            f"k{self.k_tile}",
        ]
        if self.row_vthreads * self.column_vthreads > 1:
            parts.append(f"v{self.row_vthreads}x{self.column_vthreads}")
        parts += [f"s{self.stages}"] * (self.stages > 1) + [f"split{self.splits}"] * (self.splits > 1)
        parts += [self.tails] * (self.tails != TAILS[0]) + [self.unit] * (self.unit != UNITS[0])
        parts += [f"c{self.cluster_rows}x{self.cluster_columns}"] * (self.cluster != 1)
        parts += ["persistent"] * self.persistent
        return "-".join(parts)

    @property
    def symbol(self) -> str:
        """The name as an identifier."""
        return f"micro_kernel_{self.name}".replace("-", "_")

    def on(self, sm: Multiprocessor) -> CudaMicroKernel:
        """Return the micro-kernel whose code an architecture gets under the name of this one.

        That is this one, but where it takes instructions of warpgroups, which the architecture lacks: there
        it is a twin with `unit` "mma", of the same grid, steps, workspace and alignment classes, and as many
        threads as multiply here.
        Each warpgroup's tile is divided among its four warps, and stages are as many as a block may hold.
        """
        if not self.has_warpgroups or sm.has_wgmma:
            return self
        rows, columns = min(
            (
                (self.thread_rows // down, self.thread_columns * down // 4)
                for down in (1, 2, 4)
                if self.thread_columns * down % (4 * _FRAGMENTS["mma"][1]) == 0
            ),
            key=sum,
        )
        stages = min(self.stages, _MAX_STAGES["mma"])
        axes: dict[str, Any] = {"thread_rows": rows, "thread_columns": columns, "stages": stages}
        twin = replace(self, unit="mma", **axes, **_DEFAULTS)
        while twin.stages > 1 and twin.shared_bytes > sm.block_shared_bytes:
            twin = replace(twin, stages=twin.stages - 1)
        return twin

    @property
    def sum_order(self) -> tuple[str, int, int]:
        """Key of the order of the additions: micro-kernels that agree in it give the same bits.

        Parts of the reduction are whole tiles of it, so that their lengths depend on `k_tile`; but for these
        all add one step after the other, and zeros past the end change nothing.
        """
        return self.unit, self.splits, self.k_tile if self.splits > 1 else 0

    @property
    def order(self) -> tuple[int, ...]:
        """Sort key of micro-kernels."""
        extents = (self.rows, self.columns, self.thread_rows, self.thread_columns, self.k_tile)
        vthreads = (self.row_vthreads, self.column_vthreads)
        rest = (TAILS.index(self.tails), UNITS.index(self.unit))
        blocks = (self.cluster_rows, self.cluster_columns, int(self.persistent))
        return (*extents, *vthreads, self.stages, self.splits, *rest, *blocks)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as records have it; what says that a block is alone is left out."""
        own = {name: value for name, value in vars(self).items() if _DEFAULTS.get(name) != value}
        return {_KEYS.get(name, name): value for name, value in own.items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CudaMicroKernel:
        """Read what `to_json` returns; other keys are ignored, and what it leaves out has its default.

        The unit is "simt" where none is given.

        Raises
        ------
        KeyError, TypeError, ValueError
            The data describe no micro-kernel.
        """
        words = {"tails": data["tails"], "unit": data.get("unit", UNITS[0])}
        names = {_KEYS.get(name, name): name for name in cls.__dataclass_fields__ if name not in words}
        whole = _DEFAULTS | dict(data)
        given = {name: whole[key] for key, name in names.items()}
        for key, name in names.items():
            kind = type(_DEFAULTS.get(name, 1))
            if type(given[name]) is not kind:
                allowed = "a whole number" if kind is int else "true or false"
                raise TypeError(f"{key}: given {str(given[name])[:40]!r}; allowed: {allowed}")
        return cls(**given, **words)
