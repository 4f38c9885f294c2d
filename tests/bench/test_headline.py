"""The tables of workloads: made from results alone, and committed as the command writes them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import of_extra

pytest.importorskip("matplotlib", reason=of_extra("bench"))

from benchmarks import headline, headline_tables, over_range, single, sources
from benchmarks.evidence import pages, versions
from benchmarks.evidence.__main__ import OUTPUT


def result(commit: str, ratios: list[float], disturbed: int = 0) -> dict[str, Any]:
    facts = {"vendors": {"a": 50.0, "b": 100.0}, "predicted_gflops": 150.0, "disturbed": None, "of_roof": 0.7}
    rows: list[dict[str, Any]] = [
        {"shape_vars": {"T": size}, "measured_gflops": 100.0 * ratio, **facts}
        for size, ratio in zip((1, 4, 128), ratios, strict=True)
    ]
    rows += [{**rows[0], "measured_gflops": 9000.0, "disturbed": "something else"}] * disturbed
    summary = {
        "ratio": {"geomean": 1.2, "worst": 1.0, "worst_at": {"T": 5}},
        "peak_gflops": [300.0, 310.0, 320.0],
    }
    facts = {"device": "A processor", "cores": 2, "processor": {"family": 1, "model": 2}, "commit": commit}
    sizes = {"num_micro_kernels": 3, "library_bytes": 31864, "tuning": {"secs": 61.0, "cold": True}}
    return facts | sizes | {"workload": "bert-dense", "summary": summary, "instances": rows}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results of a made-up device."""
    (tmp_path / "cpu-bert-dense.json").write_text(json.dumps(result("abc-dirty", [1.0, 1.2, 1.4], 1)))
    gap = {
        **{"device": "A processor", "cores": 2, "commit": "def", "workload": "bert-dense"},
        **{
            "held_out": None,
            "num_instances": 9,
            "gap_mean": 0.02,
            "gap_mean_unscaled": 0.025,
            "gap_worst": 0.1,
            "worst_at": {"T": 1},
        },
        **{"bias": -0.01, "repeat_floor": 0.004},
        "instances": [
            {"predicted": 220.0, "measured": 200.0, "disturbed": None},
            {"predicted": 110.0, "measured": 100.0, "disturbed": None},
            {"predicted": 132.0, "measured": 100.0, "disturbed": None},
            {"predicted": 900.0, "measured": 100.0, "disturbed": "something else"},
        ],
    }
    (tmp_path / "prediction-bert-dense.json").write_text(json.dumps(gap))
    drawn = {"workload": "drawn", "instances": [{"predicted": 90.0}] * 3}
    (tmp_path / "prediction-drawn.json").write_text(json.dumps(drawn))
    score = {"score_median": 0.95, "score_least": 0.9, "score_most": 0.98}
    ablation = {
        **{"commit": "aaa", "workload": "bert-dense", "secs": 60.0, "trials": 96},
        "summary": {"full": {**score, "measured_median": 15.0, "secs_median": 52.4}},
        "runs": [{"variant": "full", "stop": "stalled"}, {"variant": "full"}],
        "instances": [{"disturbed": None}, {"disturbed": None}, {"disturbed": "something else"}],
    }
    (tmp_path / "ablation-bert-dense.json").write_text(json.dumps(ablation))
    shape = {"shape_vars": {"T": 24}}
    rates = {"metaschedule_gflops": 200.0, "dietcode_gflops": 300.0, "ratio": 1.5}
    curve = {
        **{"commit": "bbb", "workload": "bert-dense"},
        "rows": [
            {**shape, "trials": 16, **rates, "disturbed": None},
            {**shape, "trials": 32, **rates, "disturbed": "something else"},
            {**shape, "trials": 64, "failed": ["no records"]},
        ],
    }
    (tmp_path / "per-shape-curve-bert-dense.json").write_text(json.dumps(curve))
    brought = {"metaschedule": {"num_chosen": 1, "gain": 5e-4}, "tails": {"num_chosen": 2, "gain": 0.016}}
    source = {
        "workload": "bert-dense",
        "tuning_secs": 142.6,
        "metaschedule_secs": 62.3,
        "num_chosen": 3,
        "over_single": 1.04,
        "commit": "hhh",
    }
    (tmp_path / "sources.json").write_text(json.dumps({"rows": [{**source, "sources": brought}]}))
    one = {
        **{
            "device": "A processor",
            "cores": 2,
            "commit": "ccc",
            "workload": "two-dims",
            "num_chosen": 7,
            "best_single": "14x32",
            "instances": [
                {"shape_vars": {"M": size, "N": 64}, "gflops": {"library": rate, "14x32": 100.0}}
                for size, rate in ((1, 150.0), (17, 98.0))
            ],
        },
        **{"over_single_predicted": 1.031, "num_timed": 15},
        **{"most": 1.5, "most_at": {"M": 1, "N": 64}, "least": 0.98, "least_at": {"M": 512, "N": 64}},
    }
    (tmp_path / "single-two-dims.json").write_text(json.dumps(one))
    chosen = {
        **{"commit": "eee-dirty", "workload": "bert-dense", "num_micro_kernels": 21, "num_chosen": 3},
        **{"ratio_geomean": 0.984, "ratio_worst": 0.97},
        "instances": [
            {"shape_vars": {"T": 1}, "ratio": 1.0},
            {"shape_vars": {"T": 9}, "ratio": 0.97, "disturbed": None},
            {"shape_vars": {"T": 5}, "ratio": 0.2, "disturbed": "something else"},
        ],
    }
    (tmp_path / "oracle-bert-dense.json").write_text(json.dumps(chosen))
    alone = {
        **{"commit": "fff", "workload": "bert-dense"},
        "summary": {"ratio_geomean": 1.3, "ratio_worst": 1.2, "metaschedule_secs": 99.0},
        "instances": [{**shape, "trials": 128, "ratio": 1.2, "disturbed": None}],
    }
    (tmp_path / "per-shape-bert-dense.json").write_text(json.dumps(alone))
    bar = {"figure": "of_alone", "value": 0.59, "bar": "≥ 0.8", "is_met": False}
    call = {"situation": "numpy", "size": 8, "alone": 182.4, "gflops": 107.0, "commit": "ggg", "bars": [bar]}
    rows = [
        call,
        call | {"size": 49, "bars": [bar | {"is_met": True}]},
        call | {"disturbed": "something else"},
    ]
    (tmp_path / "company.json").write_text(json.dumps({"rounds": 3, "rows": rows}))
    return tmp_path


