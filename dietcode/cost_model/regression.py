"""Measured points as f_local of every kind of device is fitted on them, by `least_squares`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dietcode.cost_model.model import Extents
from dietcode.errors import CandidateError
from dietcode.measure.least_squares import FloatArray
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.problem import AnyProblem


def measured(
    problem: AnyProblem,
    micro_kernel: AnyMicroKernel,
    points: Sequence[Mapping[str, int]],
    secs: Sequence[float],
) -> tuple[Extents, FloatArray]:
    """Return the extents of measured points, and their seconds.

    Parameters
    ----------
    points : sequence of mapping of str to int
        Extent of every index at each point.
    secs : sequence of float
        One for each point.

    Raises
    ------
    CandidateError
        There is no usable measurement.
    """
    times = np.asarray(secs, dtype=np.float64)
    known = all(set(p) == set(problem.extents) and min(p.values()) >= 1 for p in points)
    if not known or not len(times) == len(points) > 0 or not np.all(np.isfinite(times) & (times > 0)):
        raise CandidateError(f"{micro_kernel.name}: no usable measurement")
    return {k: np.asarray([p[k] for p in points], dtype=np.int64) for k in problem.extents}, times
