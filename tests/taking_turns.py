"""On a fresh clone all processes of pytest-xdist would compile the same modules at the same time.

So each begins with other ones, and finds most of the rest compiled.
"""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path

import pytest

# What takes longest to compile, in about equal parts; the tests import all of it in any case.
_HEAVY = (
    ("torch",),
    ("sqlalchemy.orm", "scipy.optimize", "pydantic", "fastapi", "playwright.sync_api", "tvm"),
    ("sympy", "torch"),
    ("numpy", "tvm"),
)


def begin_elsewhere(config: pytest.Config, tests: Path) -> None:
    """Where several processes collect all tests, let this one begin with another folder than the others.

    The tests have to be sorted afterwards: all processes must have them in the same order.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or [Path(one).resolve() for one in config.args] != [tests]:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), int(worker["workercount"])
    for name in _HEAVY[number % len(_HEAVY)]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    folders = sorted(str(path) for path in tests.iterdir() if path.is_dir() or path.match("test_*.py"))
    begin = number * len(folders) // count
    config.args[:] = folders[begin:] + folders[:begin]
