"""Timing a call beside another program, by a clock that both advance."""

from __future__ import annotations

import pytest

from dietcode.measure import cpu_worker

CALL_SECS = 20e-6


class Shared:
    """A core that another program has for `away` seconds after each `own` seconds of calls."""

    def __init__(self, own: float, away: float) -> None:
        self.own, self.away, self.now, self.left = own, away, 0.0, own

    def perf_counter(self) -> float:
        """Seconds on the wall."""
        return self.now

    def call(self) -> None:
        """A call, within which the core may be taken."""
        self.now += CALL_SECS
        self.left -= CALL_SECS
        if self.left <= 0.0:
            self.now, self.left = self.now + self.away, self.own


@pytest.mark.parametrize("own", [1e-3, 2.2e-3, 4e-3])
def test_what_runs_between_two_turns_of_another_program_counts(
    monkeypatch: pytest.MonkeyPatch, own: float
) -> None:
    shared = Shared(own, 3e-3)
    monkeypatch.setattr(cpu_worker, "time", shared)
    assert cpu_worker._time(shared.call, 2e-3, 7) == pytest.approx(CALL_SECS, rel=0.01)


def test_a_long_call_is_not_repeated_for_longer_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Shared(1.0, 0.0)
    monkeypatch.setattr(cpu_worker, "time", shared)
    assert cpu_worker._time(lambda: [shared.call() for _ in range(500)], 2e-3, 7) == pytest.approx(1e-2)
    assert shared.now == pytest.approx(9e-2)  # two calls to begin with, seven readings of one
