"""Processes of pytest-xdist collect at different folders, two of them first."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import taking_turns

HERE = Path(__file__).parent


def config(args: list[str], worker: dict[str, Any] | None, folder: Path = HERE) -> Any:
    options = SimpleNamespace(basetemp=str(folder / "popen"))
    return SimpleNamespace(args=args, option=options, **({} if worker is None else {"workerinput": worker}))


def test_two_begin_elsewhere_and_the_others_wait_for_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(taking_turns, "_HEAVY", ((), ()))
    every = [config([str(HERE)], {"workerid": f"gw{n}", "workercount": 4}, tmp_path) for n in range(4)]
    first, others = every[:2], every[2:]
    waiting = [Thread(target=taking_turns.begin_elsewhere, args=(one, HERE)) for one in others]
    for thread in waiting:
        thread.start()
    for one in first:
        assert all(thread.is_alive() for thread in waiting)
        taking_turns.begin_elsewhere(one, HERE)
        taking_turns.say_collected(one)
    for thread in waiting:
        thread.join(30.0)
        assert not thread.is_alive()
    orders = [one.args for one in every]
    assert orders[0][0] != orders[1][0]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert {str(HERE / "models"), str(HERE / "test_lean.py")} <= set(orders[0])


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(taking_turns, "_MOST_SECS", 0.1)
    given = config([str(HERE)], {"workerid": "gw3", "workercount": 4}, tmp_path)
    taking_turns.begin_elsewhere(given, HERE)
    assert len(given.args) > 10


@pytest.mark.parametrize(
    ("args", "worker"),
    [([str(HERE)], None), ([str(HERE / "cli")], {"workerid": "gw1", "workercount": 2})],
    ids=["one process", "a part of the tests"],
)
def test_what_is_left_as_it_is(args: list[str], worker: dict[str, Any] | None) -> None:
    given = config(list(args), worker)
    taking_turns.begin_elsewhere(given, HERE)
    assert given.args == args
