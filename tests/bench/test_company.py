"""What is measured in company: each situation runs, and says what it was asked for."""

from __future__ import annotations

import pytest
from needs import of_extra
from small_libraries import built

from benchmarks.company import SITUATIONS, in_turns, measure, told


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_situation_is_measured(situation: str) -> None:
    pytest.importorskip("torch", reason=of_extra("bench"))
    row = measure(built("rows"), situation, 70, "auto", secs=0.02, rounds=1)
    with_partner = situation in {"torch", "compiled", "intel", "numpy"}
    partners = {"partner", "partner_gflops", "partner_of_alone"} if with_partner else set()
    serial = {"serial"} if situation == "taken" else set()
    assert set(row) == {"alone", "gflops", "of_alone", *partners, *serial}
    assert all(value > 0 for value in row.values())
    line = told(row | {"situation": situation, "size": 70, "threads": "auto"})
    assert line.startswith(situation) and ("partner" in line) == bool(partners)


def test_calls_take_turns() -> None:
    order: list[str] = []
    spent = in_turns([lambda: order.append("a"), lambda: order.append("b")], secs=0.01)
    assert len(spent) == 2 and all(secs > 0 for secs in spent)
    assert order[0::2] == ["a"] * (len(order) // 2) and order[1::2] == ["b"] * (len(order) // 2)
