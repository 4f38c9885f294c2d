"""Curves over budgets of shapes tuned alone: which budgets, and where a curve is flat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from needs import of_extra

pytest.importorskip("tvm", reason=of_extra("tune"))

from benchmarks.per_shape import budgets, first_records, flat_parts, num_records


def row(trials: int, rate: float, disturbed: str | None = None, shape: int = 5) -> dict[str, Any]:
    facts = {"shape_vars": {"T": shape}, "trials": trials, "disturbed": disturbed}
    return facts | {"metaschedule_gflops": rate, "dietcode_gflops": 120.0, "ratio": 120.0 / rate}


def test_budgets_double_from_sixteen_to_all_there_are() -> None:
    assert budgets(128) == [16, 32, 64, 128]
    assert budgets(100) == [16, 32, 64, 100]
    assert budgets(7) == [7]


def test_a_smaller_budget_has_the_first_trials(tmp_path: Path) -> None:
    (tmp_path / "database_tuning_record.json").write_text("a\nb\nc\n")
    (tmp_path / "database_workload.json").write_text("w\n")
    with first_records(tmp_path, 2) as part:
        assert (part / "database_tuning_record.json").read_text() == "a\nb\n"
        assert num_records(part) == 2 and (part / "database_workload.json").read_text() == "w\n"
    assert not part.exists() and num_records(tmp_path) == 3


def test_a_curve_is_flat_where_twice_the_trials_bring_little() -> None:
    (rising,) = flat_parts([row(16, 50.0), row(32, 80.0), row(64, 100.0)])
    assert not rising["is_flat"] and rising["gain_of_last"] == pytest.approx(0.25)
    (flat,) = flat_parts([row(16, 50.0), row(32, 100.0), row(64, 101.0)])
    assert flat["is_flat"] and flat["trials"] == 64 and flat["ratio"] == pytest.approx(120.0 / 101.0)


def test_noise_and_few_more_trials_make_no_flat_curve() -> None:
    (known,) = flat_parts([row(16, 50.0), row(32, 100.0), row(64, 90.0, disturbed="something else")])
    assert known["trials"] == 32 and not known["is_flat"]
    (short,) = flat_parts([row(64, 100.0), row(80, 100.5)])
    assert not short["is_flat"], "a quarter more trials say little"
    (slower,) = flat_parts([row(16, 100.0), row(32, 95.0)])
    assert slower["ratio"] == pytest.approx(1.2), "the best so far counts, not a later slower reading"
    unsteady = [
        row(16, 50.0),
        row(32, 100.0) | {"dietcode_gflops": 90.0},
        row(64, 100.0) | {"dietcode_gflops": 110.0},
    ]
    assert flat_parts(unsteady)[0]["ratio"] == pytest.approx(1.1), (
        "the median of the library, not its last reading"
    )
    assert len(flat_parts([row(16, 50.0, shape=1), row(16, 50.0, shape=2)])) == 2
