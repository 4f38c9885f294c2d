"""Longer runs of one category, so that the rule stays short."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dietcode.dispatcher.problem import FloatArray, IntArray


def smooth_assignment(
    throughput_chosen: ArrayLike, bindings: ArrayLike, assignment: ArrayLike, tolerance: float = 0.005
) -> IntArray:
    """Reassign instances that lose almost nothing by following their neighbours.

    Among all assignments in which no instance loses `tolerance` or more against its best category, the one
    with the fewest runs along the lexicographic order of `bindings`, and of those the smallest total loss. An
    instance is always allowed its best category.

    Parameters
    ----------
    throughput_chosen : float64 [num_instances, num_categories]
        Predicted FLOP/s, or any measure where higher is better; 0, negative, non-finite: cannot serve.
    bindings : int64 [num_instances, num_variables]
        Values of the shape variables; the first is the slowest in the order.
    assignment : int64 [num_instances]
        The category of each instance; preferred among equals.
    tolerance : float
        A fraction of the instance's best throughput.

    Returns
    -------
    int64 [num_instances]
        In the order of the arguments.

    Raises
    ------
    ValueError
        Arrays that do not fit together, or an instance that no category serves.
    """
    cost = np.asarray(throughput_chosen, dtype=np.float64)
    points, given = np.asarray(bindings, dtype=np.int64), np.asarray(assignment, dtype=np.int64)
    if cost.ndim != 2 or points.ndim != 2 or len(points) != len(cost) or given.shape != (len(cost),):
        raise ValueError(
            f"shapes {cost.shape}, {points.shape}, {given.shape} do not describe the same instances"
        )
    if not len(cost):
        return given.copy()
    cost = np.where(np.isfinite(cost) & (cost > 0), cost, 0.0)
    best = cost.max(axis=1, keepdims=True)
    if (best <= 0).any():
        raise ValueError("an instance is served by no category; select categories that serve every instance")
    order = np.lexsort(points.T[::-1])
    loss = (1.0 - cost / best)[order]
    price = np.where((loss < tolerance) | (loss == 0), loss, np.inf)
    price[np.arange(len(price)), given[order]] -= 1e-9
    smoothed = np.empty_like(given)
    smoothed[order] = _fewest_runs(price)
    return smoothed


def _fewest_runs(price: FloatArray) -> IntArray:
    """Minimise switches, then the price float64 [num_points, num_categories], by dynamic programming."""
    num_points, num_categories = price.shape
    switch = 1.0 + float(np.where(np.isfinite(price), np.abs(price), 0.0).max(axis=1).sum())
    came_from = np.empty(price.shape, dtype=np.int64)
    own = np.arange(num_categories)
    total = price[0]
    for step in range(1, num_points):
        leader = int(total.argmin())
        stays = total <= total[leader] + switch
        came_from[step] = np.where(stays, own, leader)
        total = price[step] + np.where(stays, total, total[leader] + switch)
    path = np.empty(num_points, dtype=np.int64)
    path[-1] = int(total.argmin())
    for step in range(num_points - 1, 0, -1):
        path[step - 1] = came_from[step, path[step]]
    return path
