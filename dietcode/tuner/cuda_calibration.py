"""The sweep of a GPU that κ is fitted on: up to four waves of one micro-kernel (paper, Figure 13)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dietcode.errors import TuningError
from dietcode.measure.calibration import reference_problem
from dietcode.measure.gpu import Gpu
from dietcode.measure.gpu_children import GpuChildren
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.source import cuda_text
from dietcode.search_space.cuda.space import hardware_seeds
from dietcode.search_space.problem import Problem
from dietcode.target.cuda import CudaTarget
from dietcode.tuner.cuda_trials import build, request_of

_COLUMN_TILES = 4
_STEPS = 256
_NUM_POINTS, _MIN_ROW_TILES = 24, 8
_WAVES = 4
_TIMEOUT_SECS = 300.0


def calibrate_gpu(gpu: Gpu, target: CudaTarget, children: GpuChildren) -> dict[str, Any]:
    """The line of records that κ is fitted on.

    What is multiplied is the same for all workloads: κ is the device's.

    Raises
    ------
    TuningError
        The sweep does not run.
    """
    tile = hardware_seeds(_problem(1), CudaLimits.of(target))[0].tile
    problem = _problem(_COLUMN_TILES * tile.columns)
    built = build(problem, tile, cuda_text(problem, [tile], target), target)
    if built.error is not None:
        raise TuningError(f"the sweep of the device: {tile.name}: {built.error}")
    extents = {"m": tile.rows, "n": _COLUMN_TILES * tile.columns, "k": _STEPS}
    facts = _run(children, request_of(problem, tile, built.cubin, [extents], is_timed=False))
    wave = gpu.num_sms * int(facts["resident_blocks"])
    most = max(_MIN_ROW_TILES, -(-_WAVES * wave // _COLUMN_TILES))
    row_tiles = np.unique(np.linspace(1, most, _NUM_POINTS).round().astype(int))
    points = [extents | {"m": int(count) * tile.rows} for count in row_tiles]
    checked = float(problem.flops(points[0]))
    request = request_of(
        problem, tile, built.cubin, points, keeps=False, max_checked_flops=checked, samples=False
    )
    found = _run(children, request)
    return {
        "kind": "calibration",
        "micro_kernel": tile.name,
        "wave_blocks": wave,
        "num_blocks": [int(count) * _COLUMN_TILES for count in row_tiles],
        "secs": found["secs"],
    }


def _problem(columns: int) -> Problem:
    """``Y[m, n] = X[m, k] · W[n, k]ᵀ`` in float32, of any number of rows."""
    extents = {"m": None, "n": columns, "k": _STEPS}
    return replace(reference_problem(), extents=extents, column_operand_constant=False)


def _run(children: GpuChildren, request: dict[str, Any]) -> dict[str, Any]:
    found = children.run("measure_kernel", request, _TIMEOUT_SECS)
    if isinstance(found, str):
        raise TuningError(f"the sweep of the device does not run: {found}")
    return found
