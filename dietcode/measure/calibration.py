"""What is measured once for a device: κ of f_spatial, FMAs a cycle, and the reference kernel's reading.

The sweep runs a kernel with one row of 1…4P tiles, so that only the number of tiles changes (the paper's
Figure 13, on cores instead of SMs). How many FMAs a core begins in a cycle follows from a step of its tiles,
many of which use each panel, beside one of a tile that has a single accumulator, which takes the latency of
an FMA whatever the core has.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.errors import TuningError
from dietcode.measure.least_squares import nonnegative
from dietcode.measure.measurer import Measurer
from dietcode.measure.requests import BuildRequest
from dietcode.search_space.problem import Problem
from dietcode.target.fma import FMA_LATENCY, FMAS

REDUCTION = 2048
_SWEEP_WAVES = 4
_NUM_SWEEPS = 7
_FLICKERING_SWEEPS = 40  # whose median counts: κ of 0.73 ± 0.08, of the fastest of 7 0.50 ± 0.25, seen once
_MOST_SECS = 5.0  # of further sevens of sweeps, while κ says that the cores did not run side by side
_ROW_TILES, _COLUMN_TILES = 16, 8  # of a core, in a reading of the reference kernel
_READ_REDUCTION = 128  # so that a panel and a tile's rows fit L1
_MOST_WAVES = 8  # in a reading of before: one row of tiles, at first as many as these
_NUM_READINGS = 7
_BUSY = 1.1  # a usual reading over the fastest of a sweep: something else ran beside it
_SLOWER = 1.25  # than at the earlier calibration: something else may run
_MAX_RESTS = 8
_REST_SECS = 0.5
_MANY_TILES = 64  # rows of tiles that use the same panel
_MIN_KAPPA = 0.4  # 0.9 to 1.05 were seen on quiet CPUs


@dataclass(frozen=True)
class ReferenceKernel:
    """The kernel that is timed beside all others, of `reference_problem`.

    Attributes
    ----------
    request, chain_request : BuildRequest
        What builds it, and what builds a micro-kernel of one accumulator.
    rows, columns : int
        Its tile.
    lanes : int
        Of a vector.
    num_cores : int
        P.
    """

    request: BuildRequest
    chain_request: BuildRequest
    rows: int
    columns: int
    lanes: int
    num_cores: int

    @property
    def reading(self) -> dict[str, int]:
        """The extents of a reading: several tiles use each panel, so that it waits for FMAs as others do.

        A reading that waits for a cache has the speed that others leave of it. One of a row of tiles, from
        L2, had two, 1.4 × apart, for seconds each, while other micro-kernels beside it kept theirs. One of a
        call as short as a fork and join waits for these: where a host's other guests come and go, the median
        of fifteen readings scaled by four rows of tiles (15 µs) was off by 4.8 %, by sixteen rows (50 µs) by
        2.7 %, not scaled by 3.6 % (a batched product of six sizes, on a Zen 3, once).
        """
        rows, columns = _ROW_TILES * self.rows, self.num_cores * _COLUMN_TILES * self.columns
        return {"m": rows, "n": columns, "k": _READ_REDUCTION}

    @property
    def many(self) -> dict[str, int]:
        """The extents at which a step is read: a column of tiles a core, so that panels cost little."""
        return {"m": _MANY_TILES * self.rows, "n": self.num_cores * self.columns, "k": REDUCTION}

    @property
    def chain(self) -> dict[str, int]:
        """The same of the micro-kernel of one accumulator."""
        return {"m": _MANY_TILES, "n": self.num_cores * self.lanes, "k": REDUCTION}

    def point(self, num_tiles: int) -> dict[str, int]:
        """Return the extents of one row of so many tiles."""
        return {"m": self.rows, "n": num_tiles * self.columns, "k": REDUCTION}


def reference_problem() -> Problem:
    """Return ``Y[m, n] = Σ X[m, k] · W[n, k]`` with dynamic extents."""
    return Problem(
        row_operand="X",
        column_operand="W",
        output="Y",
        indices={"X": "mk", "W": "nk", "Y": "mn"},
        batch=(),
        rows=("m",),
        columns=("n",),
        reduction=("k",),
        extents={"m": None, "n": None, "k": None},
        stages=(),
        column_operand_constant=True,
    )


def calibrate(
    measurer: Measurer,
    kernel: ReferenceKernel,
    least_secs: float | None = None,
    most_secs: float = math.inf,
) -> dict[str, Any]:
    """Build the reference kernel, set it beside every later measurement, and fit κ.

    On a machine that flickers medians count, as they do of what is measured later.

    Parameters
    ----------
    least_secs : float, optional
        How long the sweep and the steps of FMAs are read at least, each, and the fastest counts whatever the
        machine does: for what is compared with fastest readings.
    most_secs : float
        How long either is read at most beyond seven readings, where no `least_secs` are given.

    Returns
    -------
    dict
        A calibration line: ``kappa`` of ``f_spatial = 1 / (κ·x + 1 − κ)``, x = pad(n, P)/n (Equations 4 and
        5, as a ratio of time); the sweep ``num_tiles``, 1…4P, with ``tile_gflops`` at each;
        ``fmas_per_cycle``, of vectors, one of `FMAS`;
        ``reference_secs``, the usual reading of the reference kernel, or the sweep's where something else ran
        beside it or the machine flickers; and ``reference_extents``, those of the reading.

    Raises
    ------
    TuningError
        The reference kernel cannot be built or run here.
    """
    path, chain = attach_reference(measurer, kernel), _build(measurer, kernel.chain_request)
    counts = tuple(range(1, _SWEEP_WAVES * kernel.num_cores + 1))
    points = [*(kernel.point(n) for n in counts), kernel.reading]

    def timed(code: str, points: list[dict[str, int]]) -> list[float]:
        return measurer.time_problem(reference_problem(), code, points)

    def kappa_of(secs: Sequence[float]) -> float:
        return fit_kappa(counts, secs[: len(counts)], kernel.num_cores)

    def sweep() -> list[float]:
        return timed(path, points)

    def fmas() -> list[float]:
        return timed(path, [kernel.many]) + timed(chain, [kernel.chain])

    if measurer.flickers and least_secs is None:
        *secs, measurer.base_secs = _median(sweep, most_secs)
        many, chained = _median(fmas, most_secs)
    else:
        limits = least_secs or 0.0, max(least_secs or 0.0, min(most_secs, _MOST_SECS))
        *secs, fastest = _fastest(
            sweep, *limits, is_right=lambda secs: is_plausible(kappa_of(secs), kernel.num_cores)
        )
        many, chained = _fastest(fmas, *limits)
        usual = measurer.usual_reference_secs  # of readings before the sweep: they may be of a slow moment
        measurer.base_secs = usual if usual <= _BUSY * fastest else fastest
    flops = 2.0 * kernel.rows * kernel.columns * REDUCTION
    return {
        "kappa": kappa_of(secs),
        "num_tiles": list(counts),
        "tile_gflops": [float(n * flops / s / 1e9) for n, s in zip(counts, secs, strict=True)],
        "fmas_per_cycle": fmas_of(kernel, many, chained),
        "reference_secs": measurer.base_secs,
        "reference_extents": kernel.reading,
    }


def _median(read: Callable[[], list[float]], most_secs: float = math.inf) -> list[float]:
    """Return the median of many readings of each value; of seven at least, however long they take."""
    readings: list[list[float]] = []
    begun = time.monotonic()
    while len(readings) < _FLICKERING_SWEEPS:
        if len(readings) >= _NUM_SWEEPS and time.monotonic() - begun > most_secs:
            break
        readings.append(read())
    return [float(secs) for secs in np.median(readings, axis=0)]


def _fastest(
    read: Callable[[], list[float]],
    least_secs: float,
    most_secs: float = _MOST_SECS,
    is_right: Callable[[Sequence[float]], bool] = lambda _: True,
) -> list[float]:
    """Return the fastest of seven readings of each value: disturbances only ever add time.

    Further sevens follow for `least_secs`, and up to `most_secs` while they cannot be right.
    """
    readings: list[list[float]] = []
    begun = time.monotonic()
    while True:
        readings += [read() for _ in range(_NUM_SWEEPS)]
        found = [float(secs) for secs in np.min(readings, axis=0)]
        done, lasted = is_right(found), time.monotonic() - begun
        if lasted >= least_secs and (done or lasted > most_secs):
            return found
        time.sleep(0.0 if done else _REST_SECS)


def fmas_of(kernel: ReferenceKernel, many_secs: float, chain_secs: float) -> float:
    """Return how many FMAs of vectors a core begins in a cycle: of `FMAS` the one that is nearest.

    Parameters
    ----------
    many_secs, chain_secs : float
        At `ReferenceKernel.many` and `ReferenceKernel.chain`, of as many tiles and steps.
    """
    accumulators = kernel.rows * kernel.columns / kernel.lanes
    found = accumulators * chain_secs / (FMA_LATENCY * many_secs)
    return min(FMAS, key=lambda fmas: abs(np.log(fmas / found)))


def is_comparable(kernel: ReferenceKernel, earlier: Mapping[str, Any]) -> bool:
    """Whether the readings of an earlier calibration are of the same extents as today's."""
    found: bool = earlier.get("reference_extents") == kernel.reading
    return found


