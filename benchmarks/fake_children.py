"""Children that compute plausible times from a formula, for tests; nothing is compiled and nothing runs.

    secs = launch + ((1 − κ)·mean + κ·largest load) · (tile(K) + visit(K))

The loads come from `dietcode.search_space.partition`, as in the generated code. A tile's steady rate follows
from its fused multiply-adds, its loads or their latency, whichever take longest, so taller register
tiles are faster.

Tails: with loop partitioning tile(K) is the mean over all tiles, where what is left over costs what it
computes and a little for each body; global padding adds its copies; checks make tile(K) twice as long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from dietcode.measure.cpu_worker import CpuRecipe
from dietcode.measure.requests import (
    BuildRequest,
    BuildResult,
    CheckRequest,
    CheckResult,
    TimeRequest,
    TimeResult,
)
from dietcode.measure.seed_search import Progress, SeedRequest, SeedResult, SeedSearch
from dietcode.search_space.cpu.axes import copies_rows, splits_rows_first
from dietcode.search_space.cpu.limits import MOST_VECTORS, Limits, MicroKernel
from dietcode.search_space.partition import NumpyOps, ceildiv, choose_partition, row_tiles_in_l2
from dietcode.search_space.problem import Problem
from dietcode.workload.identity import source_digest

FIXED_BYTES = 20_000
_BYTES_PER_FMA = 16
_CODE_BYTES = 3_000
_HZ = 4e9
_FMA_PER_CYCLE = 2
_LOADS_PER_CYCLE = 2
_FMA_LATENCY_CYCLES = 4
_TILE_SECS = 20e-9
_SECS_PER_STREAMED_BYTE = 1 / 20e9
_SECS_PER_COPIED_BYTE = 1 / 10e9
_CHECKED_SLOWDOWN = 2.0


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one micro-kernel.

    Attributes
    ----------
    stage : 'build', 'check' or 'time'
        Where it goes wrong.
    kind : 'crash', 'hang' or 'error'
        How; a hang takes the whole timeout of the fake's clock.
    """

    stage: Literal["build", "check", "time"]
    kind: Literal["crash", "hang", "error"] = "error"


@dataclass
class FakeSeedSearch:
    """`SeedSearch` that finds a tile of 4x32 at once.

    Parameters
    ----------
    error : str, optional
        Why it finds nothing.

    Attributes
    ----------
    asked : list of SeedRequest
        In the order of the calls.
    """

    error: str | None = None
    asked: list[SeedRequest] = field(default_factory=list)

    def find(self, request: SeedRequest, work_dir: Path, progress: Progress) -> SeedResult:
        """As if MetaSchedule had found it."""
        self.asked.append(request)
        if self.error is not None:
            return SeedResult(None, self.error)
        facts = {
            "trials": request.num_trials,
            "secs": 1.0,
            "best_gflops": 50.0,
            "decisions": [],
            "tile": [4, 32],
        }
        return SeedResult(facts)


class FakeDevice(Protocol):
    """What `FakeChildren` know of a kind of device; recipes and calls are as its worker takes them."""

    def micro_kernel(self, recipe: Any) -> Any:
        """Return the first micro-kernel of a recipe."""

    def num_bytes(self, recipe: Any) -> int:
        """Return the bytes of what is built."""

    def secs(self, problem: Problem, micro_kernel: Any, call: Any, extents: Mapping[str, int]) -> float:
        """Return the seconds of one undisturbed call."""


