"""Least squares of our own against SciPy's, and against what defines their solution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

from dietcode.measure.least_squares import fit_terms, fit_towards, nonnegative


@pytest.mark.parametrize("seed", range(8))
def test_it_is_as_small_as_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(100):
        points, count = int(rng.integers(2, 30)), int(rng.integers(1, 7))
        terms = rng.standard_normal((points, count)) * 10.0 ** rng.uniform(-3, 3, count)
        if count > 1 and seed % 2:
            terms[:, 1] = terms[:, 0] * rng.uniform(0.5, 2)  # one of both is enough
        values = terms @ np.maximum(rng.standard_normal(count), 0) + rng.standard_normal(points) * 1e-3
        found, (_, least) = nonnegative(terms, values), nnls(terms, values)
        assert (found >= 0).all()
        size = float(np.linalg.norm(values)) + 1e-9
        assert float(np.linalg.norm(terms @ found - values)) <= least + 1e-8 * size


@pytest.mark.parametrize("seed", range(4))
def test_where_it_begins_changes_no_bit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    zeros = 0
    for _ in range(100):
        points, count = int(rng.integers(8, 30)), int(rng.integers(1, 7))
        terms, values = rng.standard_normal((points, count)), rng.standard_normal(points)
        found = nonnegative(terms, values)
        zeros += int((found == 0).sum())
        for begin in (np.ones(count), np.maximum(rng.standard_normal(count), 0.0), found):
            before = begin.copy()
            assert nonnegative(terms, values, begin).tolist() == found.tolist()
            assert begin.tolist() == before.tolist()
    assert zeros > 50


def test_points_that_were_disturbed_count_less_and_what_is_known_stays_near() -> None:
    steps = np.arange(1.0, 13.0)
    terms = np.column_stack([np.ones(12), steps, np.zeros(12)])
    right = np.array([2e-6, 3e-7, 5e-8])
    secs = terms @ right
    secs[[3, 7]] *= 3.0
    coefficients, _ = fit_towards(terms, secs, right)
    assert coefficients[:2] == pytest.approx(right[:2], rel=0.05)
    assert coefficients[2] == 0.0  # no point has it


def test_terms_that_would_be_negative_are_left_out() -> None:
    steps = np.arange(1.0, 6.0)
    coefficients, error = fit_terms(np.column_stack([np.ones(5), steps]), 7.0 - 0.5 * steps)
    assert coefficients[1] == 0.0
    assert coefficients[0] > 0 and error < 0.3
    exact, none = fit_terms(np.column_stack([np.ones(5), steps]), 2e-6 + 3e-7 * steps)
    assert exact == pytest.approx([2e-6, 3e-7])
    assert none < 1e-9


def test_nothing_is_fitted_where_no_term_helps() -> None:
    assert nonnegative(np.array([[1.0], [2.0]]), np.array([-1.0, -2.0])).tolist() == [0.0]
