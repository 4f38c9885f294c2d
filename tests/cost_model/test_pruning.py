"""Early pruning by the first wave."""

from __future__ import annotations

import numpy as np
import pytest
from fake_device import dense, device, extents_of, secs

from dietcode.cost_model.model import FloatArray
from dietcode.cost_model.pruning import MARGIN, Pruning
from dietcode.search_space.cpu.limits import MicroKernel

PROBE = {"m": 168, "n": 512, "k": 256}  # whole tiles of every height used here


def pruning(rows: list[int]) -> Pruning:
    problem = dense()
    return Pruning(problem, device(), extents_of(problem, rows))


def times(kernel: MicroKernel, slower: float = 1.0) -> float:
    return secs(dense(), kernel, PROBE, lambda _: slower)


def reached(some: Pruning, kernel: MicroKernel, time: float) -> FloatArray:
    return some.reached(kernel, [PROBE], [time])


def flops(rows: int) -> float:
    return 2.0 * rows * 512 * 256


def test_a_wave_is_held_against_its_estimate() -> None:
    kernel, rows = MicroKernel(14, 32), [14, 15, 168]
    _, estimate = device().features(dense(), kernel, extents_of(dense(), rows))
    found = reached(pruning(rows), kernel, 3.0 * estimate[2])
    np.testing.assert_allclose(found, [flops(m) / secs / 3.0 for m, secs in zip(rows, estimate, strict=True)])
    assert found[1] < found[0] < found[2], "fifteen rows are two tiles, and few tiles pay for the launch"


def test_between_waves_the_ratio_is_interpolated_over_the_work() -> None:
    some, kernel = pruning([14, 28, 56, 112]), MicroKernel(14, 32)
    _, estimate = device().features(dense(), kernel, extents_of(dense(), [14, 56]))
    points = [{"m": 56, "n": 512, "k": 256}, {"m": 14, "n": 512, "k": 256}]
    found = some.reached(kernel, points, [estimate[1], 4.0 * estimate[0]])
    _, at = device().features(dense(), kernel, some.extents)
    ratios = [flops(m) / secs / value for m, secs, value in zip([14, 28, 56, 112], at, found, strict=True)]
    assert ratios == pytest.approx([4.0, 2.0, 1.0, 1.0])


def test_a_slow_tile_is_given_up_and_one_within_the_margin_is_not() -> None:
    some, good, other = pruning([168, 336]), MicroKernel(14, 32), MicroKernel(12, 32)
    some.note(reached(some, good, times(good)))
    assert some.is_hopeless(reached(some, other, times(other, 1.0 + 2 * MARGIN)))
    assert not some.is_hopeless(reached(some, other, times(other, 1.0 + MARGIN / 3)))


def test_a_slow_tile_that_pads_less_somewhere_is_kept() -> None:
    good, small = MicroKernel(14, 32), MicroKernel(2, 32)
    slow = times(small, 1.5)
    for rows, hopeless in (([168], True), ([2, 168], False)):
        some = pruning(rows)
        some.note(reached(some, good, times(good)))
        assert some.is_hopeless(reached(some, small, slow)) is hopeless


def test_one_that_was_measured_whole_is_known_to_be_slow_on_little_work() -> None:
    """A candidate is not held against what a wave promises, but against what was found."""
    some, good, small = pruning([2]), MicroKernel(14, 32, "partition"), MicroKernel(2, 32)
    waves = [PROBE, {"m": 2, "n": 512, "k": 256}]
    promised = reached(some, good, times(good))[0]
    some.note(some.reached(good, waves, [times(good), 8.0 * flops(2) / promised]))
    assert not some.is_hopeless(reached(some, small, times(small, 1.5)))


def test_the_first_one_is_never_hopeless() -> None:
    some = pruning([1, 168])
    assert not some.is_hopeless(reached(some, MicroKernel(1, 16), 1.0))
