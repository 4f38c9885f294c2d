"""Instances that predictions are judged at, drawn by a seed before any of them is measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def draw(
    work: npt.ArrayLike, allowed: Sequence[bool] | npt.NDArray[np.bool_], number: int, random_state: int
) -> list[int]:
    """Positions of some instances, evenly over the logarithm of the work, those of one cell at random.

    Parameters
    ----------
    work : [num_instances]
        FLOPs, or bytes.
    allowed : [num_instances]
        Whether an instance may be drawn.
    number : int
        Cells; those without an instance that is allowed give none.
    random_state : int
        The same state draws the same instances.
    """
    logs, rng = np.log(np.asarray(work, dtype=np.float64)), np.random.default_rng(random_state)
    bounds = np.linspace(logs.min(), logs.max(), number + 1)
    cells = np.clip(np.searchsorted(bounds, logs, side="right") - 1, 0, number - 1)
    may = np.asarray(allowed, dtype=bool)
    drawn = []
    for cell in range(number):
        (inside,) = np.nonzero((cells == cell) & may)
        if len(inside):
            drawn.append(int(rng.choice(inside)))
    return drawn
