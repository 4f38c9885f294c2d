"""The local search tries only additions that can free enough bytes: it finds what it finds by trying all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dietcode.dispatcher.objective import Objective
from dietcode.dispatcher.problem import SelectionProblem, make_problem
from dietcode.dispatcher.trimming import MicroKernelSet, Trim, fewer_bytes

OBJECTIVES = [
    Objective(0.1),
    Objective(0.1, max_loss=0.2),
    Objective(0.05, max_kernels=4, weight="flops"),
    Objective(0.3, max_bytes=20_000),
]


def random_problem(seed: int, objective: Objective) -> SelectionProblem:
    """12 micro-kernels at 24 instances, some of which few serve; some sizes are equal, some 0."""
    rng = np.random.default_rng(seed)
    throughput = rng.uniform(0.4, 1.0, (24, 12))
    throughput[rng.random(throughput.shape) < 0.2] = 0.0
    throughput[:, rng.integers(12)] = 0.5
    sizes = rng.integers(0, 5, 12) * 2000 if seed % 2 else rng.integers(1000, 9000, 12)
    return make_problem(throughput, rng.uniform(1, 9, 24), rng.dirichlet(np.ones(24)), sizes, objective)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_what_is_left_out_is_no_better(objective: Objective, monkeypatch: pytest.MonkeyPatch) -> None:
    num_judged = num_left_out = 0
    plain = Trim.freeable

    def counted(self: Trim, pairs: Any, mean_bound: float) -> Any:
        nonlocal num_judged, num_left_out
        found = plain(self, pairs, mean_bound)
        added = self.problem.size_bytes[pairs].sum(axis=1) // (1 + (pairs[:, 0] == pairs[:, 1]))
        num_judged, num_left_out = num_judged + len(pairs), num_left_out + int((found < added).sum())
        return found

    def all_of_them(self: Trim, pairs: Any, mean_bound: float) -> Any:
        del self, mean_bound
        return np.full(len(pairs), 10**9)

    def search(seed: int, bound: float) -> tuple[MicroKernelSet, MicroKernelSet]:
        problem = random_problem(seed, objective)
        start = problem.evaluated(range(12))
        assert start is not None
        monkeypatch.setattr(Trim, "freeable", counted)
        quick = fewer_bytes(problem, start, bound)
        monkeypatch.setattr(Trim, "freeable", all_of_them)
        return quick, fewer_bytes(problem, start, bound)

    for seed in range(6):
        for bound in (0.0, 0.03, 0.1):
            quick, slow = search(seed, bound)
            assert quick == slow
    assert num_left_out > num_judged / 4