def test_a_gap_says_which_shapes_it_is_of(folder: Path) -> None:
    """Those that something disturbed are no part of it, and of a few all are measured by tuning."""
    row = json.loads((folder / "prediction-bert-dense.json").read_text())
    row |= {"num_disturbed": 2, "held_out": "left out of the fit"}
    assert "| bert-dense | 9 of 11 ‖ | 2.0% |" in headline_tables.gap_table([row])
    assert any(text.startswith("‖ Tuning measured these shapes") for text in headline.notes([row]))
    assert "‖" not in headline_tables.gap_table([row | {"held_out": "not measured in tuning"}])


def test_rows_say_their_commit_and_what_is_wrong_with_them(folder: Path) -> None:
    page = headline.page(folder)
    assert page.startswith("# Workloads: A processor, family 1, model 2, 2 cores\n")
    # Of 1.0, 1.2 and 1.4 at T = 1, 4 and 128 the last counts most: T up to 128 are all alike.
    assert "| 61 s (cold) | 3 | 32 kB | 1.34 × | 1.00 × (T = 5) | 70% |" in page and "| abc † § |" in page
    assert "| bert-dense | T = 1: 1.00, T = 4: 1.20, T = 128: 1.40 |" in page
    assert "| bert-dense ‡ | 9 | 2.0% | 2.5% | 10% (T = 1) | -1.0% | 6.7% | 0.4% | def § |" in page
    assert "† From a tree with uncommitted changes." in page and "‡ The record does not say" in page
    assert "drawn |" not in page and "Drawn, predicted and not measured: drawn (3 shapes)." in page
    # Predicted 150, measured 100, 120 and 140; what was disturbed is no part of it.
    assert "| 300 to 320 | 12% |  |  |  | abc † § |" in page, "no call was read between two of PyTorch's"
    assert "§ By an earlier generator" in page and "¶ The record does not say" in page


def test_a_row_says_how_old_the_code_is_that_it_was_measured_with(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"abc": versions.generator(), "def": "of another day"}
    monkeypatch.setattr(versions, "_generators", lambda: known)
    told = {
        name: headline_tables.commit({"commit": name, "num_disturbed": 0}) for name in ("abc", "def", "ghi")
    }
    assert told == {"abc": "abc", "def": "def §", "ghi": "ghi §"}
    known_device = {"processor": {"family": 1}}
    assert pages.to_be_known({"commit": "abc", **known_device}) == ""
    assert pages.to_be_known({"commit": "def-dirty", **known_device}) == (
        " Ours are of a tree with uncommitted changes. The generator of kernels was another one than today's."
    )
    assert "family and model were not noted" in pages.to_be_known({"commit": "abc"})
    row = {"commit": "abc-dirty", "date": "2026-01-02"}
    assert headline_tables.commit(row) == "abc, 2026-01-02 † ¶"
    assert headline.notes([row]) == [
        "† From a tree with uncommitted changes.",
        "¶ The record does not say whether something disturbed what was read.",
    ]


