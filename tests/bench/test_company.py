"""What is measured in company: each situation runs, and says what it was asked for."""

from __future__ import annotations

import pytest
from needs import of_extra
from small_libraries import built

from benchmarks.company import CALLS, Bar, bars, told
from benchmarks.company_calls import tiny_calls
from benchmarks.company_rounds import ROUNDS, in_slices, in_turns, measure

FIGURES = {
    "alone": {"gflops_torch", "of_tvm", "torch_of_tvm"},
    "taken": {"serial", "of_serial"},
    **{situation: {"of_alone"} for situation in ("callers", "mixed")},
    **{situation: {"of_alone", "control"} for situation in ("idle-30", "idle-200")},
}
BESIDE_A_PARTNER = {"of_alone", "control", "partner", "partner_gflops", "partner_of_alone", "partner_control"}


# On request alone, and as "torch" or "numpy" but for what is beside it.
LONG = {"compiled", "intel", "numpy-asleep"}


@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize(
    "situation", [pytest.param(one, marks=pytest.mark.long if one in LONG else ()) for one in ROUNDS]
)
def test_a_situation_is_measured(situation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason=of_extra("bench"))
    monkeypatch.setattr("benchmarks.company_rounds._SLICES", 1)  # each waits until threads sleep
    row = measure(built("rows"), situation, 70, "auto", secs=0.02, rounds=1)
    reading = {"partner_reading"} if situation in {"torch", "compiled", "intel"} else set()
    assert set(row) == {"alone", "gflops", "spread", *FIGURES.get(situation, BESIDE_A_PARTNER), *reading}
    assert all(value > 0 for value in row.values())
    wanted = bars(situation, 70)
    line = told(row | {"situation": situation, "size": 70, "bars": [bar.told(row) for bar in wanted]})
    assert line.startswith(situation) and all(bar.figure in line for bar in wanted)


def test_tiny_calls_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason=of_extra("bench"))
    monkeypatch.setattr("benchmarks.company_calls._READINGS", 3)
    row = tiny_calls(built("rows"), 1)
    assert {bar.figure for bar in bars(CALLS, 1)} < set(row) and all(value > 0 for value in row.values())


@pytest.mark.parametrize(
    ("bar", "is_met"), [(Bar("a", 1.5), True), (Bar("a", 2.5), False), (Bar("a", 2.0), True)]
)
def test_a_bar_is_met_or_not(bar: Bar, is_met: bool) -> None:
    assert bar.told({"a": 2.0}) == {"figure": "a", "value": 2.0, "bar": f"≥ {bar.bound:g}", "is_met": is_met}
    most = Bar("a", bar.bound, is_most=True).told({"a": 2.0})
    assert most["is_met"] is (not is_met or bar.bound == 2.0) and most["bar"].startswith("≤")


def test_calls_take_turns() -> None:
    order: list[str] = []
    spent, number = in_turns([lambda: order.append("a"), lambda: order.append("b")], secs=0.01)
    assert len(spent) == 2 and all(secs > 0 for secs in spent) and 0 < number <= len(order) // 2
    assert order[0::2] == ["a"] * (len(order) // 2) and order[1::2] == ["b"] * (len(order) // 2)


def test_parts_take_turns() -> None:
    order: list[str] = []
    found = in_slices(
        {"one": [lambda: order.append("a")], "two": [lambda: order.append("b")]}, 0.01, settle=0
    )
    assert set(found) == {"one", "two"} and all(secs > 0 for (secs,) in found.values())
    kept = [now for before, now in zip(["", *order], order, strict=False) if now != before]
    assert kept == ["a", "b"] * (len(kept) // 2) and len(kept) > 2
