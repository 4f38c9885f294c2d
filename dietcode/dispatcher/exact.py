"""The minimal covering set, exactly, as an integer program."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dietcode.dispatcher.problem import IntArray

MAX_CELLS = 20_000
"""Above this many (micro-kernel, distinct set of voters) pairs the greedy covering has to do."""


def minimal_cover(votes: NDArray[np.bool_], size_bytes: IntArray) -> tuple[int, ...] | None:
    """Return the set of fewest bytes in which every instance has a micro-kernel that it votes for.

    ``min Σ s_j x_j`` subject to ``Σ_{j: i votes for j} x_j ≥ 1`` for each instance i, x binary; solved by
    HiGHS (branch and bound). Instances with the same votes are one constraint, and a constraint that contains
    another's votes follows from it.

    Parameters
    ----------
    votes : bool [num_micro_kernels, num_instances]
        Every instance votes for at least one.
    size_bytes : int64 [num_micro_kernels]
        At least 0, which counts as 1.

    Returns
    -------
    tuple of int or None
        Micro-kernels, ascending; None where the problem is larger than `MAX_CELLS`.

    >>> votes = np.array([[True, True, False], [False, True, True], [True, False, True]])
    >>> minimal_cover(votes, np.array([5, 5, 7]))
    (0, 1)
    """
    bits = np.ascontiguousarray(np.packbits(votes, axis=0).T)
    keys = bits.view(np.dtype((np.void, bits.shape[1]))).reshape(-1)
    distinct = votes.T[np.unique(keys, return_index=True)[1]]
    if distinct.size > MAX_CELLS:
        return None
    rows = _needed(distinct)
    from scipy.optimize import Bounds, LinearConstraint, milp

    num_kernels = votes.shape[0]
    result = milp(
        np.maximum(size_bytes, 1).astype(np.float64),
        constraints=LinearConstraint(rows.astype(np.float64), lb=1.0),
        integrality=np.ones(num_kernels),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0.0, "node_limit": 1000},
    )
    if result.x is None or result.status != 0:  # the limit was reached: not proven to be minimal
        return None
    return tuple(int(micro_kernel) for micro_kernel in np.flatnonzero(result.x > 0.5))


def _needed(rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return distinct voter sets without those that contain another; [num_sets, num_micro_kernels]."""
    ordered = rows[np.argsort(rows.sum(axis=1), kind="stable")]
    kept = ordered[:1]
    for row in ordered[1:]:
        if not (kept <= row).all(axis=1).any():
            kept = np.append(kept, row[None], axis=0)
    return kept
