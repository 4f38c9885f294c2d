"""Libraries without MetaSchedule: on a machine too busy for it, and where it has nothing to add."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from small_runs import contents, make_spec, records_file

import dietcode
from benchmarks.fake_children import FakeChildren, FakeSeedSearch
from dietcode.cli.show import show_library
from dietcode.measure.records import read_records
from dietcode.runtime.manifest import DISPATCH, REPORT, read_json, read_manifest
from dietcode.tuner.events import Event
from dietcode.tuner.search import Search
from dietcode.tuner.seeding import Seeding
from dietcode.tuner.tune import make_library, write_library


@pytest.mark.thorough
def test_tiles_of_the_register_file_take_the_place_of_a_seed(
    tuned: Any,
    tmp_path: Path,
    own_cache: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[Event] = []
    children = FakeChildren(seeds=FakeSeedSearch("MetaSchedule finished no trial in 24 s"))
    _, result = tuned(children=children, on_event=heard.append)
    (said,) = [event.message for event in heard if event.stage == "seed"]
    assert said == "MetaSchedule finished no trial in 24 s; going on with tiles of the register file"
    assert result.report["seed"] is None
    assert "metaschedule" not in {row["provenance"] for row in result.report["micro_kernels"]}
    assert read_records(records_file(own_cache)).seed is None
    dietcode.load(tmp_path / "lib")
    folder = tmp_path / "lib"
    show_library(read_manifest(folder), read_json(folder / DISPATCH), read_json(folder / REPORT))
    assert "finished no trial" in capsys.readouterr().out

    judged: list[Any] = []
    judge = Seeding.after_first_round

    def watched(seeding: Seeding, decision: Mapping[str, Any]) -> None:
        judged.append(decision["number"])
        judge(seeding, decision)

    monkeypatch.setattr(Seeding, "after_first_round", watched)
    _, later = tuned(folder="later")
    assert judged == [1], "of a model that had seen nothing of this workload"
    assert later.report["seed"]["tile"] == [4, 32], "a later run tries again"
    assert contents(tmp_path / "later") != contents(folder)


def test_where_the_first_round_reaches_the_reference_kernels_rate_metaschedule_is_not_run(
    tmp_path: Path, own_cache: Path, seeds: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[Event] = []
    search, folder = Search(well_served=0.5), tmp_path / "lib"
    result = make_library(make_spec(), children=FakeChildren(), search=search, on_event=heard.append)
    assert (seeds, result.report["seed"]["trials"]) == ([], 0)
    assert result.measured == 16, "none of the trials went to the seed"
    assert "metaschedule" not in {row["provenance"] for row in result.report["micro_kernels"]}
    (said,) = [event.message for event in heard if event.stage == "seed"]
    rates = re.search(r"reached (\d+) GFLOP/s at the largest instance, the reference kernel (\d+), so", said)
    assert rates is not None
    assert int(rates[1]) >= 0.5 * int(rates[2])
    write_library(result, folder)
    show_library(read_manifest(folder), read_json(folder / DISPATCH), read_json(folder / REPORT))
    assert "of the space" in capsys.readouterr().out

    later = make_library(make_spec(), children=FakeChildren(), search=search)
    assert (later.measured, later.report["seed"]) == (0, result.report["seed"]), "it stands on record"


def test_where_the_first_round_stays_below_it_metaschedule_runs_then(tuned: Any, seeds: list[int]) -> None:
    heard: list[Event] = []
    tuned(on_event=heard.append)
    stages = list(dict.fromkeys(event.stage for event in heard))
    assert stages.index("seed") > stages.index("measure")
    assert seeds == [4]
