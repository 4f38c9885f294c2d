"""The order of additions that all categories of a reproducible library keep to."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def one_order(orders: Sequence[Hashable], throughput: FloatArray, weights: FloatArray) -> BoolArray:
    """Choose the order of additions that a reproducible library keeps to in all of its categories.

    Parameters
    ----------
    orders : sequence
        The order of additions of each micro-kernel.
    throughput : float64 [num_instances, num_micro_kernels]
        FLOP/s; 0 where it cannot serve the instance.
    weights : float64 [num_instances]
        Probabilities.

    Returns
    -------
    bool [num_micro_kernels]
        Micro-kernels of the order whose best have the highest weighted geometric mean, the first of equals.
    """
    masks = [np.asarray([other == order for other in orders], dtype=bool) for order in dict.fromkeys(orders)]
    best = np.stack([throughput[:, mask].max(axis=1) for mask in masks])
    with np.errstate(divide="ignore"):
        scores = np.where(best > 0, np.log(best), -1e9) @ weights
    return masks[int(scores.argmax())]