@dataclass(frozen=True)
class FakeCpu:
    """`FakeDevice` of a CPU.

    Parameters
    ----------
    kappa : float
        κ of the device.
    launch_secs : float
        Seconds of an empty call.
    """

    kappa: float = 1.0
    launch_secs: float = 2e-6

    def micro_kernel(self, recipe: CpuRecipe) -> MicroKernel:
        """As `FakeDevice` has it."""
        return recipe.micro_kernels[0]

    def num_bytes(self, recipe: CpuRecipe) -> int:
        """As `FakeDevice` has it."""
        return FIXED_BYTES + sum(kernel_bytes(kernel, recipe.limits) for kernel in recipe.micro_kernels)

    def secs(
        self, problem: Problem, micro_kernel: MicroKernel, limits: Limits, extents: Mapping[str, int]
    ) -> float:
        """As `FakeDevice` has it."""
        ops = NumpyOps()
        batch, rows, columns, reduction = (int(size) for size in problem.sizes(dict(extents)))
        row_tiles = int(ceildiv(rows, micro_kernel.rows, ops))
        column_tiles = int(ceildiv(columns, micro_kernel.columns, ops))
        grid = choose_partition(
            batch,
            row_tiles,
            column_tiles,
            limits.num_cores,
            bool(problem.batch),
            ops,
            rows_first=splits_rows_first(problem, micro_kernel),
        )
        mean = batch * row_tiles * column_tiles / limits.num_cores
        load = (1 - self.kappa) * mean + self.kappa * float(grid.largest_load)
        in_l2 = int(row_tiles_in_l2(reduction, micro_kernel.rows, limits.l2_bytes, ops))
        reused = min(in_l2, max(1.0, row_tiles / float(grid.row_parts)))
        streamed = micro_kernel.columns * 4 * reduction * _SECS_PER_STREAMED_BYTE / reused
        size = (batch, rows, columns, reduction)
        tile = _mean_tile_secs(micro_kernel, limits, size)
        moved = load * _set_aside_secs(micro_kernel, reduction)
        if copies_rows(problem, micro_kernel):
            own = batch * rows / float(grid.batch_parts * grid.row_parts)
            moved += 4 * own * reduction * _SECS_PER_COPIED_BYTE
        return self.launch_secs + load * (tile + streamed) + moved + _copy_secs(micro_kernel, limits, size)


@dataclass
class FakeChildren:
    """`dietcode.measure.children.Children` without children.

    Parameters
    ----------
    device : FakeDevice
        What says how long a call takes.
    faults : mapping of str to Fault
        By name of the micro-kernel, as in ``12x32``.
    disturbed : mapping of int to float
        Factor on all times of a reading, by the reading's number: every call of `time` counts,
        those of the reference kernels included, from 0.
    interrupt_after : int, optional
        Raise KeyboardInterrupt instead of timing another micro-kernel after this many were timed.
    build_secs : float
        Seconds that each build takes on the fake's clock.
    seeds : SeedSearch
        In MetaSchedule's place.

    Attributes
    ----------
    built, checked, timed : list of str
        Names of micro-kernels in the order of the calls, failed calls included; the reference kernel and
        finished libraries are left out.
    num_calls : Counter of str
        Calls by function: build, check, time.
    now : float
        Seconds on the fake's clock: builds, runs and hangs take time on it.
    closed : bool
        Whether `close` was called.
    """

    device: FakeDevice = field(default_factory=FakeCpu)
    faults: Mapping[str, Fault] = field(default_factory=dict)
    disturbed: Mapping[int, float] = field(default_factory=dict)
    interrupt_after: int | None = None
    build_secs: float = 0.2
    build_timeout_secs: float = 60.0
    seeds: SeedSearch = field(default_factory=FakeSeedSearch)
    slot: str = "fake"
    built: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    timed: list[str] = field(default_factory=list)
    num_calls: Counter[str] = field(default_factory=Counter)
    now: float = 0.0
    closed: bool = False
    _kernels: dict[str, Any] = field(default_factory=dict)

    def clock(self) -> float:
        """Seconds on the fake's clock, in the place of `time.monotonic`."""
        return self.now

    def build(self, requests: Sequence[BuildRequest]) -> Iterator[BuildResult]:
        """Take `build_secs` for each."""
        for request in requests:
            kernel, path = self.device.micro_kernel(request.recipe), request.path
            self.num_calls["build"] += 1
            self.now += self.build_secs
            error = None
            if not _is_reference(path):
                self.built.append(kernel.name)
                error = self._fault(kernel, "build", self.build_timeout_secs)
            if error is not None:
                yield BuildResult.failed(error)
                continue
            self._kernels[path] = kernel
            num_bytes, code = self.device.num_bytes(request.recipe), source_digest(kernel.name)
            yield BuildResult(path, num_bytes, self.build_secs, code=code)

    def check(self, request: CheckRequest, timeout_secs: float) -> CheckResult:
        """Find nothing wrong but the faults."""
        self.num_calls["check"] += 1
        kernel = self._kernels.get(request.path)
        if kernel is None:
            return CheckResult(0.0)  # a finished library
        self.checked.append(kernel.name)
        error = self._fault(kernel, "check", timeout_secs)
        return CheckResult(0.0) if error is None else CheckResult.failed(error)

    def time(self, request: TimeRequest, timeout_secs: float) -> TimeResult:
        """Compute the device's `secs` of every point.

        Raises
        ------
        KeyboardInterrupt
            After `interrupt_after` timed micro-kernels.
        """
        number = self.num_calls["time"]
        self.num_calls["time"] += 1
        kernel = self._kernels.get(request.path)
        if kernel is None:
            return TimeResult.failed(f"{request.path}: was not built")
        if not _is_reference(request.path):
            if self.interrupt_after is not None and len(self.timed) >= self.interrupt_after:
                raise KeyboardInterrupt
            self.timed.append(kernel.name)
            error = self._fault(kernel, "time", timeout_secs)
            if error is not None:
                return TimeResult.failed(error)
        slower = self.disturbed.get(number, 1.0)
        secs = [
            slower * self.device.secs(request.problem, kernel, request.call, point)
            for point in request.points
        ]
        self.now += sum(max(request.min_secs, value) * request.repeats for value in secs)
        return TimeResult(tuple(secs))

    def close(self) -> None:
        """Note that it was called."""
        self.closed = True

    def _fault(self, micro_kernel: Any, stage: str, timeout_secs: float) -> str | None:
        fault = self.faults.get(micro_kernel.name)
        if fault is None or fault.stage != stage:
            return None
        if fault.kind == "hang":
            self.now += timeout_secs
            return f"no answer within {timeout_secs:.0f} s; the process was ended"
        if fault.kind == "crash":
            return "ChildProcessError: Subprocess terminated"
        return f"ValueError: the fake was told to fail the {stage} of {micro_kernel.name}"


