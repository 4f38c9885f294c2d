"""The whole pipeline with fake measuring and real building."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_runs import contents, make_spec, records_file

import dietcode
from benchmarks.fake_children import FakeChildren, Fault
from dietcode.backends.cpu.backend import CpuBackend
from dietcode.errors import DietCodeError, LibraryError, RecordsError, SpecError, TuningError
from dietcode.measure.records import read_records
from dietcode.measure.requests import CheckRequest, CheckResult
from dietcode.tuner import exploration, stale, trials
from dietcode.tuner.events import STAGES, Event
from dietcode.tuner.tune import tune
from dietcode.workload.identity import source_digest
from dietcode.workload.parse import spec_from_data

pytestmark = pytest.mark.usefixtures("compiled_once")


def test_the_folder_is_a_working_library(tuned_first: Any, tmp_path: Path, seeds: list[int]) -> None:
    heard: list[Event] = []
    _, result = tuned_first(on_event=heard.append)
    names = {name.partition("/")[0] for name in contents(tmp_path / "lib")}
    assert names == {"manifest.json", "dispatch.json", "library.so", "report.json"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lib"], "nothing is left beside it"
    assert result.measured == 12  # a quarter of the trials went to the seed
    assert seeds == [4]
    stages = list(dict.fromkeys(event.stage for event in heard))
    assert stages == ["calibrate", "measure", "seed", "select", "build", "verify"]
    assert set(stages) <= set(STAGES)
    lib = dietcode.load(tmp_path / "lib", num_threads=2)
    weights = np.random.default_rng(0).standard_normal((96, 32), dtype=np.float32)
    packed = lib.pack(W=weights)
    for t in (1, 2, 11, 24):
        x = np.random.default_rng(t).standard_normal((3 * t, 32), dtype=np.float32)
        np.testing.assert_allclose(lib(X=x, W=packed), x @ weights.T, rtol=1e-4, atol=1e-4)
        assert 0 <= lib.select(T=t) < len(result.report["selection"]["micro_kernels"])


@pytest.mark.usefixtures("compiled_each_time")
def test_a_second_run_measures_nothing_and_gives_the_same_bytes(
    tuned: Any, tuned_first: Any, tmp_path: Path, seeds: list[int]
) -> None:
    tuned_first()
    again, result = tuned(folder="again")
    assert (again.timed, again.built, result.measured) == ([], [], 0)
    assert again.num_calls["time"] == 0
    assert len(seeds) == 1
    assert contents(tmp_path / "lib") == contents(tmp_path / "again")


@pytest.mark.usefixtures("compiled_each_time")
def test_records_alone_give_the_same_bytes(
    tuned: Any, tuned_first: Any, tmp_path: Path, own_cache: Path
) -> None:
    tuned_first()
    kept = tmp_path / "kept.jsonl"
    kept.write_bytes(records_file(own_cache).read_bytes())
    for folder in ("one", "two"):
        children, result = tuned(folder=folder, records=kept)
        assert result.measured == 0
        assert not children.timed and not children.built
    assert contents(tmp_path / "one") == contents(tmp_path / "two") == contents(tmp_path / "lib")


def test_an_interrupted_run_loses_nothing(tuned: Any, tmp_path: Path, own_cache: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        tuned(children=FakeChildren(interrupt_after=5))
    assert not (tmp_path / "lib").exists()
    first = read_records(records_file(own_cache))
    known = len(first.measurements)
    assert known == 2, "two calls time one micro-kernel: its first wave, then the others"
    children, result = tuned()
    assert result.measured == 12 - known
    new = children.built[: 12 - known]
    assert not set(new) & {kernel.name for kernel in first.measurements}
    complete = read_records(records_file(own_cache))
    assert len(complete.measurements) == 12


def test_what_is_generated_differently_is_measured_again_and_nothing_else(
    tuned: Any, tuned_first: Any, monkeypatch: pytest.MonkeyPatch, own_cache: Path, tmp_path: Path
) -> None:
    first, _ = tuned_first()
    kept = tmp_path / "kept.jsonl"
    kept.write_bytes(records_file(own_cache).read_bytes())
    changed = first.built[3]
    asked: list[str] = []

    def code_digest(self: Any, problem: Any, target: Any, kernel: Any) -> str:
        asked.append(kernel.name)
        return source_digest("other" if kernel.name == changed else kernel.name)

    monkeypatch.setattr(CpuBackend, "code_digest", code_digest)
    for module in (stale, trials):
        monkeypatch.setattr(module, "generator_digest", lambda: "0" * 64)
    heard: list[Event] = []
    _, again = tuned(folder="kept", records=kept, on_event=heard.append)
    assert changed not in [row["micro_kernel"] for row in again.report["micro_kernels"]]
    assert len(asked) == 12 and "1 measurement of code that is generated differently now" in {
        event.message for event in heard
    }
    children, result = tuned(folder="again", on_event=heard.append)
    assert (result.measured, len(asked)) == (1, 24), "there is one trial left again"
    known = {kernel.name for kernel in read_records(records_file(own_cache)).measurements}
    assert known >= set(first.built[:12]) - {changed} and (changed in known) == (changed in children.built)
    children, result = tuned(folder="third")
    assert (result.measured, children.built, len(asked)) == (0, [], 24), "what was compared is not again"
    monkeypatch.setattr(stale, "generator_digest", lambda: "1" * 64)
    monkeypatch.setattr(CpuBackend, "code_digest", lambda *given: "f" * 16)
    with pytest.raises(RecordsError, match="12 measurements of code that is generated differently"):
        tuned(folder="none", records=kept)


def test_force_measures_again(tuned: Any, tuned_first: Any, seeds: list[int]) -> None:
    tuned_first()
    children, result = tuned(force=True)
    assert result.measured == 12
    assert len(set(children.timed)) == 12
    assert len(seeds) == 2


@pytest.mark.parametrize("trials", [2, 8])
def test_trials_bound_the_measurements(trials: int, tuned: Any, seeds: list[int]) -> None:
    children, result = tuned(make_spec(budget={"trials": trials, "seconds": 100.0}))
    assert seeds[0] + result.measured == trials
    assert len(set(children.timed)) == result.measured


def test_a_larger_budget_goes_on(tuned: Any) -> None:
    tuned(make_spec(budget={"trials": 8, "seconds": 100.0}))
    _, result = tuned()
    assert result.measured == 16 - 2 - 6, "two trials went to the seed, six to micro-kernels"
    assert [decision["stop"] for decision in result.report["rounds"]].count("trials") == 2


def test_seconds_bound_the_measurements(tuned: Any, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    """On the fake's clock each build takes six seconds, so one batch of eight uses the time up."""
    children = FakeChildren(build_secs=6.0)
    original = exploration.Exploration.__post_init__

    def with_clock(self: Any) -> None:
        original(self)
        self.clock = children.clock
        self.deadline = children.now + 50.0

    monkeypatch.setattr(exploration.Exploration, "__post_init__", with_clock)
    heard: list[Event] = []
    _, result = tuned(children=children, on_event=heard.append)
    assert 1 <= result.measured <= 8
    assert any("the seconds of the budget are used up" in event.message for event in heard)
    assert len(read_records(records_file(own_cache)).measurements) == result.measured


