"""A block tuned for real, in a minute at most; then again from its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_libraries import block_data
from small_runs import contents, records_file

import dietcode
from dietcode.cli.show import show_library
from dietcode.errors import SpecError
from dietcode.runtime.manifest import DISPATCH, REPORT, read_json, read_manifest
from dietcode.tuner.events import Event
from dietcode.tuner.tune import tune
from dietcode.workload.parse import spec_from_data

DATA = {
    "name": "norm",
    "op": {
        "block": {
            "version": 1,
            "graph": {"S": {"add": ["X", "R"]}, "Y": {"rmsnorm": "S", "axis": "n"}},
            "outputs": ["S", "Y"],
        }
    },
    "tensors": {"X": {"dims": "mn", "dtype": "float32"}, "R": {"dims": "mn", "dtype": "float32"}},
    "shape_vars": {"M": {"min": 1, "max": 64}},
    "dims": {"m": "M", "n": 100},
    "target": {"kind": "llvm", "num_cores": 2},
    "budget": {"trials": 3, "seconds": 60.0},
}


@pytest.mark.thorough
def test_a_block_is_tuned(tmp_path: Path, own_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, events = spec_from_data(DATA), list[Event]()
    result = tune(spec, tmp_path / "lib", on_event=events.append)
    stages = list(dict.fromkeys(event.stage for event in events))
    assert stages == ["calibrate", "measure", "select", "build", "verify"]  # MetaSchedule has no T0 for it
    assert 1 <= result.measured <= 3
    library = dietcode.load(tmp_path / "lib")
    for rows in (1, 7, 64):
        x, r = (np.random.default_rng(seed).standard_normal((rows, 100), dtype=np.float32) for seed in (0, 1))
        total, y = library(X=x, R=r)
        right = (x + r).astype(np.float64)
        assert np.array_equal(total, x + r)
        assert np.allclose(y, right / np.sqrt((right**2).mean(axis=1, keepdims=True) + 1e-6), rtol=1e-5)
    report = result.report
    assert report["problem"]["form"] == "rows" and len(report["memory"]["bytes"]) == 64
    assert min(report["memory"]["bandwidth"]["bytes_per_sec"]) > 0
    manifest = read_manifest(tmp_path / "lib")
    show_library(manifest, read_json(tmp_path / "lib" / DISPATCH), read_json(tmp_path / "lib" / REPORT))
    shown = capsys.readouterr().out
    assert "block  S = add(X, R); Y = rmsnorm(S; axis n, eps 1e-06)" in shown
    assert "GB/s at the largest instance" in shown and "not sought" in shown
    again = tune(spec, tmp_path / "again", records=records_file(own_cache))
    assert again.measured == 0
    assert contents(tmp_path / "again") == contents(tmp_path / "lib")


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        ({"Y": {"transpose": "X", "dims": "nm"}}, "for a block with transpose: a CPU"),
        ({"Y": {"sum": "X", "axis": "m"}}, "for reductions: a CPU where m are not the last indices"),
    ],
)
def test_what_gpus_have_no_code_for_is_refused(graph: dict[str, Any], said: str, tmp_path: Path) -> None:
    data = block_data("case", graph, ["Y"], tensors={"X": {"dims": "mn", "dtype": "float32"}})
    with pytest.raises(SpecError, match=said):
        tune(spec_from_data(data | {"target": {"kind": "cuda", "arch": "sm_90"}}), tmp_path / "lib")
