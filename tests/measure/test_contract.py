"""What `Children` promise, on every implementation: whatever goes wrong costs one result."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from child_processes import gone
from implementations import IMPLEMENTATIONS, Case

from benchmarks.fake_children import FakeChildren
from dietcode.backends.table import BACKENDS
from dietcode.measure.cpu_worker import CpuRecipe

# Those of a network have tests of their own in `engines/`; a cluster and a tracker take seconds to start.
CASES = [
    pytest.param(name, marks=pytest.mark.long) if name.startswith(("ray", "rpc")) else name
    for name in IMPLEMENTATIONS
]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    before = dict(os.environ)
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIETCODE_CACHE", str(cache))  # whose lock other tests hold
        try:
            with IMPLEMENTATIONS[request.param](tmp_path_factory.mktemp("code")) as made:
                yield made
        finally:
            os.environ.clear()
            os.environ.update(before)


@pytest.fixture(scope="module")
def right(case: Case) -> str:
    """Code that is right."""
    (built,) = case.children.build([case.build["right"]])
    assert built.path is not None, built.error
    recipe: Any = case.build["right"].recipe
    if not isinstance(case.children, FakeChildren):
        kernel = recipe.micro_kernels[0] if isinstance(recipe, CpuRecipe) else recipe.micro_kernel
        now = BACKENDS[recipe.target.kind].code_digest(recipe.problem, recipe.target, kernel)
        assert built.code == now, "known by the source that is generated now"
    return built.path


def works(case: Case, right: str) -> None:
    """Right numbers, and times that are times."""
    checked = case.check("right", right)
    assert checked.error is None and 0.0 <= checked.max_error < 1e-5
    timed = case.time("right", right)
    assert timed.error is None, timed.error
    assert len(timed.secs) == len(case.points)
    assert all(1e-8 < secs < 1.0 for secs in timed.secs)


def is_one_line(error: Any) -> bool:
    return isinstance(error, str) and 0 < len(error) <= 300 and "\n" not in error


def test_builds_come_back_in_order_and_a_failure_costs_itself(case: Case) -> None:
    asked = [case.build[name] for name in ("other", "fails", "right")]
    other, fails, right = case.children.build(asked)
    assert [other.path, fails.path, right.path] == [asked[0].path, None, asked[2].path]
    assert (other.error, right.error) == (None, None)
    assert is_one_line(fails.error)
    assert other.object_bytes > 0 and other.secs > 0
    assert case.time("other", asked[0].path).error is None


def test_right_numbers(case: Case, right: str) -> None:
    works(case, right)


def test_wrong_numbers(case: Case, right: str) -> None:
    found = case.check("wrong", case.broken["wrong"])
    assert found.max_error is None and is_one_line(found.error)
    assert case.children.slot == "fake" or "wrong result: error nan of the output's scale" in found.error
    works(case, right)


def test_a_crash_costs_itself(case: Case, right: str) -> None:
    found = case.run_broken("crashes")
    assert is_one_line(found.error) and found == type(found).failed(found.error)
    works(case, right)


def test_a_hang_ends_with_its_timeout(case: Case, right: str) -> None:
    works(case, right)
    started = time.monotonic()
    found = case.run_broken("hangs", 1.0)
    assert time.monotonic() - started < 30.0
    assert found == type(found).failed("no answer within 1 s; the process was ended")
    works(case, right)


def test_what_is_asked_and_answered_travels(case: Case, right: str) -> None:
    answers = [*case.children.build([case.build["fails"]]), case.check("right", right)]
    for one in (*case.build.values(), *answers):
        assert pickle.loads(pickle.dumps(one)) == one


def test_closing_ends_the_processes(case: Case, tmp_path: Path) -> None:
    """Last: of implementations that have one device it closes the children of all tests."""
    works(case, next(case.children.build([case.build["right"]])).path or "")
    processes = case.processes()
    assert bool(processes) == bool(case.roots)
    case.children.close()
    assert gone(processes) and not case.processes()
