"""A finished library is run in every category, and one that is wrong anywhere is not written."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from small_libraries import make_parts, spec_data
from spoiled import spoil

from dietcode.backends.cpu.measuring import MeasuringCpu
from dietcode.dispatcher.rule import Branch, Leaf, Rule
from dietcode.errors import TuningError
from dietcode.library.build import library_files
from dietcode.library.parts import Parts
from dietcode.measure.cpu_worker import CpuWorker
from dietcode.measure.local import LocalChildren
from dietcode.measure.measurer import Measurer
from dietcode.measure.store import FileKeeper
from dietcode.runtime.manifest import CODE
from dietcode.search_space.candidate import Candidate
from dietcode.search_space.cpu.limits import Limits
from dietcode.target.cpu import device_record
from dietcode.tuner import verification
from dietcode.tuner.events import Event
from dietcode.tuner.trials import Trials
from dietcode.tuner.verification import NUM_LEAST, NUM_MOST, choose_checked, verify

ROWS = 301
SPEC = spec_data("rows", shape_vars={"M": {"min": 1, "max": ROWS}}, dims={"m": "M", "n": 100, "k": 37})
# The second category serves two shapes alone, which eight shapes spread over all do not meet.
RULE = Rule(("M",), 2, Branch("M", 4, Leaf(0), Branch("M", 6, Leaf(1), Leaf(0))))


@st.composite
def problems(draw: Any) -> tuple[Any, Any, Any]:
    """Work, category and raggedness of a few hundred instances."""
    count = draw(st.integers(1, 300))
    work = draw(arrays.arrays(np.float64, count, elements=st.integers(1, 50).map(float)))
    categories = draw(arrays.arrays(np.int64, count, elements=st.integers(0, draw(st.integers(0, 150)))))
    return work, categories, draw(arrays.arrays(np.int64, count, elements=st.integers(0, 3)))


@given(problems())
def test_every_category_is_checked_at_its_ends_and_where_it_is_ragged(problem: tuple[Any, Any, Any]) -> None:
    work, categories, num_ragged = problem
    picked = choose_checked(work, categories, num_ragged)
    served = np.unique(categories)
    assert len(set(picked)) == len(picked) <= max(NUM_MOST, len(served))
    assert set(picked) <= set(range(len(work)))
    assert len(picked) >= min(NUM_LEAST, len(work), NUM_MOST)
    for category in served:
        own = np.flatnonzero(categories == category)
        at = [row for row in picked if categories[row] == category]
        assert work[at].max() == work[own].max()
        if 3 * len(served) <= NUM_MOST:
            assert work[at].min() == work[own].min()
            assert num_ragged[at].max() == num_ragged[own].max()


@pytest.fixture(scope="module")
def children() -> Iterator[LocalChildren]:
    before = dict(os.environ)
    made = LocalChildren(CpuWorker(2), num_builders=1)
    yield made
    made.close()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="module")
def parts() -> Parts:
    made: Parts = dataclasses.replace(make_parts(SPEC), rule=RULE)
    return made


@pytest.fixture(scope="module")
def files(parts: Parts) -> Mapping[str, bytes]:
    return library_files(parts)


def verified(parts: Parts, files: Mapping[str, bytes], children: LocalChildren) -> list[Event]:
    heard: list[Event] = []
    verify(parts.task, files, Limits.of(parts.target), children, heard.append)
    return heard


WRONG = {
    "in one category": ("if (variable == 5 || variable == 6) values[0] += 1;", "'M': [56]"),
    "at large extents": ("if (rows > 290) values[(rows - 5) * columns] += 1;", f"'M': {ROWS}"),
    "in the last ragged row": ("if (rows % 3) values[rows * columns - 1] += 1;", "'M': [0-9]+"),
    "where nothing is written": ("if (rows > 290) values[100 * columns] = 0.0 / 0.0;", f"'M': {ROWS}"),
}


@pytest.mark.parametrize("max_flops", [1e12, 3e6], ids=["whole", "sampled"])
def test_a_right_library_is_right(
    parts: Parts,
    files: Mapping[str, bytes],
    children: LocalChildren,
    monkeypatch: pytest.MonkeyPatch,
    max_flops: float,
) -> None:
    monkeypatch.setattr(verification, "_MAX_FLOPS", max_flops)
    (event,) = verified(parts, files, children)
    assert (event.stage, event.message) == ("verify", "right on 11 instances against float64")


@pytest.mark.parametrize("where", WRONG)
@pytest.mark.parametrize("max_flops", [1e12, 3e6], ids=["whole", "sampled"])
def test_a_library_that_is_wrong_somewhere_is_refused(
    where: str,
    max_flops: float,
    parts: Parts,
    files: Mapping[str, bytes],
    children: LocalChildren,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body, binding = WRONG[where]
    (tmp_path / CODE).write_bytes(files[CODE])
    spoil(tmp_path / CODE, body)
    monkeypatch.setattr(verification, "_MAX_FLOPS", max_flops)
    with pytest.raises(TuningError, match=rf"the finished library fails at {{{binding}}}: .*wrong result"):
        verified(parts, {**files, CODE: (tmp_path / CODE).read_bytes()}, children)


def test_a_candidate_that_is_wrong_at_large_extents_is_refused(
    parts: Parts, children: LocalChildren, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, builds = parts.task, children.build

    def spoiled_builds(requests: Any) -> Any:
        for request, outcome in zip(requests, builds(requests), strict=True):
            if request.recipe.micro_kernels[0] == parts.micro_kernels[1]:
                spoil(Path(request.path), "if (rows > 200) values[(rows - 2) * columns] += 1;")
            yield outcome

    monkeypatch.setattr(children, "build", spoiled_builds)
    store = FileKeeper().open(task.digest, device_record(parts.target))
    with Measurer(children, task.problem, task.variables, parts.target, min_secs=1e-4) as measurer:
        trials = Trials(task, store, MeasuringCpu(measurer), None)
        batch = [Candidate(kernel, "a test") for kernel in parts.micro_kernels]
        right, wrong = trials.measure(batch, lambda: False)
    assert right.error is None
    assert "wrong result: error" in str(wrong.error) and f"'m': {ROWS}" in str(wrong.error)
