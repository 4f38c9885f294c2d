"""Least squares whose coefficients are not negative: seconds as a sum of terms. Needs NumPy alone.

A GPU's machine chooses by it where nothing can be installed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
_TURNS = 10  # for each term, of terms taken in and given up; one or two are usual


def nonnegative(terms: FloatArray, values: FloatArray) -> FloatArray:
    """Minimize ``|terms @ x - values|`` over x ≥ 0, by Lawson and Hanson's active sets.

    Parameters
    ----------
    terms : float64 array [num_points, num_terms]
    values : float64 array [num_points]

    Returns
    -------
    float64 array [num_terms]

    >>> nonnegative(np.array([[1.0, 1.0], [1.0, 2.0]]), np.array([3.0, 2.0])).round(6).tolist()
    [2.5, 0.0]
    """
    num_terms = terms.shape[1]
    found, used = np.zeros(num_terms), np.zeros(num_terms, dtype=bool)
    least = 10 * np.finfo(np.float64).eps * max(terms.shape) * float(np.abs(terms).sum(axis=0).max())
    for _ in range(_TURNS * num_terms):
        gain = np.where(used, -np.inf, terms.T @ (values - terms @ found))
        best = int(gain.argmax())
        if not gain[best] > least:
            break
        used[best] = True
        while True:
            trial = np.zeros(num_terms)
            trial[used] = np.linalg.lstsq(terms[:, used], values, rcond=None)[0]
            wrong = used & (trial <= 0)
            if not wrong.any():
                found = trial
                break
            # As far towards the trial as no coefficient is negative; those that stop it are given up.
            way = found[wrong] / np.maximum(found[wrong] - trial[wrong], np.finfo(np.float64).tiny)
            found = np.maximum(found + way.min() * (trial - found), 0.0)
            used[np.flatnonzero(wrong)[way <= way.min()]] = False
            found[~used] = 0.0
            if not used.any():
                break
    return found


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
    scale = np.maximum(np.abs(terms).max(axis=0), 1e-30)
    coefficients = nonnegative(terms / scale / secs[:, None], np.ones_like(secs)) / scale
    return coefficients, float(np.median(np.abs(terms @ coefficients / secs - 1.0)))
