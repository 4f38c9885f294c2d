"""On a fresh clone all processes of pytest-xdist would compile the same modules at the same time.

So two of them begin, each with other ones, and find most of the rest compiled; the others wait until they
have collected. Where all is compiled that takes two processors as long as all of them at once.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from pathlib import Path
from typing import Any

import pytest

# What takes longest to compile, in about equal parts; the tests import all of it in any case.
_HEAVY = (
    ("torch",),
    ("sqlalchemy.orm", "scipy.optimize", "pydantic", "fastapi", "playwright.sync_api", "tvm"),
)
_FIRST = len(_HEAVY)
_MOST_SECS = 90.0  # should one of the first be lost


def begin_elsewhere(config: pytest.Config, tests: Path) -> None:
    """Where several processes collect all tests, let this one begin with another folder than the others.

    The tests have to be sorted afterwards: all processes must have them in the same order.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or [Path(one).resolve() for one in config.args] != [tests]:
        return
    number = _number(worker)
    if number >= _FIRST:
        _wait_for_the_first(config)
    for name in _HEAVY[number] if number < _FIRST else ():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    folders = sorted(str(path) for path in tests.iterdir() if path.is_dir() or path.match("test_*.py"))
    begin = number % _FIRST * len(folders) // _FIRST
    config.args[:] = folders[begin:] + folders[:begin]


def say_collected(config: pytest.Config) -> None:
    """Let the processes begin that wait for this one."""
    worker = getattr(config, "workerinput", None)
    if worker is not None and _number(worker) < _FIRST:
        _mark(config, _number(worker)).touch()


def _wait_for_the_first(config: pytest.Config) -> None:
    until = time.monotonic() + _MOST_SECS
    while time.monotonic() < until and not all(_mark(config, one).exists() for one in range(_FIRST)):
        time.sleep(0.05)


def _number(worker: dict[str, Any]) -> int:
    return int(worker["workerid"].removeprefix("gw"))


def _mark(config: pytest.Config, number: int) -> Path:
    """The file that says that a process has collected, in the folder of this run's temporary files."""
    return Path(config.option.basetemp).parent / f"collected-{number}"
