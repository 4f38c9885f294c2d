"""A machine too busy for MetaSchedule still gets a library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import contents, records_file

import dietcode
from benchmarks.fake_children import FakeChildren, FakeSeedSearch
from dietcode.cli.show import show_library
from dietcode.measure.records import read_records
from dietcode.runtime.manifest import DISPATCH, REPORT, read_json, read_manifest
from dietcode.tuner.events import Event


def test_tiles_of_the_register_file_take_the_place_of_a_seed(
    tuned: Any,
    tmp_path: Path,
    own_cache: Path,
    capsys: pytest.CaptureFixture[str],
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

    _, later = tuned(folder="later")
    assert later.report["seed"]["tile"] == [4, 32], "a later run tries again"
    assert contents(tmp_path / "later") != contents(folder)