def test_generators_are_those_of_the_commits_that_records_name() -> None:
    """Where the history is there: what is noted of a commit is what its golden texts say."""
    noted = json.loads(versions.GENERATORS.read_text())
    texts = [path.read_text() for path in headline.RESULTS.glob("*/*.json")]
    named = {
        name.removesuffix("-dirty") for text in texts for name in re.findall(r'"commit": "([^"]+)"', text)
    }
    assert set(noted) <= named, "run python -m benchmarks.evidence.versions"
    if versions.generator_at("f892fe7", "") is None:
        pytest.skip("this clone has no history")
    assert noted == {name: digest for name in named if (digest := versions.generator_at(name, ""))}


def test_a_curve_says_how_far_its_own_readings_are_apart() -> None:
    rates = [(16, 200.0, 300.0), (32, 310.0, 320.0), (64, 330.0, 290.0)]
    rows = [
        {
            **{"shape_vars": {"T": 2}, "trials": trials, "tuning_secs": 80.0, "disturbed": None},
            **{"metaschedule_gflops": theirs, "dietcode_gflops": own, "ratio": own / theirs},
        }
        for trials, theirs, own in rates
    ]
    [part] = headline_tables.level_parts([*rows, rows[0] | {"disturbed": "something else"}])
    assert part == rows
    assert "read at 290 to 320 GFLOP/s" in headline_tables.level(part)
    reached = "32 trials reach its median, 40 s of this shape's tuning, if all trials take alike."
    assert headline_tables.level(part).endswith(reached)
    assert headline_tables.level(part[:1]).endswith("16 trials do not reach its median.")


