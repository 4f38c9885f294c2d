"""The two vector units that kernels are compiled for."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from compiled import cpu_target
from pairwise import covering
from turns import ALL, TARGETS, units_of

from dietcode.target.cpu import CpuTarget

_cases: dict[str, dict[str, int]] = defaultdict(dict)  # the numbers of each test's, or a file's names


def pytest_itemcollected(item: pytest.Item) -> None:
    """Cases take turns on the vector units: what they vary and the width of a vector are asked for elsewhere.

    Of each case, and of a test that has no others, one stays in `make test`, so that a file has both units;
    `make test-long` runs all.
    """
    callspec = getattr(item, "callspec", None)
    if callspec is None or item.path.name == "test_guard_pages.py" or "target" not in callspec.params:
        return
    test = item.nodeid.partition("[")[0]
    others = callspec.id.partition("-")[2] or test  # the vector unit stands first
    # What is compiled for a name is shared by the tests of a file.
    named = "name" in callspec.params
    cases = _cases[test if "-" in callspec.id and not named else item.path.name]
    units = units_of(cases.setdefault(callspec.params["name"] if named else others, len(cases)))
    if units and callspec.params["target"] not in units:
        item.add_marker(pytest.mark.long)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In `make test-long` cases that vary three parameters or more are covered pairwise.

    All their combinations compile for minutes, and say nothing of two values that others do not.
    """
    if not ALL:
        return
    varied: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec is None or Path(__file__).parent not in item.path.parents:
            continue
        if len(callspec.params) > 2 and "name" not in callspec.params:
            varied[item.nodeid.partition("[")[0]].append(item)
    left: set[pytest.Item] = set()
    for found in varied.values():
        chosen = covering([_values(item) for item in found])
        left.update(item for position, item in enumerate(found) if position not in chosen)
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]


def _values(item: pytest.Item) -> dict[str, str]:
    callspec = getattr(item, "callspec")  # noqa: B009 - items of functions have it
    return {key: repr(value) for key, value in callspec.params.items()}


@pytest.fixture(params=TARGETS, ids=["avx2", "avx512"])
def target(request: pytest.FixtureRequest) -> CpuTarget:
    found = cpu_target(request.param)
    if not found.runs_here:
        pytest.skip(f"this CPU cannot run {request.param} code")
    return found


@pytest.fixture
def avx2() -> CpuTarget:
    found = cpu_target("haswell")
    if not found.runs_here:
        pytest.skip("this CPU has no AVX2")
    return found
