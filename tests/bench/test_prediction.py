"""Predictions are compared with the medians of readings, as many as a machine's noise asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks import prediction
from benchmarks.facts import median_interval

DRAWN = {
    "workload": "made up",
    "held_out": "not measured in tuning",
    "random_state": 0,
    "instances": [
        {"shape_vars": {"T": 1}, "micro_kernel": "1x16", "flops": 1e6, "predicted": 1.0},
        {"shape_vars": {"T": 2}, "micro_kernel": "1x16", "flops": 2e6, "predicted": 1.1},
    ],
}


class Machine:
    """Takes as long as the machine is slow, in a reading as in the reference kernel beside it.

    Parameters
    ----------
    slower : iterator of float
        The reference kernel's readings.
    noise : float
        Of a reading's seconds, to either side.
    """

    def __init__(self, slower: Iterator[float], noise: float = 0.0) -> None:
        self._slower, self._rng, self._noise, self._now = slower, np.random.default_rng(0), noise, 1.0

    def slower(self) -> float:
        self._now = next(self._slower)
        return self._now

    def read(self, path: None, binding: dict[str, int]) -> float:
        return binding["T"] * 1e-3 * self._now * float(1 + self._noise * self._rng.uniform(-1, 1))


def always(value: float) -> Iterator[float]:
    while True:
        yield value


def measured(machine: Machine, secs: float = 60.0) -> dict[str, Any]:
    stand: Any = machine
    return prediction.measure(stand, DRAWN, 2, secs)


def test_a_quiet_machine_is_read_as_often_as_asked_for() -> None:
    found = measured(Machine(always(1.0)))
    assert (found["num_rounds"], found["num_disturbed"]) == (4, 0)
    assert found["gap_mean"] == pytest.approx(0.05) and found["gap_worst"] == pytest.approx(0.1)
    assert found["worst_at"] == {"T": 2} and found["repeat_floor"] == 0.0


def test_a_slower_machine_is_scaled_and_told() -> None:
    found = measured(Machine(always(1.5)))
    assert found["gap_mean"] == pytest.approx(0.05)
    assert found["gap_mean_unscaled"] == pytest.approx((0.5 + 0.65) / 2)
    assert found["slower_than_at_calibration"] == 1.5


def test_a_noisy_machine_is_read_until_its_medians_are_known() -> None:
    found = measured(Machine(always(1.0), noise=0.15))
    assert found["num_rounds"] > 20 and found["num_disturbed"] == 0
    assert all(row["reach"] <= 0.03 for row in found["instances"])
    assert found["gap_mean"] == pytest.approx(0.05, abs=0.03)


def test_what_is_not_known_in_time_is_no_figure() -> None:
    with pytest.raises(SystemExit, match="no figure"):
        measured(Machine(always(1.0), noise=0.3), secs=0.0)


def test_readings_beside_a_slow_reference_do_not_count() -> None:
    readings = iter(np.tile([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 5.0], 1000).tolist())
    found = measured(Machine(readings))
    assert found["gap_mean"] == pytest.approx(0.05)
    assert all(row["num_readings"] < found["num_rounds"] for row in found["instances"])


@pytest.mark.parametrize("number", [8, 10, 33, 200])
def test_an_interval_of_a_median_holds_it_nineteen_times_in_twenty(number: int) -> None:
    rng = np.random.default_rng(number)
    pairs = [median_interval(rng.exponential(size=number)) for _ in range(4000)]
    held = np.mean([low <= np.log(2) <= high for low, high in pairs])
    assert held == pytest.approx(0.95, abs=0.035)


def test_the_interval_of_few_is_their_range() -> None:
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
