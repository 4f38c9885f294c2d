"""The sweep of a GPU that κ is fitted on: up to four waves of one micro-kernel (paper, Figure 13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dietcode.measure.calibration import reference_problem
from dietcode.measure.requests import Point, TimeResult
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.space import hardware_seeds
from dietcode.search_space.problem import Problem
from dietcode.target.cuda import CudaTarget

_COLUMN_TILES = 4
_STEPS = 256
_NUM_POINTS, _MIN_ROW_TILES = 24, 8
_WAVES = 4

TimeSweep = Callable[[Problem, CudaMicroKernel, list[dict[str, int]], Point], TimeResult]
"""Times a micro-kernel at points, none for its facts alone, once it was checked at another point."""


def calibrate_gpu(target: CudaTarget, num_sms: int, operand_dtype: str, time: TimeSweep) -> dict[str, Any]:
    """Return the calibration line of the unit that multiplies operands of a dtype.

    The problem is the same for all workloads of the dtype: κ belongs to the unit of this device.

    Parameters
    ----------
    num_sms : int
        Multiprocessors of the device.
    time : callable
        As `TimeSweep`.

    Raises
    ------
    TuningError
        The sweep does not run.
    """
    tile = swept_micro_kernel(target, operand_dtype)
    problem = _problem(_COLUMN_TILES * tile.columns, operand_dtype)
    first = {"m": tile.rows, "n": _COLUMN_TILES * tile.columns, "k": _STEPS}
    wave = num_sms * int(time(problem, tile, [], first).facts["resident_blocks"])
    most = max(_MIN_ROW_TILES, -(-_WAVES * wave // _COLUMN_TILES))
    row_tiles = np.unique(np.linspace(1, most, _NUM_POINTS).round().astype(int))
    found = time(problem, tile, [first | {"m": int(count) * tile.rows} for count in row_tiles], first)
    return {
        "micro_kernel": tile.name,
        "unit": tile.unit,
        "block_flops": 2 * tile.rows * tile.columns * _STEPS,
        "wave_blocks": wave,
        "num_blocks": [int(count) * _COLUMN_TILES for count in row_tiles],
        "secs": list(found.secs),
    }


def swept_micro_kernel(target: CudaTarget, operand_dtype: str) -> CudaMicroKernel:
    """Return the micro-kernel whose sweep κ of a dtype is fitted on: the first of the hardware's seeds."""
    return hardware_seeds(_problem(1, operand_dtype), CudaLimits.of(target))[0].micro_kernel


def _problem(columns: int, operand_dtype: str) -> Problem:
    """``Y[m, n] = X[m, k] · W[n, k]ᵀ``, of any number of rows."""
    extents = {"m": None, "n": columns, "k": _STEPS}
    return replace(
        reference_problem(), extents=extents, column_operand_constant=False, operand_dtype=operand_dtype
    )
