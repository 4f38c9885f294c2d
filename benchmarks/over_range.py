"""What a mean over a workload's whole range is, from the shapes that were measured.

A mean counts every instance of the workload by its weight in the spec, by default all alike. Between measured
shapes of one variable figures are interpolated, linearly over its logarithm; of several variables an instance
has the figure of the measured shape that is nearest in the logarithms. So each measured shape has a share of
the mean.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.facts import ROOT
from dietcode.measure.disturbance import undisturbed_of
from dietcode.workload.instances import make_instances
from dietcode.workload.parse import load_spec

Row = dict[str, Any]
HOW = (
    "Means are over all instances of the workload's range, each by its weight in the spec (here all alike); "
    "between measured shapes they are interpolated, linearly over the logarithm of the size, and where two "
    "sizes vary an instance counts as the nearest shape that was measured."
)


def shares(workload: str, shapes: Sequence[Mapping[str, int]]) -> NDArray[np.float64]:
    """Return the share of each measured shape in a mean over the range of a workload.

    Parameters
    ----------
    workload : str
        A spec of ``examples``.
    shapes : sequence of mapping of str to int
        Values of its shape variables, in any order, each once.

    Returns
    -------
    float64 array [num_shapes]
        They add up to 1.
    """
    names, instances, weights = _instances(workload)
    known = np.log([[shape[name] for name in names] for shape in shapes])
    if len(names) > 1:
        distances = np.linalg.norm(instances[:, None] - known[None], axis=2)
        return np.bincount(distances.argmin(1), weights, len(known))
    order = np.argsort(known[:, 0])
    each = np.eye(len(known))[:, order]  # of which shape each column is
    return np.array([weights @ np.interp(instances[:, 0], known[order, 0], column) for column in each])


def calm(row: Row) -> list[Row]:
    """Return the shapes of a result that nothing disturbed."""
    return undisturbed_of(row["instances"], lambda one: one.get("disturbed"))


def mean(row: Row, figure: Callable[[Row], float]) -> float:
    """Return the mean of a figure over the range of a result's workload, from its undisturbed shapes."""
    shapes = calm(row)
    of_each = shares(row["workload"], [one["shape_vars"] for one in shapes])
    return float(of_each @ list(map(figure, shapes)))


def geomean(row: Row, figure: Callable[[Row], float]) -> float:
    """Return the geometric mean of a figure in the same way."""
    return math.exp(mean(row, lambda one: math.log(figure(one))))


@functools.cache
def _instances(workload: str) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.float64]]:
    found = make_instances(load_spec(ROOT / "examples" / f"{workload}.yaml"))
    return found.variables, np.log(found.bindings), found.weights
