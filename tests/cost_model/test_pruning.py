"""Early pruning by the first wave."""

from __future__ import annotations

import numpy as np
from fake_device import LIMITS, dense, extents_of, secs

from dietcode.cost_model.pruning import MARGIN, Pruning
from dietcode.search_space.limits import MicroKernel

PROBE = {"m": 168, "n": 512, "k": 256}  # whole tiles of every height used here


def pruning(rows: list[int]) -> Pruning:
    problem = dense()
    return Pruning(problem, LIMITS, 1.0, extents_of(problem, rows))


def times(kernel: MicroKernel, slower: float = 1.0) -> float:
    return secs(dense(), kernel, PROBE, lambda _: slower)


def test_the_cost_is_f_local_times_f_spatial_times_f_pad() -> None:
    some = pruning([14, 15])
    cost = some.cost(MicroKernel(14, 32), PROBE, 1e-3)
    f_local = 2.0 * 168 * 512 * 256 / 1e-3
    np.testing.assert_allclose(cost, [f_local, f_local * 15 / 28])


def test_a_slow_tile_is_given_up_and_one_within_the_margin_is_not() -> None:
    some, good, other = pruning([168, 336]), MicroKernel(14, 32), MicroKernel(12, 32)
    some.note(some.cost(good, PROBE, times(good)))
    assert some.is_hopeless(some.cost(other, PROBE, times(other, 1.0 + 2 * MARGIN)))
    assert not some.is_hopeless(some.cost(other, PROBE, times(other, 1.0 + MARGIN / 3)))


def test_a_slow_tile_that_pads_less_somewhere_is_kept() -> None:
    good, small = MicroKernel(14, 32), MicroKernel(2, 32)
    slow = times(small, 1.5)
    for rows, hopeless in (([168], True), ([2, 168], False)):
        some = pruning(rows)
        some.note(some.cost(good, PROBE, times(good)))
        assert some.is_hopeless(some.cost(small, PROBE, slow)) is hopeless


def test_the_first_one_is_never_hopeless() -> None:
    some = pruning([1, 168])
    assert not some.is_hopeless(some.cost(MicroKernel(1, 16), PROBE, 1.0))
