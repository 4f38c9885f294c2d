"""A weighted list too long to keep, cut to fewer rows that stand for all of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def thin(
    rows: NDArray[np.int64], weights: NDArray[np.float64], limit: int, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Draw `limit` rows, and weigh each by its weight over its chance of having been drawn.

    Half of the chance grows with the weight, so that heavy rows are always kept and keep their weights; the
    other half is alike for all, so that light ones are drawn too. Rows at the ends of a column are kept. Rows
    are drawn at even distances along the lexicographic order. Weighted means over the drawn rows estimate
    those over all (Horvitz and Thompson's estimator).

    Parameters
    ----------
    rows : int64 [num_rows, num_columns]
        Distinct.
    weights : float64 [num_rows]
        At least 0, of positive sum.
    limit : int
        Most rows returned, at least 2.
    seed : int
        The same seed gives the same rows.

    Returns
    -------
    indices : int64 [min(num_rows, limit)]
        Ascending.
    weights : float64 [min(num_rows, limit)]
    """
    if len(rows) <= limit:
        return np.arange(len(rows)), weights
    share = (weights / weights.sum() + 1 / len(rows)) / 2
    chance, sure = _chances(share, _ends(rows, limit), limit)
    order = np.lexsort(rows.T[::-1])
    order = order[~sure[order]]
    sampled = np.floor(np.cumsum(chance[order]) + np.random.default_rng(seed).random()).astype(np.int64)
    drawn = order[np.diff(sampled, prepend=0) > 0][: limit - int(sure.sum())]
    indices = np.sort(np.concatenate([np.flatnonzero(sure), drawn]))
    return indices, weights[indices] / chance[indices]


def _ends(rows: NDArray[np.int64], limit: int) -> NDArray[np.bool_]:
    """Mark a row with the least and one with the largest value of each column; bool [num_rows]."""
    ends = [int(row) for column in rows.T for row in (column.argmax(), column.argmin())]
    marked = np.zeros(len(rows), dtype=bool)
    marked[list(dict.fromkeys(ends))[: limit - 1]] = True
    return marked


def _chances(
    share: NDArray[np.float64], sure: NDArray[np.bool_], limit: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return chances in proportion to `share` that sum to `limit`, none above 1; and which are 1."""
    while True:
        scale = (limit - int(sure.sum())) / share[~sure].sum()
        chance = np.where(sure, 1.0, share * scale)
        certain = ~sure & (chance >= 1.0)
        if not certain.any():
            return chance, sure
        sure = sure | certain
