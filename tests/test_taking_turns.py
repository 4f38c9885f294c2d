"""Processes of pytest-xdist begin to collect at different folders."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import taking_turns

HERE = Path(__file__).parent


def config(args: list[str], worker: dict[str, Any] | None) -> Any:
    return SimpleNamespace(args=args, **({} if worker is None else {"workerinput": worker}))


def test_each_begins_elsewhere_and_collects_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking_turns, "_HEAVY", ((),))
    orders = []
    for number in range(4):
        given = config([str(HERE)], {"workerid": f"gw{number}", "workercount": 4})
        taking_turns.begin_elsewhere(given, HERE)
        orders.append(given.args)
    assert len({order[0] for order in orders}) == 4
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert {str(HERE / "models"), str(HERE / "test_lean.py")} <= set(orders[0])


@pytest.mark.parametrize(
    ("args", "worker"),
    [([str(HERE)], None), ([str(HERE / "cli")], {"workerid": "gw1", "workercount": 2})],
    ids=["one process", "a part of the tests"],
)
def test_what_is_left_as_it_is(args: list[str], worker: dict[str, Any] | None) -> None:
    given = config(list(args), worker)
    taking_turns.begin_elsewhere(given, HERE)
    assert given.args == args
