"""Leaders are read again, in turns, until it is known that they lead."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from dietcode.measure.records import Measurement
from dietcode.search_space.cpu.limits import MicroKernel
from dietcode.tuner.finals import finalists, read_leaders


def test_all_that_are_the_best_somewhere_are_finalists() -> None:
    """However many they are; of the others as many as make ten."""
    rng, names = np.random.default_rng(0), [MicroKernel(rows, 32) for rows in range(1, 16)]
    throughput = np.full((12, 15), 0.97) + rng.uniform(0, 1e-3, (12, 15))
    throughput[np.arange(12), np.arange(12)] = 1.0
    measurements = {kernel: Measurement(kernel, "hardware") for kernel in names}
    models = [SimpleNamespace(micro_kernel=kernel) for kernel in names]
    fitted: Any = SimpleNamespace(throughput=throughput, models=models)
    records: Any = SimpleNamespace(measurements=measurements)
    found = finalists(fitted, records)
    assert [one.micro_kernel for one in found] == names[:12]
    fitted.throughput = throughput[:3]
    assert len(finalists(fitted, records)) == 10


class Board:
    """Two candidates lead at half of the instances each, one at a few, five nowhere; readings are noisy."""

    def __init__(self, noise: float, fails: bool = False) -> None:
        self.names = [MicroKernel(rows, 32) for rows in range(1, 9)]
        self._noise, self._fails, self._rng = noise, fails, np.random.default_rng(1)
        first = {
            kernel: Measurement(kernel, "hardware", points=({"m": 8},), secs=(1.0,)) for kernel in self.names
        }
        self.records: Any = SimpleNamespace(measurements=first, calibration={})

    def fit(self, records: Any, extents: Any) -> Any:
        throughput = np.full((100, 8), 0.99)
        throughput[:49, 0] = throughput[49:98, 1] = throughput[98:, 2] = 1.0
        models = [SimpleNamespace(micro_kernel=kernel) for kernel in self.names]
        return SimpleNamespace(throughput=throughput, models=models)

    def append(self, line: Any) -> None:
        kernel = MicroKernel.from_json(line)
        read = {"num_readings": line["num_readings"], "secs": tuple(line["secs"])}
        self.records.measurements[kernel] = replace(self.records.measurements[kernel], **read)

    def attach(self, calibration: Any) -> None:
        pass

    def build(self, kernels: Any, prefix: str) -> list[Any]:
        return [SimpleNamespace(path="somewhere") for _ in kernels]

    def time(self, kernel: Any, built: Any, points: Any) -> Any:
        level = float(np.exp(self._rng.normal(0.0, self._noise)))
        return SimpleNamespace(error="lost" if self._fails else None, secs=(level,) * len(points))

    def read(self, **options: Any) -> list[Any]:
        board: Any = self
        never = {"out_of_time": lambda: False, "had_enough": lambda: False}
        told = {"on_event": lambda event: None, **never, **options}
        read_leaders(board, {}, board, board, [{"m": 6}], **told)
        return [self.records.measurements[kernel] for kernel in self.names]


def test_leaders_whose_readings_agree_are_read_three_times() -> None:
    assert [one.num_readings for one in Board(0.01).read()] == [3] * 8


def test_those_that_lead_at_many_instances_are_read_until_their_medians_are_known() -> None:
    """The third is the best at two of a hundred."""
    many, again, *others = [one.num_readings for one in Board(0.08).read()]
    assert 5 <= many <= 9 and 5 <= again <= 9
    assert others == [3] * 6
    assert [one.num_readings for one in Board(0.3).read()] == [9, 9, *others]


def test_they_are_read_no_further_where_that_is_not_worth_its_time() -> None:
    asked = iter([False, True])
    found = [one.num_readings for one in Board(0.3).read(had_enough=lambda: next(asked))]
    assert found == [5, 5, 3, 3, 3, 3, 3, 3]


def test_leaders_that_cannot_be_read_again_keep_their_reading() -> None:
    found = Board(0.05, fails=True).read()
    assert [(one.num_readings, one.secs) for one in found] == [(1, (1.0,))] * 8


def test_leaders_are_read_while_there_is_time() -> None:
    left = iter([False] * 19 + [True] * 99)
    found = Board(0.3).read(out_of_time=lambda: next(left))
    assert sum(one.num_readings for one in found) == 8 + 16 + 1
