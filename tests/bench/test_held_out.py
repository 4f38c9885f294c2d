"""Held-out instances: drawn by a seed, over all of the range, and none that is not allowed."""

from __future__ import annotations

import numpy as np

from benchmarks.held_out import draw


def test_instances_are_drawn_over_the_range_and_by_the_seed() -> None:
    work = np.arange(1, 129) ** 2.0
    allowed = np.ones(128, dtype=bool)
    allowed[[0, 10, 37, 127]] = False
    drawn = draw(work, allowed, 16, 0)
    assert drawn == draw(work, allowed, 16, 0) != draw(work, allowed, 16, 1)
    assert len(set(drawn)) == len(drawn) and allowed[drawn].all()
    logs = np.log(work[drawn])
    assert logs.min() < 1.5 and logs.max() > np.log(work[-1]) - 1.0, "small ones and large ones"


def test_nothing_is_drawn_where_nothing_is_allowed() -> None:
    assert draw([1.0, 2.0], [False, False], 4, 0) == []
    assert draw([5.0, 5.0, 5.0], [False, True, False], 4, 0) == [1], "one amount of work is one cell"
