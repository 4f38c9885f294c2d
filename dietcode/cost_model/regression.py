"""The regression behind f_local on every kind of device: seconds of measured points as a sum of terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dietcode.cost_model.model import Extents, FloatArray
from dietcode.errors import CandidateError
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.problem import AnyProblem

_STRENGTH = 0.2  # of what is known beforehand, over one measured point that a term alone makes up
_NUM_REWEIGHTINGS = 3
_LEAST_SPREAD = 0.01
_TOLERATED = 2.25  # times the median error, by which a point may be slower than the fit and counts in full


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


def fit_terms(terms: FloatArray, secs: FloatArray) -> tuple[FloatArray, float]:
    """Fit ``terms @ coefficients = secs`` by non-negative least squares on relative errors.

    Parameters
    ----------
    terms : float64 array [num_points, num_terms]
    secs : float64 array [num_points]

    Returns
    -------
    coefficients : float64 array [num_terms]
    error : float
        Median relative error.
    """
    from scipy.optimize import nnls  # it takes half a second, and most processes fit nothing

    scale = np.maximum(np.abs(terms).max(axis=0), 1e-30)
    solution, _ = nnls(terms / scale / secs[:, None], np.ones_like(secs))
    coefficients = solution / scale
    return coefficients, float(np.median(np.abs(terms @ coefficients / secs - 1.0)))


def fit_towards(terms: FloatArray, secs: FloatArray, known: FloatArray) -> tuple[FloatArray, float]:
    """Fit as `fit_terms`, where a few points are to tell many terms and some were disturbed.

    Coefficients that the points leave open stay near `known`. Disturbances only ever add time, so that a
    point much slower than the fit counts less (iteratively reweighted, on that side alone).

    Parameters
    ----------
    terms : float64 array [num_points, num_terms]
    secs : float64 array [num_points]
    known : float64 array [num_terms]
        What other micro-kernels, or arithmetic, make them.

    Returns
    -------
    coefficients : float64 array [num_terms]
    error : float
        Median relative error.
    """
    from scipy.optimize import nnls  # it takes half a second, and most processes fit nothing

    relative = terms / secs[:, None]
    pull = _STRENGTH * np.sqrt(np.mean(relative**2, axis=0))
    weights = np.ones_like(secs)
    coefficients = known
    for _ in range(1 + _NUM_REWEIGHTINGS):
        rows = np.vstack([relative * weights[:, None], np.diag(pull)])
        scale = np.maximum(np.abs(rows).max(axis=0), 1e-30)
        solution, _ = nnls(rows / scale, np.concatenate([weights, pull * known]))
        coefficients = solution / scale
        slower = 1.0 - relative @ coefficients
        allowed = _TOLERATED * max(_LEAST_SPREAD, float(np.median(np.abs(slower))))
        weights = np.sqrt(np.minimum(1.0, allowed / np.maximum(slower, 1e-30)))
    return coefficients, float(np.median(np.abs(relative @ coefficients - 1.0)))
