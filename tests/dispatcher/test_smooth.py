"""Smoothing: fewer runs, never more than the tolerance."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dietcode.dispatcher.select import smooth_assignment


def num_runs(assignment):
    return 1 + int((np.diff(assignment) != 0).sum())


def test_a_run_swallows_a_near_tie():
    cost = np.array([[10.0, 5], [9.99, 10], [10, 5], [5, 10]])
    smoothed = smooth_assignment(cost, np.arange(4)[:, None], cost.argmax(axis=1))
    assert smoothed.tolist() == [0, 0, 0, 1]


def test_the_tolerance_is_a_strict_bound():
    cost = np.array([[10.0, 5], [9.9, 10], [10, 5]])
    points = np.arange(3)[:, None]
    assert smooth_assignment(cost, points, [0, 1, 0], tolerance=0.01).tolist() == [0, 1, 0]
    assert smooth_assignment(cost, points, [0, 1, 0], tolerance=0.011).tolist() == [0, 0, 0]


def test_the_order_is_that_of_the_bindings_not_of_the_rows():
    cost = np.array([[10.0, 5], [9.99, 10], [10, 5]])
    # In the order of the bindings: row 0, row 2, row 1; the near tie is last, and joins.
    assert smooth_assignment(cost, [[1, 9], [2, 5], [1, 10]], [0, 1, 0]).tolist() == [0, 0, 0]
    tied = np.full((3, 2), 4.0)
    assert smooth_assignment(tied, [[3], [1], [2]], [1, 1, 1], tolerance=0).tolist() == [1, 1, 1]


def test_unservable_categories_are_not_used():
    cost = np.array([[10.0, np.nan], [np.nan, 10.0], [10.0, 0.0]])
    assert smooth_assignment(cost, [[1], [2], [3]], [0, 1, 0], tolerance=1.0).tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="served by no category"):
        smooth_assignment([[np.nan, 0.0]], [[1]], [0])


def test_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="same instances"):
        smooth_assignment(np.ones((3, 2)), np.ones((2, 1)), np.zeros(3))
    assert smooth_assignment(np.ones((0, 2)), np.ones((0, 1)), np.zeros(0)).tolist() == []


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 3), st.sampled_from([0.0, 0.05, 0.3]))
def test_fewest_runs_within_tolerance(seed, count, num_categories, tolerance):
    rng = np.random.default_rng(seed)
    cost = rng.choice([0.75, 0.8, 0.96, 1.0], (count, num_categories))
    best = cost.max(axis=1)
    points = rng.permutation(count)[:, None]
    order = np.argsort(points[:, 0])
    smoothed = smooth_assignment(cost, points, cost.argmax(axis=1), tolerance)
    loss = 1 - cost / best[:, None]
    allowed = (loss < tolerance) | (loss == 0)
    rows = np.arange(count)
    assert allowed[rows, smoothed].all()
    best_runs = min(
        num_runs(np.array(way)[order])
        for way in product(range(num_categories), repeat=count)
        if allowed[rows, list(way)].all()
    )
    assert num_runs(smoothed[order]) == best_runs
