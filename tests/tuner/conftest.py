"""Tuning runs with fake measuring and real building."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_runs import make_spec

from dietcode.measure import measurer as measurer_module
from dietcode.measure.fake import FakeChildren
from dietcode.search_space.space import Seed
from dietcode.tuner import seeding
from dietcode.tuner.tune import TuneResult, tune
from dietcode.workload.spec import Spec


@pytest.fixture(autouse=True)
def seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stands in for MetaSchedule; returns the trial counts it was asked for."""
    asked: list[int] = []

    def run_seed(problem: Any, extents: Any, target: Any, work_dir: Path, trials: int, *_: Any) -> Any:
        asked.append(trials)
        return Seed(4, 32, "metaschedule"), {
            "trials": trials,
            "secs": 1.0,
            "best_gflops": 50.0,
            "decisions": [],
            "tile": [4, 32],
        }

    monkeypatch.setattr(seeding, "run_seed", run_seed)
    monkeypatch.setattr(measurer_module.time, "sleep", lambda secs: None)
    return asked


@pytest.fixture
def tuned(tmp_path: Path) -> Callable[..., tuple[FakeChildren, TuneResult]]:
    def run(spec: Spec | None = None, folder: str = "lib", **options: Any) -> tuple[FakeChildren, TuneResult]:
        children = options.pop("children", None) or FakeChildren()
        return children, tune(spec or make_spec(), tmp_path / folder, children=children, **options)

    return run
