"""Tuning runs with fake measuring and real building."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_runs import make_spec

from benchmarks.fake_children import FakeChildren, FakeSeedSearch
from dietcode.library import build as build_module
from dietcode.library.parts import Parts
from dietcode.measure import gpu as gpu_module
from dietcode.measure import measurer as measurer_module
from dietcode.measure.seed_search import SeedRequest
from dietcode.tuner.tune import TuneResult, tune
from dietcode.workload.spec import Spec

_compile = build_module.compile_code
_compiled: dict[str, bytes] = {}


@pytest.fixture
def compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries of the same micro-kernels, rule and processor are compiled by the first test that asks."""

    def compile_code(parts: Parts) -> bytes:
        rule, task = parts.rule.to_json(), parts.task
        made_of = repr((task.problem, parts.micro_kernels, rule, task.variables, parts.target))
        if made_of not in _compiled:
            _compiled[made_of] = _compile(parts)
        return _compiled[made_of]

    monkeypatch.setattr(build_module, "compile_code", compile_code)


@pytest.fixture
def compiled_each_time(compiled_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What compares the bytes of two libraries takes nothing from another test."""
    del compiled_once
    monkeypatch.setattr(build_module, "compile_code", _compile)


@pytest.fixture(autouse=True)
def seeds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The trials that MetaSchedule was asked for."""
    asked: list[int] = []
    original = FakeSeedSearch.find

    def find(self: FakeSeedSearch, request: SeedRequest, *given: Any) -> Any:
        asked.append(request.num_trials)
        return original(self, request, *given)

    monkeypatch.setattr(FakeSeedSearch, "find", find)
    monkeypatch.setattr(measurer_module.time, "sleep", lambda secs: None)
    return asked


@pytest.fixture
def tuned(tmp_path: Path) -> Callable[..., tuple[FakeChildren, TuneResult]]:
    def run(spec: Spec | None = None, folder: str = "lib", **options: Any) -> tuple[FakeChildren, TuneResult]:
        children = options.pop("children", None) or FakeChildren()
        return children, tune(spec or make_spec(), tmp_path / folder, children=children, **options)

    return run


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without NVIDIA's driver, whatever other tests have loaded into this process."""

    def driver() -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(gpu_module, "Driver", driver)
