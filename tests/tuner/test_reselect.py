"""Other categories from a library's own report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import contents, make_spec

import dietcode
from benchmarks.fake_children import FakeChildren, Fault
from dietcode.errors import LibraryError, SpecError, TuningError
from dietcode.runtime.manifest import file_facts
from dietcode.tuner.report import records_of
from dietcode.tuner.reselect import reselect
from dietcode.workload.parse import spec_of


@pytest.mark.thorough
def test_the_same_objective_gives_the_same_bytes(tuned: Any, tuned_first: Any, tmp_path: Path) -> None:
    _, first = tuned_first()
    failing = first.report["micro_kernels"][0]["micro_kernel"]
    tuned(children=FakeChildren(faults={failing: Fault("time")}), force=True)
    children = FakeChildren()
    result = reselect(tmp_path / "lib", {}, tmp_path / "again", children=children)
    assert (children.timed, children.built, result.measured) == ([], [], 0)
    assert contents(tmp_path / "lib") == contents(tmp_path / "again")
    assert [row["micro_kernel"] for row in result.report["space"]["failed"]] == [failing]


def test_fewer_kernels_lose_more_and_the_library_is_right(tuned_first: Any, tmp_path: Path) -> None:
    _, before = tuned_first(make_spec(objective={"binary_size": 0.0}))
    after = reselect(tmp_path / "lib", {"max_kernels": 1}, tmp_path / "one", children=FakeChildren())
    assert len(before.report["selection"]["micro_kernels"]) > 1
    assert len(after.report["selection"]["micro_kernels"]) == 1
    assert after.report["selection"]["loss_mean"] >= before.report["selection"]["loss_mean"]
    library = dietcode.load(tmp_path / "one")
    assert library.manifest["workload"]["objective"]["max_kernels"] == 1
    w = np.random.default_rng(0).standard_normal((96, 32), dtype=np.float32)
    for t in (1, 7, 24):
        x = np.random.default_rng(t).standard_normal((3 * t, 32), dtype=np.float32)
        np.testing.assert_allclose(library(X=x, W=library.pack(W=w)), x @ w.T, rtol=1e-4, atol=1e-4)


def test_operands_and_variables_keep_their_order(tuned: Any, tmp_path: Path) -> None:
    spec = make_spec(
        op={"einsum": "mk,kn->mn"},
        tensors={"Z": {"dims": "mk", "dtype": "float32"}, "A": {"dims": "kn", "dtype": "float32"}},
        shape_vars={"T": {"min": 1, "max": 4}, "B": {"min": 1, "max": 3}},
        dims={"m": "3*T", "n": "16*B", "k": 32},
    )
    tuned(spec)
    manifest = json.loads((tmp_path / "lib" / "manifest.json").read_text())
    again = spec_of(manifest)
    assert again == spec and list(again.tensors) == ["Z", "A"] and list(again.shape_vars) == ["T", "B"]
    reselect(tmp_path / "lib", {}, tmp_path / "again", children=FakeChildren())
    assert contents(tmp_path / "lib") == contents(tmp_path / "again")


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"max_kernel": 1}, SpecError, "objective.max_kernel: unknown field"),
        ({"max_kernels": 0}, SpecError, "objective.max_kernels"),
        ({"max_bytes": 1}, TuningError, "max_bytes"),
    ],
)
def test_an_objective_that_is_refused_writes_nothing(
    tuned_first: Any,
    tmp_path: Path,
    changes: dict[str, Any],
    error: type[Exception],
    says: str,
) -> None:
    tuned_first()
    with pytest.raises(error, match=says) as caught:
        reselect(tmp_path / "lib", changes, tmp_path / "new", children=FakeChildren())
    assert "\n" not in str(caught.value) and not (tmp_path / "new").exists()


def test_a_report_without_measurements_is_refused(tuned_first: Any, tmp_path: Path) -> None:
    tuned_first()
    report = json.loads((tmp_path / "lib" / "report.json").read_text())
    assert records_of(report).measurements
    del report["micro_kernels"][0]["secs"]
    report["micro_kernels"][0]["rows"] = "x"
    data = json.dumps(report).encode()
    (tmp_path / "lib" / "report.json").write_bytes(data)
    manifest = json.loads((tmp_path / "lib" / "manifest.json").read_text())
    manifest["files"]["report.json"] = file_facts(data)
    (tmp_path / "lib" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(LibraryError, match="does not hold its measurements"):
        reselect(tmp_path / "lib", {}, tmp_path / "new", children=FakeChildren())
