"""What is measured once for a device: κ of f_spatial, and the reference kernel's reading.

The sweep runs a kernel with one row of 1…4P tiles, so that only the number of tiles changes (the paper's
Figure 13, with cores in the place of SMs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dietcode.errors import TuningError
from dietcode.measure.measurer import Measurer
from dietcode.search_space.problem import Problem

_REDUCTION = 2048
_SWEEP_WAVES = 4
_REFERENCE_WAVES = 8


@dataclass(frozen=True)
class Calibration:
    """Device facts.

    Attributes
    ----------
    kappa : float
        κ of ``f_spatial = 1 / (κ·x + 1 − κ)``, x = pad(n, P)/n (paper, Equations 4 and 5, as a ratio of time).
    num_tiles : tuple of int
        The sweep, 1…4P.
    tile_gflops : tuple of float
        Throughput at each of them.
    reference_secs : float
        Undisturbed reading of the reference kernel.
    """

    kappa: float
    num_tiles: tuple[int, ...]
    tile_gflops: tuple[float, ...]
    reference_secs: float

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kappa": self.kappa,
            "num_tiles": list(self.num_tiles),
            "tile_gflops": list(self.tile_gflops),
            "reference_secs": self.reference_secs,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Calibration:
        """The inverse of `to_json`."""
        return cls(
            float(data["kappa"]),
            tuple(int(n) for n in data["num_tiles"]),
            tuple(float(g) for g in data["tile_gflops"]),
            float(data["reference_secs"]),
        )


def reference_problem() -> Problem:
    """``Y[m, n] = Σ X[m, k] · W[n, k]`` with dynamic m and n."""
    return Problem(
        row_operand="X",
        column_operand="W",
        output="Y",
        subscripts={"X": "mk", "W": "nk", "Y": "mn"},
        batch=(),
        rows=("m",),
        columns=("n",),
        reduction=("k",),
        extents={"m": None, "n": None, "k": _REDUCTION},
        stages=(),
        column_operand_constant=True,
    )


def calibrate(measurer: Measurer) -> Calibration:
    """Build the reference kernel, set it beside every later measurement, and fit κ.

    Raises
    ------
    TuningError
        The reference kernel cannot be built or run here.
    """
    path, calibration = attach_reference(measurer)
    problem, tile = reference_problem(), measurer.limits.narrow_tile()
    num_cores = measurer.target.num_cores
    counts = tuple(range(1, _SWEEP_WAVES * num_cores + 1))
    points = [{"m": tile.rows, "n": n * tile.columns, "k": _REDUCTION} for n in counts]
    secs = measurer.time_problem(problem, path, points)
    if isinstance(secs, str):
        raise TuningError(f"the calibration kernel failed on this machine: {secs}")
    flops = 2.0 * tile.rows * tile.columns * _REDUCTION
    gflops = tuple(float(n * flops / s / 1e9) for n, s in zip(counts, secs, strict=True))
    return Calibration(fit_kappa(counts, secs, num_cores), counts, gflops, calibration)


def attach_reference(measurer: Measurer) -> tuple[str, float]:
    """Build the reference kernel and let `measurer` read it; returns its path and its best reading, in seconds."""
    problem, tile = reference_problem(), measurer.limits.narrow_tile()
    (built,) = measurer.build([measurer.build_request([tile], "reference", problem)])
    if built.path is None:
        raise TuningError(f"the calibration kernel does not build for {measurer.target.mcpu}: {built.error}")
    columns = tile.columns * measurer.target.num_cores * _REFERENCE_WAVES
    measurer.reference = (problem, built.path, {"m": tile.rows, "n": columns, "k": _REDUCTION})
    best = min(measurer.read_reference() for _ in range(5))
    return built.path, best


def fit_kappa(num_tiles: tuple[int, ...], secs: list[float], num_cores: int) -> float:
    """Least squares for κ in ``time per tile = (κ·x + 1 − κ) · time per tile at full waves``.

    Parameters
    ----------
    num_tiles, secs
        The sweep; both [num_points].
    """
    n = np.asarray(num_tiles, dtype=np.float64)
    x = np.ceil(n / num_cores) * num_cores / n
    per_tile = np.asarray(secs) / n
    full = float(np.median(per_tile[x == 1.0]))
    partial = x > 1.0
    if not partial.any():
        return 1.0  # one core: every grid is a full wave, and κ has no effect
    excess = x[partial] - 1.0
    return float(np.clip(np.sum(excess * (per_tile[partial] / full - 1.0)) / np.sum(excess**2), 0.0, 1.5))
