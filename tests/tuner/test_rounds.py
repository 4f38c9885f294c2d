"""The search: rounds, expansion, pruning, stopping, and what a second workload learns from a first."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_runs import AVX512, contents, records_file
from small_runs import make_spec as make_spec_for

from benchmarks.fake_children import FakeChildren, FakeCpu
from dietcode.backends.cpu.domain import CpuDomain
from dietcode.cli.show import show_library
from dietcode.measure.local import LocalMachine
from dietcode.measure.records import read_records, write_records
from dietcode.measure.requests import BuildResult
from dietcode.runtime.manifest import DISPATCH, REPORT, read_json, read_manifest
from dietcode.search_space.cpu.limits import MicroKernel
from dietcode.search_space.problem import instance_extents, problem_from_spec
from dietcode.target.cpu import resolve_target
from dietcode.tuner import planner as planner_module
from dietcode.tuner.events import Event
from dietcode.tuner.exploration import Exploration
from dietcode.tuner.planner import Planner
from dietcode.tuner.reselect import reselect
from dietcode.tuner.search import Search
from dietcode.tuner.tune import make_library, write_library
from dietcode.workload.instances import make_instances

make_spec = partial(make_spec_for, target=AVX512)
MANY = {"trials": 400, "seconds": 1000.0}
pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture(autouse=True)
def any_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake children run nothing: a processor need not be here to be searched for."""
    resolve = LocalMachine.resolve
    monkeypatch.setattr(
        LocalMachine, "resolve", lambda self, spec: replace(resolve(self, spec), refusal=None)
    )


def few_rows() -> Any:
    """Five or six rows, two vectors of columns for each of two cores.

    Of the register file's seeds 5x80 gives one column of tiles, which leaves a core idle, and 14x32 gives
    seven rows and more, which pad; 5x32 and 6x32 lie in neither space, and are no power of two.
    """
    return make_spec(
        name="few-rows",
        shape_vars={"T": {"min": 5, "max": 6}},
        dims={"m": "T", "n": 64, "k": 4096},
        budget=MANY,
    )


def slower(factor: Callable[[MicroKernel], float]) -> FakeChildren:
    """A fake device on which some micro-kernels take longer."""

    class Slower(FakeCpu):
        def secs(self, problem: Any, micro_kernel: MicroKernel, limits: Any, extents: Any) -> float:
            return factor(micro_kernel) * super().secs(problem, micro_kernel, limits, extents)

    return FakeChildren(Slower())


def domain_of(spec: Any) -> CpuDomain:
    return CpuDomain(problem_from_spec(spec), resolve_target(spec.target))


def names(report: dict[str, Any], provenance: str) -> set[str]:
    return {row["micro_kernel"] for row in report["micro_kernels"] if row["provenance"] == provenance}