def test_leaders_are_read_further_for_as_long_as_the_search_took(
    tuned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    children, at = FakeChildren(build_secs=1.0), SimpleNamespace(begun=0.0, read_for=0.0)
    original = exploration.Exploration.__post_init__

    def with_clock(self: Any) -> None:
        original(self)
        self.clock = lambda: children.now + at.read_for
        self.deadline = children.now + 1e6
        at.begun = self.clock()

    def read(*_: Any, had_enough: Callable[[], bool], **__: Any) -> None:
        searched = children.now - at.begun
        assert searched > 8 and not had_enough()
        at.read_for = searched - 1e-3
        assert not had_enough()
        at.read_for = searched + 1e-3
        assert had_enough()
        asked.append(searched)

    asked: list[float] = []
    monkeypatch.setattr(exploration.Exploration, "__post_init__", with_clock)
    monkeypatch.setattr(exploration, "read_leaders", read)
    tuned(children=children)
    assert len(asked) == 1


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("stage", ["build", "check", "time"])
def test_failures_cost_their_candidate_alone(stage: Any, tuned: Any, tuned_first: Any) -> None:
    names = sorted(set(tuned_first(folder="first")[0].timed))
    faults = {names[0]: Fault(stage, "crash"), names[1]: Fault(stage, "hang")}
    _, result = tuned(children=FakeChildren(faults=faults), force=True)
    failed = {entry["micro_kernel"]: entry["error"] for entry in result.report["space"]["failed"]}
    assert set(failed) == set(names[:2])
    assert not set(result.report["selection"]["micro_kernels"]) & set(names[:2])
    space = result.report["space"]
    assert space["measured"] + len(space["pruned"]) == 10


def test_where_nothing_works_there_is_no_library(tuned: Any, tmp_path: Path) -> None:
    names = {f"{rows}x{columns}": Fault("time") for rows in range(1, 40) for columns in range(4, 400, 4)}
    with pytest.raises(DietCodeError) as caught:
        tuned(children=FakeChildren(faults=names))
    assert isinstance(caught.value, TuningError)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("no micro-kernel worked; the first said: ")
    assert not (tmp_path / "lib").exists()
    _, result = tuned()  # what went wrong, such as a full disk, may be over: nobody has to say --force
    assert result.measured == 12 and result.report["space"]["failed"] == []


def test_a_library_that_fails_its_check_is_not_written(tuned: Any, tmp_path: Path) -> None:
    class Wrong(FakeChildren):
        def check(self, request: CheckRequest, timeout_secs: float) -> CheckResult:
            if Path(request.path).name == "library.so":
                return CheckResult.failed("ValueError: wrong result")
            return super().check(request, timeout_secs)

    with pytest.raises(TuningError, match=r"the finished library fails at .*wrong result"):
        tuned(children=Wrong())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("found", ["a file", "other things", "under a file"])
def test_a_bad_folder_is_refused_before_measuring(
    found: str, tuned: Any, tmp_path: Path, own_cache: Path, seeds: list[int]
) -> None:
    folder = tmp_path / "lib"
    if found == "a file":
        folder.write_text("precious")
    elif found == "other things":
        folder.mkdir()
        (folder / "thesis.tex").write_text("precious")
    else:
        folder.write_text("precious")
        folder = folder / "deeper" / "lib"
    children = FakeChildren()
    before = contents(tmp_path)
    with pytest.raises(LibraryError, match=r"lib: ") as caught:
        tune(make_spec(), folder, children=children)
    assert "\n" not in str(caught.value)
    assert not children.num_calls
    assert not seeds
    assert contents(tmp_path) == before


def test_an_older_library_is_replaced(tuned: Any, tuned_first: Any, tmp_path: Path) -> None:
    tuned_first()
    tuned(make_spec(objective={"max_kernels": 1}))
    report = json.loads((tmp_path / "lib" / "report.json").read_text())
    assert len(report["selection"]["micro_kernels"]) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["lib"]


def test_caps_of_the_objective(tuned: Any, tuned_first: Any) -> None:
    _, free = tuned_first(make_spec(objective={"binary_size": 0.0}), folder="free")
    for max_kernels in (1, 2):
        _, result = tuned(make_spec(objective={"binary_size": 0.0, "max_kernels": max_kernels}))
        assert len(result.report["selection"]["micro_kernels"]) <= max_kernels
    assert len(free.report["selection"]["micro_kernels"]) >= 1
    with pytest.raises(TuningError):
        tuned(make_spec(objective={"max_bytes": 1}))


def test_others_records_are_refused(tuned: Any, tuned_first: Any, tmp_path: Path, own_cache: Path) -> None:
    tuned_first()
    kept = records_file(own_cache)
    with pytest.raises(RecordsError, match="another workload"):
        tuned(make_spec(dims={"m": "3*T", "n": 97, "k": 32}), folder="other", records=kept)
    with pytest.raises(RecordsError, match="measured on 2 cores; the spec asks for 3"):
        tuned(make_spec(target={"kind": "llvm", "num_cores": 3}), folder="other", records=kept)
    with pytest.raises(RecordsError, match="No such file"):
        tuned(folder="other", records=tmp_path / "none.jsonl")
    assert not (tmp_path / "other").exists()


def test_records_of_a_machine_without_a_target_are_refused(
    tuned: Any, tuned_first: Any, tmp_path: Path, own_cache: Path
) -> None:
    tuned_first()
    header, rest = records_file(own_cache).read_text().split("\n", 1)
    spoilt = json.loads(header)
    del spoilt["device"]["target"]["mcpu"]
    kept = tmp_path / "kept.jsonl"
    kept.write_text(json.dumps(spoilt) + "\n" + rest)
    with pytest.raises(RecordsError, match="names no target"):
        tuned(folder="other", records=kept)


def test_a_machine_that_cannot_run_the_code_measures_nothing(
    tuned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dietcode.target import cpu

    spec = make_spec(target={"kind": "llvm", "mcpu": "haswell"})
    monkeypatch.setattr(cpu, "missing_features", lambda names: ["avx2"])
    with pytest.raises(TuningError, match="does not run haswell code"):
        tuned(spec)


def test_a_machine_with_fewer_cores_measures_nothing(tuned: Any) -> None:
    with pytest.raises(TuningError, match="has no 1024 cores"):
        tuned(make_spec(target={"kind": "llvm", "num_cores": 1024}))


def test_half_precision_is_refused_where_a_tag_stands_for_a_cpu(tmp_path: Path, own_cache: Path) -> None:
    data = make_spec().to_json() | {"target": "raspberry-pi/4b-aarch64"}
    data["tensors"] = {name: facts | {"dtype": "float16"} for name, facts in data["tensors"].items()}
    with pytest.raises(
        SpecError, match=r"^tensors\.X\.dtype: given 'float16'; allowed on this target: float32"
    ):
        tune(spec_from_data(data), tmp_path / "library")