def reading_of(kernel: ReferenceKernel, calibration: Mapping[str, Any]) -> dict[str, int]:
    """Return the extents that the readings of a calibration are of."""
    if "reference_extents" in calibration:
        return {index: int(extent) for index, extent in calibration["reference_extents"].items()}
    most = kernel.num_cores * _MOST_WAVES
    return kernel.point(min(int(calibration.get("reference_tiles", most)), most))


def recalibrate(measurer: Measurer, kernel: ReferenceKernel, earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Return an earlier, comparable calibration at today's speed: κ stays, the reference is read anew.

    Raises
    ------
    TuningError
        The reference kernel cannot be built or run here.
    """
    attach_reference(measurer, kernel)
    then = float(earlier["reference_secs"])
    measurer.base_secs = now = _reference_secs(measurer, then)
    kept = {"fmas_per_cycle": earlier["fmas_per_cycle"]} if "fmas_per_cycle" in earlier else {}
    return kept | {
        "kappa": float(earlier["kappa"]),
        "num_tiles": list(earlier["num_tiles"]),
        "tile_gflops": [gflops * then / now for gflops in earlier["tile_gflops"]],
        "reference_secs": now,
        "reference_extents": kernel.reading,
    }


def _reference_secs(measurer: Measurer, then: float) -> float:
    """Return the reference kernel's usual reading now.

    Where it is much slower than then it is read again for a few seconds, and the fastest counts; where the
    machine flickers, the median of many.
    """
    if measurer.flickers:
        return _median(lambda: [measurer.read_reference()])[0]
    now = measurer.usual_reference_secs
    for _ in range(_MAX_RESTS):
        if now <= _SLOWER * then:
            break
        time.sleep(_REST_SECS)  # something else may run: all of this workload's times are scaled by it
        measurer.reference_readings.clear()
        for _ in range(_NUM_READINGS):
            measurer.read_reference()
        now = min(now, measurer.usual_reference_secs)
    return now


def is_plausible(kappa: float, num_cores: int) -> bool:
    """Whether the cores ran side by side when κ was fitted, undisturbed by other work on the machine."""
    return num_cores == 1 or kappa >= _MIN_KAPPA


def attach_reference(
    measurer: Measurer, kernel: ReferenceKernel, calibration: Mapping[str, Any] | None = None
) -> str:
    """Build the reference kernel and let `measurer` read it beside every measurement; returns its path.

    Parameters
    ----------
    calibration : mapping, optional
        With its usual reading then, which all times are scaled to.
    """
    path = _build(measurer, kernel.request)
    point = kernel.reading if calibration is None else reading_of(kernel, calibration)
    measurer.reference = (reference_problem(), path, point)
    for _ in range(_NUM_READINGS):
        measurer.read_reference()
    measurer.base_secs = None if calibration is None else float(calibration["reference_secs"])
    return path


def _build(measurer: Measurer, request: BuildRequest) -> str:
    (built,) = measurer.build([request])
    if built.path is None:
        raise TuningError(f"the reference kernel does not build: {built.error}")
    return built.path


def fit_kappa(num_tiles: tuple[int, ...], secs: Sequence[float], num_cores: int) -> float:
    """Fit κ by non-negative least squares on ``t(n) = launch + w·((1 − κ)·n + κ·pad(n, P))``.

    This is the paper's Equation 4 with b = 1 − k (Equation 5), as time instead of throughput and with the
    launch, which would otherwise be taken for part of the tiles.

    Parameters
    ----------
    num_tiles, secs
        The sweep; both [num_points].
    """
    if num_cores == 1:
        return 1.0  # every grid is a full wave, and κ has no effect
    n = np.asarray(num_tiles, dtype=np.float64)
    padded = np.ceil(n / num_cores) * num_cores
    times = np.asarray(secs)
    regressors = np.column_stack([np.full_like(n, times.mean()), n * times.mean(), padded * times.mean()])
    _, free, waves = nonnegative(regressors / times[:, None], np.ones_like(times))
    return float(waves / (free + waves)) if free + waves > 0 else 1.0
