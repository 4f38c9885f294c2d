"""The covering of fewest bytes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dietcode.dispatcher import exact
from dietcode.dispatcher.exact import MAX_CELLS, minimal_cover
from dietcode.dispatcher.objective import Objective
from dietcode.dispatcher.select import select_categories


def brute_force(votes: np.ndarray, sizes: np.ndarray) -> int:
    """Bytes of the smallest covering, by trying all sets."""
    kernels = range(len(votes))
    sets = (chosen for count in range(1, len(votes) + 1) for chosen in combinations(kernels, count))
    return min(int(sizes[list(chosen)].sum()) for chosen in sets if votes[list(chosen)].any(axis=0).all())


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 7), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_no_covering_has_fewer_bytes(num_kernels: int, num_instances: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    votes = rng.random((num_kernels, num_instances)) < 0.4
    votes[rng.integers(num_kernels, size=num_instances), np.arange(num_instances)] = True
    sizes = rng.integers(1, 50, size=num_kernels)
    cover = minimal_cover(votes, sizes)
    assert cover is not None
    assert votes[list(cover)].any(axis=0).all()
    assert int(sizes[list(cover)].sum()) == brute_force(votes, sizes)


@pytest.mark.parametrize("few", [0, 1000])
def test_a_second_search_finds_the_same(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the better bounds of the divided covering; and where it gives up, nothing is called minimal."""
    monkeypatch.setattr(exact, "_FEW_NODES", few)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        votes = rng.random((9, 30)) < 0.3
        votes[rng.integers(9, size=30), np.arange(30)] = True
        sizes = rng.integers(1, 50, size=9)
        cover = minimal_cover(votes, sizes)
        assert cover is not None
        assert votes[list(cover)].any(axis=0).all()
        assert int(sizes[list(cover)].sum()) == brute_force(votes, sizes)
    monkeypatch.setattr(exact, "_FEW_NODES", 0)
    monkeypatch.setattr(exact, "_MANY_NODES", 0)
    assert minimal_cover(votes, sizes) is None


def test_greedy_is_beaten_where_it_must_be() -> None:
    """One covers four of six instances, two others three each: greedy takes three, the minimum is two."""
    votes = np.array([[1, 1, 0, 1, 1, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], dtype=bool)
    assert minimal_cover(votes, np.array([10, 10, 10])) == (1, 2)


def test_a_large_problem_is_left_to_the_greedy_covering() -> None:
    votes = np.random.default_rng(0).random((60, MAX_CELLS // 30)) < 0.5
    assert minimal_cover(votes, np.ones(60, dtype=np.int64)) is None


def test_the_curve_has_the_exact_coverings() -> None:
    votes = np.array([[1, 1, 0, 1, 1, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], dtype=float)
    throughput = np.where(votes.T > 0, 100.0, 50.0)
    objective = Objective(binary_size=0.5, max_loss=0.1)
    selection = select_categories(
        throughput, np.ones(6), np.full(6, 1 / 6), np.array([10, 10, 10]), objective
    )
    assert sorted(selection.chosen) == [1, 2]
    points = [point for point in selection.curve if point.origin in {"exact", "votes", "greedy"}]
    assert min(point.num_kernels for point in points if point.loss_worst <= 0.1) == 2