def test_a_tile_that_no_seed_reaches_is_found_by_expansion(
    own_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[Event] = []
    device = slower(lambda kernel: 1.0 if kernel.tails == "local" else 2.0)
    result = make_library(
        few_rows(), children=device, search=Search(metaschedule=False), on_event=heard.append
    )
    report, wanted = result.report, {"5x32", "6x32"}
    assert not wanted & set(report["rounds"][0]["measured"])
    grown = [e for decision in report["rounds"] for e in decision["expansions"]]
    assert {e["cause"] for e in grown} <= {"padding", "occupancy", "axes"}
    at_five = [e for e in grown if e["shape"] == {"m": 5} and "5x32" in e["micro_kernels"]]
    assert at_five[0]["served"] < 0.75, "five of seven rows, or one of two cores"
    best = {row["shape_vars"]["T"]: row["best_micro_kernel"] for row in report["instances"]}
    assert best[5] == "5x32"
    for row in report["instances"]:
        assert row["other_micro_kernel"] != row["micro_kernel"] and row["waves"] > 0
        served_by_best = row["micro_kernel"] == row["best_micro_kernel"]
        assert served_by_best == (row["other_predicted_gflops"] < row["best_predicted_gflops"])
    assert wanted & names(report, "expansion")
    assert report["provenance"]["expansion"]["gain"] > 0.02
    after = [decision["gain"] for decision in report["rounds"][1:] if decision["gain"] is not None]
    assert max(after) > 0.03, "one round gained from it"
    assert any("space grown for m=5" in event.message for event in heard if event.data.get("expansions"))
    folder = tmp_path / "lib"
    write_library(result, folder)
    show_library(read_manifest(folder), read_json(folder / DISPATCH), read_json(folder / REPORT))
    shown = capsys.readouterr().out
    assert "space grown for m=5" in shown
    assert "without them" in shown


def test_what_leads_by_one_lucky_reading_is_read_again(own_cache: Path) -> None:
    """The luckiest hide the others: these are no finalists before those have fallen back."""
    luck: dict[str, float] = {}

    class Lucky(FakeChildren):
        def time(self, request: Any, timeout_secs: float) -> Any:
            result, name = super().time(request, timeout_secs), Path(request.path).stem
            return replace(result, secs=tuple(luck.get(name, 1.0) * secs for secs in result.secs))

    def tuned() -> tuple[dict[str, Any], set[str], list[str]]:
        spec = make_spec(dims={"m": "3*T", "n": 96, "k": 2048}, budget=MANY)
        search = Search(metaschedule=False, pruning=False)
        report = make_library(spec, children=Lucky(), search=search, force=True).report
        rows = {row["micro_kernel"]: row for row in report["micro_kernels"]}
        best = {row["best_micro_kernel"] for row in report["instances"]}
        return rows, best, report["rounds"][0]["measured"]

    quiet, _, first = tuned()
    slow = [name for name in first if quiet[name]["num_readings"] == 1][:3]
    luck = {f"candidate_{name}": 0.3 + 0.05 * number for number, name in enumerate(slow)}
    rows, leading, _ = tuned()
    assert len(slow) == 3 and {rows[name]["num_readings"] for name in (*slow, *leading)} == {3}
    for name in slow:
        read = dict(zip(map(repr, rows[name]["points"]), rows[name]["secs"], strict=True))
        for point, secs in zip(quiet[name]["points"], quiet[name]["secs"], strict=True):
            assert read[repr(point)] == pytest.approx(secs)


@pytest.mark.long
def test_the_model_is_less_sure_of_ways_that_were_not_tried(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec(dims={"m": "3*T", "n": 96, "k": 2048}, budget=MANY)
    make_library(spec, children=FakeChildren(), search=Search(metaschedule=False))
    records = read_records(records_file(own_cache))
    for kernel in [kernel for kernel in records.measurements if "-" in kernel.name]:
        del records.measurements[kernel]
    instances = make_instances(spec)
    extents = instance_extents(spec, instances.columns())
    promises = []
    for spread in (planner_module._UNTRIED, 0.0):
        monkeypatch.setattr(planner_module, "_UNTRIED", spread)
        planner = Planner(domain_of(spec), extents, instances.weights, Search())
        planner.space.update(dict.fromkeys(records.measurements, "hardware"))
        promises.append(planner.plan(records).promise)
    # Of the mean log throughput; what else is promised, by the fit, is in both.
    assert promises[0] - promises[1] > 0.05 and promises[1] > 0


def test_without_mutation_only_seeds_are_measured(own_cache: Path) -> None:
    result = make_library(few_rows(), children=FakeChildren(), search=Search(mutation=False))
    assert not names(result.report, "expansion")
    assert not names(result.report, "tails")
    assert result.measured <= 3


@pytest.mark.long
def test_without_learning_every_candidate_is_measured(own_cache: Path) -> None:
    spec = make_spec(budget=MANY)
    whole = make_library(
        spec, children=FakeChildren(), search=Search(learning=False, pruning=False), force=True
    )
    assert whole.report["rounds"][-1]["stop"] == "exhausted"
    assert all(decision["model"] is None for decision in whole.report["rounds"])
    learned = make_library(spec, children=FakeChildren(), force=True)
    assert learned.report["rounds"][-1]["stop"] in {"converged", "stalled"}
    assert learned.measured < whole.measured / 2
    best = {row["micro_kernel"]: row["best_predicted_gflops"] for row in whole.report["instances"]}
    assert best
    for mine, full in zip(learned.report["instances"], whole.report["instances"], strict=True):
        assert mine["best_predicted_gflops"] > 0.9 * full["best_predicted_gflops"]


def test_a_round_says_what_it_did_and_why_it_was_the_last(tuned_first: Any, own_cache: Path) -> None:
    heard: list[Event] = []
    _, result = tuned_first(make_spec(budget=MANY), on_event=heard.append)
    rounds = result.report["rounds"]
    assert [decision["number"] for decision in rounds] == list(range(1, len(rounds) + 1))
    assert [decision["stop"] for decision in rounds[:-1]] == [None] * (len(rounds) - 1)
    assert rounds[0]["model"] is None, "nothing is known of this device before"
    for decision in rounds[1:-1]:
        assert decision["model"]["num_waves"] > 0
        assert decision["model"]["missed"] >= 0
        assert decision["promise"] >= Search().min_promise
    assert rounds[-1]["message"].endswith(("promises 0.0%, less than 0.5%", "gained less than 0.5%")) or (
        "stopped: another round promises" in rounds[-1]["message"]
    )
    measured = [name for decision in rounds for name in decision["measured"]]
    assert len(measured) == len(set(measured)) == result.measured
    told = [event.data["number"] for event in heard if event.data.get("number")]
    assert told == [decision["number"] for decision in rounds]
    assert read_records(records_file(own_cache)).rounds == rounds


def test_pruned_micro_kernels_have_one_wave_and_are_in_no_choice(tuned: Any, tmp_path: Path) -> None:
    slow = slower(lambda kernel: 5.0 if kernel.columns > 64 else 1.0)
    _, result = tuned(make_spec(shape_vars={"T": {"min": 8, "max": 24}}), children=slow)
    pruned = result.report["space"]["pruned"]
    assert pruned
    assert all(len(row["points"]) == 1 == len(row["secs"]) for row in pruned)
    assert not {row["micro_kernel"] for row in pruned} & {
        row["micro_kernel"] for row in result.report["micro_kernels"]
    }
    again = reselect(tmp_path / "lib", {"max_kernels": 1}, tmp_path / "other", children=FakeChildren())
    assert again.report["space"]["pruned"] == pruned
    assert again.report["rounds"] == result.report["rounds"]


def test_tails_are_tried_for_tiles_that_win_in_spite_of_padding(tuned_first: Any) -> None:
    _, result = tuned_first(make_spec(budget=MANY))
    tails = [
        k for decision in result.report["rounds"] for k in decision["added"] if k["provenance"] == "tails"
    ]
    assert {entry["tails"] for entry in tails} == {"partition", "global", "checked"}
    tried = {row["tails"] for row in result.report["micro_kernels"] if row["provenance"] == "tails"}
    assert "partition" in tried


def test_an_interrupted_round_is_planned_again(tuned: Any, own_cache: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        tuned(make_spec(budget=MANY), children=FakeChildren(interrupt_after=25))
    before = read_records(records_file(own_cache))
    rounds, known = len(before.rounds), set(before.measurements)
    assert rounds >= 1
    assert len(known) > sum(len(decision["measured"]) for decision in before.rounds)
    children, result = tuned(make_spec(budget=MANY))
    assert result.report["rounds"][:rounds] == before.rounds
    assert not {kernel.name for kernel in known} & set(children.built[: result.measured])


def second(**changes: Any) -> Any:
    return make_spec(name="second", dims={"m": "3*T", "n": 192, "k": 32}, budget=MANY, **changes)


@pytest.mark.thorough
def test_a_second_workload_goes_without_metaschedule(tuned: Any, tuned_first: Any, seeds: list[int]) -> None:
    _, first = tuned_first(make_spec(budget=MANY))
    heard: list[Event] = []
    _, result = tuned(second(), folder="second", on_event=heard.append)
    assert len(seeds) == 1, "MetaSchedule ran for the first workload alone"
    seed = result.report["seed"]
    assert seed["trials"] == 0
    assert seed["tile"] == first.report["seed"]["tile"]
    assert seed["from_workload"] == first.report["workload_digest"]
    assert "so MetaSchedule was not run" in seed["reason"]
    assert result.report["rounds"][0]["model"]["num_workloads"] == 1
    assert result.report["calibration"]["kappa"] == first.report["calibration"]["kappa"]
    assert any(e.stage == "calibrate" and "an earlier workload" in e.message for e in heard)
    assert any(e.stage == "seed" and "an earlier workload" in e.message for e in heard)


@pytest.mark.thorough
def test_where_earlier_workloads_mislead_metaschedule_runs(
    tuned: Any, tuned_first: Any, seeds: list[int]
) -> None:
    tuned_first(make_spec(budget=MANY))
    changed = slower(lambda kernel: 4.0 if kernel.rows > 4 else 1.0)
    result = make_library(second(), children=changed, search=Search(well_served=math.inf))
    assert len(seeds) == 2
    assert result.report["rounds"][0]["model"]["missed"] > 0.1
    assert result.report["seed"]["trials"] > 0


@pytest.mark.long
def test_a_damaged_file_of_another_workload_costs_nothing(
    tuned_first: Any, own_cache: Path, seeds: list[int]
) -> None:
    tuned_first()
    records_file(own_cache).write_text("not records\n")
    result = make_library(second(), children=FakeChildren(), search=Search(well_served=math.inf))
    assert result.report["seed"]["trials"] > 0
    assert len(seeds) == 2


@pytest.mark.thorough
def test_records_of_before_the_search_had_rounds_are_gone_on_with(
    tuned: Any, tuned_first: Any, own_cache: Path
) -> None:
    tuned_first()
    path = records_file(own_cache)
    old = read_records(path)
    old.rounds, old.problem = [], None
    write_records(path, old)
    _, result = tuned(folder="again")
    assert result.report["problem"] is not None
    assert set(old.measurements) <= set(read_records(path).measurements)


@pytest.mark.usefixtures("compiled_each_time")
def test_the_same_records_give_the_same_bytes_after_a_search_that_converged(
    tuned: Any, tuned_first: Any, tmp_path: Path
) -> None:
    tuned_first(make_spec(budget=MANY))
    children, result = tuned(make_spec(budget=MANY), folder="again")
    assert (children.timed, result.measured) == ([], 0)
    assert contents(tmp_path / "lib") == contents(tmp_path / "again")


@pytest.mark.thorough
def test_another_jobs_end_is_not_this_ones(tuned: Any) -> None:
    """Jobs of one workload share its records; what is enough for some weights is not for others."""
    _, first = tuned(make_spec(shape_vars={"T": {"min": 1, "max": 24, "weights": {24: 1.0}}}, budget=MANY))
    _, second = tuned(make_spec(shape_vars={"T": {"min": 1, "max": 24, "weights": {1: 1.0}}}, budget=MANY))
    assert second.measured > 0
    rounds = second.report["rounds"]
    assert rounds[: len(first.report["rounds"])] == first.report["rounds"]
    assert len({decision["job"] for decision in rounds}) == 2
    children, third = tuned(
        make_spec(shape_vars={"T": {"min": 1, "max": 24, "weights": {24: 1.0}}}, budget=MANY)
    )
    assert (third.measured, children.timed) == (0, []), "the first job is done all the same"


@pytest.mark.thorough
def test_what_was_pruned_for_another_job_is_a_candidate_again(tuned: Any) -> None:
    """Tiles of ten rows are twice as fast here where there are few rows."""

    class ForFewRows(FakeCpu):
        def secs(self, problem: Any, micro_kernel: MicroKernel, limits: Any, extents: Any) -> float:
            fast = micro_kernel.rows == 10 and extents["m"] <= 20
            return (0.5 if fast else 1.0) * super().secs(problem, micro_kernel, limits, extents)

    def run(rows: int) -> tuple[FakeChildren, Any]:
        weighted = {"T": {"min": 1, "max": 24, "weights": {rows // 3: 1.0}}}
        spec = make_spec(shape_vars=weighted, budget=MANY)
        return tuned(spec, children=FakeChildren(ForFewRows()))

    _, first = run(72)
    pruned = {row["micro_kernel"] for row in first.report["space"]["pruned"]}
    children, second = run(15)
    again = pruned & set(children.built)
    assert again
    assert again & {row["micro_kernel"] for row in second.report["micro_kernels"]}


def test_a_budget_of_a_second_measures_something(tuned: Any) -> None:
    _, result = tuned(make_spec(budget={"trials": 16, "seconds": 1.0}))
    assert 1 <= result.measured <= 8
    assert result.report["rounds"][-1]["stop"] == "seconds"


@pytest.mark.long
def test_rounds_that_fail_as_a_whole_do_not_end_the_search(tuned: Any) -> None:
    class FullDisk(FakeChildren):
        is_full = False

        def build(self, requests: Any) -> Any:
            full = BuildResult.failed("OSError: No space left on device")
            for result in super().build(requests):
                yield full if self.is_full else result

        def heard(self, event: Event) -> None:
            """It is full from the end of the first round to that of the third."""
            ended = re.match(r"round (\d+)", event.message)
            self.is_full = int(ended[1]) in {1, 2} if ended else self.is_full

    children = FullDisk()
    _, result = tuned(make_spec(budget=MANY), children=children, on_event=children.heard)
    rounds = result.report["rounds"]
    assert [d["number"] for d in rounds if d["failed"] == d["measured"] and d["measured"]] == [2, 3]
    assert [d["gain"] for d in rounds[1:3]] == [None, None]
    assert len(rounds) > 4, "the search went on"


def test_the_shapes_that_matter_are_in_the_planners_sample() -> None:
    weights = np.full(4096, 0.1 / 4095)
    weights[1234] = 0.9
    spec = make_spec()
    extents = {"m": np.arange(1, 4097), "n": np.full(4096, 96), "k": np.full(4096, 32)}
    planner = Planner(domain_of(spec), extents, weights, Search())
    (place,) = np.flatnonzero(planner.sample["m"] == 1235)
    assert len(planner.sample["m"]) == 256
    assert planner.sample_weights[place] == pytest.approx(0.9, abs=0.05)


def test_space_grows_for_a_badly_served_shape_behind_well_served_heavy_ones(own_cache: Path) -> None:
    spec = make_spec(
        shape_vars={"T": {"min": 1, "max": 128, "weights": {128: 0.97, 5: 0.03}}},
        dims={"m": "T", "n": 64, "k": 4096},
        budget=MANY,
    )
    result = make_library(spec, children=FakeChildren(), search=Search(metaschedule=False))
    grown = [e["shape"] for decision in result.report["rounds"] for e in decision["expansions"]]
    assert {"m": 5} in grown


@pytest.mark.long
def test_force_takes_nothing_over_from_other_workloads(tuned_first: Any, seeds: list[int]) -> None:
    tuned_first(make_spec(budget=MANY))
    search = Search(well_served=math.inf)
    result = make_library(second(), children=FakeChildren(), search=search, force=True)
    assert "from_workload" not in result.report["calibration"]
    assert result.report["seed"]["trials"] > 0
    assert len(seeds) == 2


@pytest.mark.long
def test_a_copied_calibration_is_not_copied_again(tuned: Any, tuned_first: Any, own_cache: Path) -> None:
    _, first = tuned_first(make_spec(budget=MANY))
    _, other = tuned(second(), folder="second")
    assert other.report["calibration"]["from_workload"] == first.report["workload_digest"]
    third = make_spec(name="third", dims={"m": "3*T", "n": 128, "k": 32}, budget=MANY)
    _, last = tuned(third, folder="third")
    assert last.report["calibration"]["from_workload"] == first.report["workload_digest"]


def test_a_calibration_outlives_the_records_that_it_was_measured_for() -> None:
    """Those that were measured for their own workload come first, then what others took from one."""
    given = [
        ({"kappa": 0.9}, "a"),
        ({"kappa": 0.8, "from_workload": "z"}, "b"),
        (None, "c"),
        ({"kappa": 1.0}, "d"),
    ]
    others = [SimpleNamespace(calibration=facts, workload=workload) for facts, workload in given]
    run: Any = SimpleNamespace(others=others)
    found = Exploration._earlier_calibrations(run)
    assert [(facts["kappa"], origin) for facts, origin in found] == [(1.0, "d"), (0.9, "a"), (0.8, "z")]


@pytest.mark.parametrize(("took", "charged"), [(5.0, 0.0), (30.0, 24.0)])
def test_calibrating_a_device_is_not_charged_to_a_short_budget(took: float, charged: float) -> None:
    """Up to half of its seconds."""
    now, appended = itertools.count(0.0, took), []

    def calibrate(most_secs: float) -> dict[str, Any]:
        assert most_secs == pytest.approx(1.2)
        return {"kappa": 1.0}

    run: Any = SimpleNamespace(
        records=SimpleNamespace(calibration=None),
        task=SimpleNamespace(spec=make_spec(budget={"trials": 6, "seconds": 12.0})),
        device=SimpleNamespace(calibrate=calibrate),
        store=SimpleNamespace(append=appended.append),
        clock=lambda: next(now),
        deadline=100.0,
        on_event=lambda _: None,
        _earlier_calibrations=list,
        _report_calibrated=lambda _: None,
    )
    Exploration._calibrate(run)
    assert appended == [{"kind": "calibration", "kappa": 1.0}]
    assert run.deadline == 100.0 + took - charged


@pytest.mark.parametrize(("least", "trials", "measured"), [(0, 9, 1), (4, 9, 4), (4, 3, 3)])
def test_so_many_are_measured_even_after_the_seconds(
    own_cache: Path, least: int, trials: int, measured: int
) -> None:
    spec = make_spec(budget={"trials": trials, "seconds": 0.001})
    search = Search(metaschedule=False, least=least)
    report = make_library(spec, children=FakeChildren(), search=search).report
    assert len(report["micro_kernels"]) + len(report["space"]["pruned"]) == measured
    assert report["rounds"][-1]["stop"] == ("trials" if measured == trials else "seconds")