def test_a_device_where_shapes_were_only_drawn_has_no_page(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path_factory.mktemp("results")
    for device, name in (("drawn", "prediction-drawn.json"), ("alone", "single-two-dims.json")):
        (results / device).mkdir()
        (results / device / name).write_text((folder / name).read_text())
    monkeypatch.setattr(headline, "RESULTS", results)
    assert [path.name for path in headline.devices()] == ["alone"]


def test_parts_of_the_search_and_budgets_of_one_shape_have_tables(folder: Path) -> None:
    page = headline.page(folder)
    assert (
        "| full | 2 | 0.950 | 0.900 | 0.980 | 15 | not noted | 52 | stalled 1, not noted 1 |" in page
        and "Commit aaa §." in page
    )
    assert "1 of 3 shapes were disturbed" in page and "MetaSchedule ran in every search" in page
    assert "| bert-dense | 21 | 3 | 97.1% | 97% (T = 9) | 2 | eee † § |" in page
    assert "bert-dense, 128 trials a shape, 99 s in all" in page and "(T = 24: 1.20 ×)" in page
    assert "| T = 24 | 16 | 200 | 300 | 1.50 × |" in page
    assert "| T = 24 | 32 | disturbed |" in page and "| T = 24 | 64 | not measured |" in page
    assert "| bert-dense | 143 s | 62 s | 3 | 1 | 0.05% | tails 1.60% | 1.040 × | hhh § ¶ |" in page
    assert "T = 24: still rising, or not known, at 16 trials" in page
    assert "| two-dims | 7 | 14x32 | 1.031 × | 0.987 × | 1.50 × (M = 1, N = 64) |" in page
    assert "| 0.98 × (M = 512, N = 64) | 15 | ccc § ¶ |" in page
    assert "| numpy | 8 | 182 | 107 | of_alone 0.59 ≥ 0.8 ✗ | ggg § ¶ |" in page
    assert "| numpy | 8 |  |  | disturbed | ggg § |" in page and "1 of 2 bars are missed" in page


def test_sources_are_read_from_a_library(tmp_path: Path) -> None:
    library = tmp_path / "bert-dense"
    library.mkdir()
    report = {
        "name": "bert-dense",
        "seed": None,
        "selection": {"micro_kernels": ["8x48"]},
        "provenance": {"hardware": {"chosen": ["8x48"], "measured": 4, "gain": 0.2}},
    }
    (library / "report.json").write_text(json.dumps(report))
    with pytest.raises(SystemExit, match="--tune-only"):
        sources.row_of(library)
    (tmp_path / "bert-dense.tuning.json").write_text('{"secs": 9.0}')
    assert sources.row_of(library) == {
        "workload": "bert-dense",
        "tuning_secs": 9.0,
        "disturbed": None,
        "metaschedule_secs": 0.0,
        "seed_reason": None,
        "num_chosen": 1,
        "sources": {"hardware": {"num_chosen": 1, "num_measured": 4, "gain": 0.2}},
    }


def test_an_ablation_says_how_many_trials_of_metaschedule_its_runs_had(folder: Path) -> None:
    (row,) = headline.found(folder, "ablation")
    for run, trials in zip(row["runs"], (24, 0), strict=True):
        run["metaschedule_trials"] = trials
    assert "| 15 | 0 to 24 | 52 |" in headline_tables.ablation(row)
    row["runs"][0]["metaschedule_trials"] = 0
    assert "| 15 | 0 | 52 |" in headline_tables.ablation(row)


def test_the_short_table_has_the_gap_beside_the_speed(folder: Path) -> None:
    (row,), (gap,) = headline.found(folder, "cpu"), headline.found(folder, "prediction")
    table = headline_tables.short_table([row], [gap])
    assert "| 2.0%, 10% at worst ‡ (def §) | 61 s (cold) | 3 |" in table
    assert "| 2.0%, 10% at worst ‖ | 61 s" in headline_tables.short_table(
        [row], [gap | {"held_out": "left out of the fit", "commit": row["commit"]}]
    )
    assert "| not measured | 61 s" in headline_tables.short_table([row], [])


def test_the_gain_of_a_free_choice_is_over_the_best_one_for_all() -> None:
    # One is twice as fast at the first shape, the other at two of three: the second one is the best single.
    throughput = np.array([[200.0, 100.0, 90.0], [50.0, 100.0, 90.0], [50.0, 100.0, 90.0]])
    assert sources.free_over_single(throughput) == pytest.approx(2 ** (1 / 3))
    assert sources.free_over_single(throughput[:, 1:]) == 1.0, "there is nothing to choose"


def test_the_best_single_one_is_the_one_that_was_measured_best() -> None:
    rates = [{"library": 200.0, "a": 100.0, "b": 190.0}, {"library": 90.0, "a": 80.0, "b": 90.0}]
    found = single.over_best([{"shape_vars": {"T": i}, "gflops": row} for i, row in enumerate(rates)])
    assert found["best_single"] == "b"
    assert found["over_single"] == pytest.approx((200 / 190) ** 0.5)
    assert (found["most_at"], found["least_at"], found["least"]) == ({"T": 0}, {"T": 1}, 1.0)


def test_a_mean_counts_every_instance_of_the_range() -> None:
    """The specs of examples: T in 1…128, four joint instances, and M in 1…256 with eight N."""
    sizes = np.arange(1, 129)
    for measured in ([128, 1], [5, 1, 44, 128], [9, 37]):
        shares = over_range.shares("bert-dense", [{"T": size} for size in measured])
        known = np.clip(sizes, min(measured), max(measured))
        assert shares.sum() == pytest.approx(1.0)
        assert shares @ np.log(measured) == pytest.approx(np.log(known).mean())
    joint = [{"I": 3072, "H": 768}, {"I": 768, "H": 768}, {"I": 768, "H": 2304}, {"I": 768, "H": 3072}]
    assert over_range.shares("bert-dense-hidden", joint) == pytest.approx([0.25] * 4)
    near = over_range.shares("two-dims", [{"M": 2, "N": 128}, {"M": 256, "N": 128}, {"M": 256, "N": 1024}])
    assert near * 256 * 8 == pytest.approx([147, 468, 1433]), "counted one by one"


def test_the_readme_has_todays_table_between_its_marks() -> None:
    text = headline.README.read_text()
    assert headline.with_table(text) == text, "run python -m benchmarks.headline"
    with pytest.raises(SystemExit, match="given 0 pairs"):
        headline.with_table("no marks")


@pytest.mark.parametrize("folder", headline.devices(), ids=lambda path: path.name)
def test_the_page_of_a_device_is_what_the_command_writes(folder: Path) -> None:
    written = (OUTPUT / folder.name / "workloads.md").read_text()
    assert written == headline.page(folder), "run python -m benchmarks.headline"
    assert f"{folder.name}/workloads" in (OUTPUT / "index.md").read_text()


def test_calls_one_by_one_between_pytorchs() -> None:
    rates = ((100.0, 50.0, 150.0), (80.0, 160.0, 80.0))
    rows = [
        {
            "predicted_gflops": predicted,
            "in_company": {"measured_gflops": own, "vendor_gflops": vendor},
            "disturbed": None,
            "shape_vars": {"I": 768, "H": size},  # near two of four instances each
        }
        for (own, vendor, predicted), size in zip(rates, (768, 3072), strict=True)
    ]
    row = {"workload": "bert-dense-hidden", "instances": rows}
    assert headline_tables.call_by_call(row) == ("1.00 ×", "0.50 ×", "25%")
    del rows[0]["in_company"]
    assert headline_tables.call_by_call(row) == ("", "", "")