def kernel_bytes(micro_kernel: MicroKernel, limits: Limits) -> int:
    """Bytes that a micro-kernel adds to a fake library."""
    vectors = micro_kernel.columns // limits.lanes_of(micro_kernel)
    fmas = micro_kernel.rows * vectors
    if micro_kernel.tails == "partition":
        fmas += 2 * micro_kernel.rows + micro_kernel.rows * vectors  # its smaller register tiles
    return _CODE_BYTES + _BYTES_PER_FMA * fmas


def _tile_secs(micro_kernel: MicroKernel, limits: Limits, reduction: int) -> float:
    vectors = micro_kernel.columns / limits.lanes_of(micro_kernel)
    fma_cycles = micro_kernel.rows * vectors / _FMA_PER_CYCLE
    load_cycles = (micro_kernel.rows + vectors) / _LOADS_PER_CYCLE
    return _TILE_SECS + reduction * max(fma_cycles, load_cycles, _FMA_LATENCY_CYCLES) / _HZ


def _mean_tile_secs(micro_kernel: MicroKernel, limits: Limits, size: tuple[int, int, int, int]) -> float:
    """Seconds of a tile, tails included; they are the same in every batch."""
    _, rows, columns, reduction = size
    secs = _tile_secs(micro_kernel, limits, reduction)
    if micro_kernel.tails == "checked":
        return _CHECKED_SLOWDOWN * secs
    if micro_kernel.tails != "partition":
        return secs
    full_rows, left_rows = divmod(rows, micro_kernel.rows)
    full_columns, left_columns = divmod(columns, micro_kernel.columns)
    lanes = limits.lanes_of(micro_kernel)
    left_vectors = -(-left_columns // lanes)
    bodies = left_vectors if micro_kernel.columns // lanes > MOST_VECTORS else min(1, left_vectors)
    bits = left_rows.bit_count()
    total = full_rows * full_columns * secs
    for number, height, vectors in (
        (bits * full_columns, left_rows * full_columns, micro_kernel.columns // lanes),
        (full_rows * bodies, full_rows * micro_kernel.rows * left_vectors, 1),
        (bits * bodies, left_rows * left_vectors, 1),
    ):
        total += number * _TILE_SECS + reduction * height * vectors / _FMA_PER_CYCLE / _HZ
    num_tiles = (full_rows + (left_rows > 0)) * (full_columns + (left_columns > 0))
    return total / num_tiles


def _set_aside_secs(micro_kernel: MicroKernel, reduction: int) -> float:
    """Seconds that a tile's partial sums take to be written and read again."""
    if not micro_kernel.k_tile:
        return 0.0
    times = -(-reduction // micro_kernel.k_tile) - 1
    return 8 * times * micro_kernel.rows * micro_kernel.columns * _SECS_PER_COPIED_BYTE


def _copy_secs(micro_kernel: MicroKernel, limits: Limits, size: tuple[int, int, int, int]) -> float:
    """Seconds of the copies of global padding, spread over all cores."""
    if micro_kernel.tails != "global":
        return 0.0
    batch, rows, columns, reduction = size
    padded_rows = -(-rows // micro_kernel.rows) * micro_kernel.rows
    elements = batch * (padded_rows * reduction + rows * columns)
    return 4 * elements * _SECS_PER_COPIED_BYTE / limits.num_cores


def _is_reference(path: str) -> bool:
    return Path(path).stem in {"reference", "reference_chain"}
