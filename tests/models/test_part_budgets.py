"""Seconds shared out among the parts of a model, and what is said of a search that they ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dietcode.models.budgets import (
    PartBudget,
    PartSearch,
    kept_search,
    search_of,
    shared_budgets,
    unfinished,
)


def test_parts_with_more_work_get_more() -> None:
    shared = shared_budgets({"small": 1, "large": 9}, 32, 60.0)
    assert {budget.trials for budget in shared.values()} == {32}
    # 10 s for building, a fifth of half of 50 s but a quarter at least, and by FLOPs
    assert shared["small"].seconds == pytest.approx(10 + 25 / 4 + 5, abs=0.1)
    assert shared["large"].seconds == pytest.approx(10 + 25 + 45)
    half = shared_budgets({"one": 3, "other": 1}, 32, 60.0)["other"]
    assert half.seconds == pytest.approx(10 + 25 / 2 + 12.5)  # half of its share


def test_parts_without_flops_share_alike_and_few_seconds_are_not_moved() -> None:
    assert {b.seconds for b in shared_budgets({"a": 0, "b": 0}, 8, 30.0).values()} == {30.0}
    assert {b.seconds for b in shared_budgets({"a": 1, "b": 99}, 8, 2.0).values()} == {2.0}
    assert shared_budgets({}, 8, 30.0) == {}


@pytest.mark.parametrize(
    ("stop", "trials", "seconds", "goes_on"),
    [
        ("seconds", 32, 30.0, False),
        ("seconds", 32, 44.0, False),
        ("seconds", 32, 45.0, True),
        ("seconds", 64, 30.0, False),
        ("trials", 32, 90.0, False),
        ("trials", 33, 30.0, True),
        ("converged", 64, 900.0, False),
        (None, 64, 900.0, False),
    ],
)
def test_a_larger_budget_goes_on_where_the_same_kind_ended_the_search(
    stop: str | None, trials: int, seconds: float, goes_on: bool
) -> None:
    search = PartSearch(5, stop, PartBudget(32, 30.0))
    assert search.goes_on_with(PartBudget(trials, seconds)) is goes_on


def test_searches_are_kept_beside_libraries(tmp_path: Path) -> None:
    search = PartSearch(5, "seconds", PartBudget(32, 30.5))
    file = tmp_path / "part.json"
    assert kept_search(file) is None
    file.write_text(json.dumps(search.to_json()))
    assert kept_search(file) == search
    for wrong in ("", "[]", '{"measured": 1}', '{"measured": 1, "stop": null, "budget": {"trials": 1}}'):
        file.write_text(wrong)
        assert kept_search(file) is None


def test_a_report_without_rounds_tells_no_stop() -> None:
    rounds: list[dict[str, Any]] = [{"stop": None}, {"stop": "stalled"}]
    budget, space = PartBudget(1, 1.0), {"measured": 2, "pruned": [{}]}
    assert search_of({"space": space, "rounds": rounds}, budget) == PartSearch(3, "stalled", budget)
    assert search_of({"space": space, "rounds": []}, budget).stop is None


def _part(name: str, flops: int, measured: int, stop: str | None) -> dict[str, Any]:
    search = PartSearch(measured, stop, PartBudget(32, 30.0)).to_json()
    return {"name": name, "flops_at_most": flops, "search": search}


def test_what_is_said_names_the_parts_and_what_to_type() -> None:
    done = [_part("a", 10, 9, "converged"), _part("b", 10, 32, "trials"), _part("c", 10, 1, "exhausted")]
    assert unfinished(done) is None
    assert unfinished([{"name": "old", "flops_at_most": 1, "search": None}]) is None
    text = unfinished([*done, _part("dense", 60, 1, "seconds"), _part("norm", 10, 4, "seconds")])
    assert text == (
        "the budget ended the search of 2 of 5 parts, 70% of the FLOPs; fewest micro-kernels measured: "
        "dense with 1, norm with 4; compile again with --seconds 60 to go on from there"
    )
    text = unfinished([_part("dense", 0, 1, "trials")])
    assert str(text).endswith("dense with 1; compile again with --trials 32 to go on from there")
