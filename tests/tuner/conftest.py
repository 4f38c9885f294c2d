"""Tuning runs with fake measuring and real building."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from small_runs import contents, make_spec, write_contents

from benchmarks.fake_children import FakeChildren, FakeSeedSearch
from dietcode.library import build as build_module
from dietcode.library.parts import Parts
from dietcode.measure import gpu as gpu_module
from dietcode.measure import measurer as measurer_module
from dietcode.measure.seed_search import SeedRequest
from dietcode.tuner import tune as tune_module
from dietcode.tuner.events import Event, OnEvent, silent
from dietcode.tuner.search import Search
from dietcode.tuner.tune import TuneResult, tune
from dietcode.workload.spec import Spec

_compile = build_module.compile_code
_compiled: dict[str, bytes] = {}


@dataclass(frozen=True)
class _FirstRun:
    """A run on a fake device that nothing was known of, and what it wrote."""

    children: FakeChildren
    result: TuneResult
    events: tuple[Event, ...]
    seeds: tuple[int, ...]
    cache: dict[str, bytes]
    library: dict[str, bytes]


_first_runs: dict[str, _FirstRun] = {}
_FAR = 10.0  # times the reference kernel's rate, below which the first round stays on every processor


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
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[FakeChildren, TuneResult]]:
    """Tuning with a fake device, whose first round asks for MetaSchedule whatever this processor is."""
    monkeypatch.setattr(tune_module, "Search", functools.partial(Search, well_served=_FAR))

    def run(spec: Spec | None = None, folder: str = "lib", **options: Any) -> tuple[FakeChildren, TuneResult]:
        children = options.pop("children", None) or FakeChildren()
        return children, tune(spec or make_spec(), tmp_path / folder, children=children, **options)

    return run


@pytest.fixture
def tuned_first(tuned: Any, tmp_path: Path, own_cache: Path, seeds: list[int]) -> Callable[..., Any]:
    """As `tuned` of children without faults where nothing is known: the first test that asks runs it.

    Each has its records in its own cache, its library in its own folder, and hears its events.
    """

    def run(
        spec: Spec | None = None, folder: str = "lib", on_event: OnEvent = silent
    ) -> tuple[FakeChildren, TuneResult]:
        assert not contents(own_cache) and not seeds
        made_of = repr(spec or make_spec())
        if made_of not in _first_runs:
            heard: list[Event] = []
            children, result = tuned(spec, folder, on_event=heard.append)
            files = (contents(own_cache), contents(tmp_path / folder))
            _first_runs[made_of] = _FirstRun(children, result, tuple(heard), tuple(seeds), *files)
        else:
            seeds.extend(_first_runs[made_of].seeds)
            write_contents(own_cache, _first_runs[made_of].cache)
            write_contents(tmp_path / folder, _first_runs[made_of].library)
        found = _first_runs[made_of]
        for event in found.events:
            on_event(event)
        return found.children, replace(found.result, report=copy.deepcopy(found.result.report))

    return run


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without NVIDIA's driver, whatever other tests have loaded into this process."""

    def driver() -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(gpu_module, "Driver", driver)
