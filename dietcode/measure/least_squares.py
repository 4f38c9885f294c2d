"""Least squares whose coefficients are not negative: seconds as a sum of terms. Needs NumPy alone.

A GPU's machine chooses by it where nothing can be installed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
_TURNS = 10  # for each term, of terms taken in and given up; one or two are usual
_STRENGTH = 0.2  # of what is known beforehand, over one measured point that a term alone makes up
_NUM_REWEIGHTINGS = 3
_LEAST_SPREAD = 0.01
_TOLERATED = 2.25  # times the median error, by which a point may be slower than the fit and counts in full


def nonnegative(terms: FloatArray, values: FloatArray, begin: FloatArray | None = None) -> FloatArray:
    """Minimize ``|terms @ x - values|`` over x ≥ 0, by Lawson and Hanson's active sets.

    Parameters
    ----------
    terms : float64 array [num_points, num_terms]
    values : float64 array [num_points]
    begin : float64 array [num_terms], optional
        Where to begin, not negative: the fewer of its terms are zero here and not in the result, or the
        reverse, the fewer turns it takes. By default at zero.

    Returns
    -------
    float64 array [num_terms]

    >>> nonnegative(np.array([[1.0, 1.0], [1.0, 2.0]]), np.array([3.0, 2.0])).round(6).tolist()
    [2.5, 0.0]
    """
    num_terms = terms.shape[1]
    found = np.zeros(num_terms) if begin is None else begin
    used = found > 0
    least = 10 * np.finfo(np.float64).eps * max(terms.shape) * float(np.abs(terms).sum(axis=0).max())
    if used.any():
        found = _of_used(terms, values, found, used)
    for _ in range(_TURNS * num_terms):
        gain = np.where(used, -np.inf, terms.T @ (values - terms @ found))
        best = int(gain.argmax())
        if not gain[best] > least:
            break
        used[best] = True
        found = _of_used(terms, values, found, used)
    return found


def _of_used(
    terms: FloatArray, values: FloatArray, found: FloatArray, used: npt.NDArray[np.bool_]
) -> FloatArray:
    """Return the least squares of the used terms, of which those that would be negative are given up."""
    while used.any():
        trial = np.zeros_like(found)
        trial[used] = np.linalg.lstsq(terms[:, used], values, rcond=None)[0]
        wrong = used & (trial <= 0)
        if not wrong.any():
            return trial
        # As far towards the trial as no coefficient is negative; those that stop it are given up.
        way = found[wrong] / np.maximum(found[wrong] - trial[wrong], np.finfo(np.float64).tiny)
        found = np.maximum(found + way.min() * (trial - found), 0.0)
        used[np.flatnonzero(wrong)[way <= way.min()]] = False
        found[~used] = 0.0
    return found


def fit_terms(
    terms: FloatArray, secs: FloatArray, known: FloatArray | None = None, strength: float = 0.0
) -> tuple[FloatArray, float]:
    """Fit ``terms @ coefficients = secs`` by non-negative least squares on relative errors.

    Parameters
    ----------
    terms : float64 array [num_points, num_terms]
    secs : float64 array [num_points]
    known : float64 array [num_terms], optional
        What coefficients that the points leave open stay near.
    strength : float
        Of what is known, over one measured point that a term alone makes up.

    Returns
    -------
    coefficients : float64 array [num_terms]
    error : float
        Median relative error.
    """
    scale = np.maximum(np.abs(terms).max(axis=0), 1e-30)
    rows, wanted = terms / scale / secs[:, None], np.ones_like(secs)
    if known is not None:
        pull = strength * np.sqrt(np.mean(rows**2, axis=0))
        rows, wanted = np.vstack([rows, np.diag(pull)]), np.append(wanted, pull * known * scale)
    coefficients = nonnegative(rows, wanted) / scale
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
    relative = terms / secs[:, None]
    pull = _STRENGTH * np.sqrt(np.mean(relative**2, axis=0))
    num_points, num_terms = terms.shape
    rows, wanted = np.zeros((num_points + num_terms, num_terms)), np.empty(num_points + num_terms)
    np.fill_diagonal(rows[num_points:], pull)
    wanted[num_points:] = pull * known
    weights = np.ones_like(secs)
    coefficients = known
    for _ in range(1 + _NUM_REWEIGHTINGS):
        np.multiply(relative, weights[:, None], out=rows[:num_points])
        wanted[:num_points] = weights
        scale = np.maximum(np.abs(rows).max(axis=0), 1e-30)
        coefficients = nonnegative(rows / scale, wanted, coefficients * scale) / scale
        slower = 1.0 - relative @ coefficients
        off = median(np.abs(slower))
        allowed = _TOLERATED * max(_LEAST_SPREAD, off)
        before, weights = weights, np.sqrt(np.minimum(1.0, allowed / np.maximum(slower, 1e-30)))
        if np.array_equal(before, weights):  # it would be fitted again as it was
            break
    return coefficients, off


def median(values: FloatArray) -> float:
    """Return `numpy.median` of a few numbers, in a fifth of its time; NaN where one is."""
    ordered = np.sort(values)
    middle, is_odd = divmod(len(ordered), 2)
    if np.isnan(ordered[-1]):
        return float(ordered[-1])
    return float(ordered[middle] if is_odd else 0.5 * (ordered[middle - 1] + ordered[middle]))
