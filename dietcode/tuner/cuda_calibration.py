"""The sweep of a GPU that κ is fitted on: up to four waves of one micro-kernel (paper, Figure 13)."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import Any

import numpy as np

from dietcode.errors import TuningError
from dietcode.measure.calibration import reference_problem
from dietcode.measure.children import Children
from dietcode.measure.gpu import Gpu
from dietcode.measure.gpu_worker import KernelCall
from dietcode.measure.requests import CheckRequest, TimeRequest, TimeResult
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.space import hardware_seeds
from dietcode.search_space.problem import Problem
from dietcode.target.cuda import CudaTarget
from dietcode.tuner.cuda_trials import MIN_SECS, READINGS, build_request

_COLUMN_TILES = 4
_STEPS = 256
_NUM_POINTS, _MIN_ROW_TILES = 24, 8
_WAVES = 4
_TIMEOUT_SECS = 300.0


def calibrate_gpu(gpu: Gpu, target: CudaTarget, children: Children) -> dict[str, Any]:
    """The line of records that κ is fitted on.

    What is multiplied is the same for all workloads: κ is the device's.

    Raises
    ------
    TuningError
        The sweep does not run.
    """
    tile = hardware_seeds(_problem(1), CudaLimits.of(target))[0].tile
    problem = _problem(_COLUMN_TILES * tile.columns)
    first = {"m": tile.rows, "n": _COLUMN_TILES * tile.columns, "k": _STEPS}
    with tempfile.TemporaryDirectory(prefix="dietcode-") as folder:
        (built,) = children.build([build_request(problem, tile, target, folder)])
        if built.path is None:
            raise TuningError(f"the sweep of the device: {tile.name}: {built.error}")
        asked = TimeRequest(problem, built.path, KernelCall(tile), (), (), MIN_SECS, READINGS)
        wave = gpu.num_sms * int(_time(children, asked).facts["resident_blocks"])
        most = max(_MIN_ROW_TILES, -(-_WAVES * wave // _COLUMN_TILES))
        row_tiles = np.unique(np.linspace(1, most, _NUM_POINTS).round().astype(int))
        points = tuple(first | {"m": int(count) * tile.rows} for count in row_tiles)
        check = CheckRequest(problem, built.path, KernelCall(tile), points[:1])
        _refuse(children.check(check, _TIMEOUT_SECS).error)
        found = _time(children, replace(asked, points=points))
    return {
        "kind": "calibration",
        "micro_kernel": tile.name,
        "wave_blocks": wave,
        "num_blocks": [int(count) * _COLUMN_TILES for count in row_tiles],
        "secs": list(found.secs),
    }


def _problem(columns: int) -> Problem:
    """``Y[m, n] = X[m, k] · W[n, k]ᵀ`` in float32, of any number of rows."""
    extents = {"m": None, "n": columns, "k": _STEPS}
    return replace(reference_problem(), extents=extents, column_operand_constant=False)


def _time(children: Children, request: TimeRequest) -> TimeResult:
    found = children.time(request, _TIMEOUT_SECS)
    _refuse(found.error)
    return found


def _refuse(error: str | None) -> None:
    if error is not None:
        raise TuningError(f"the sweep of the device does not run: {error}")
