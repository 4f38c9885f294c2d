"""Schedules of a recursion: each computes the same, the fastest on samples is kept, and all are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import of_extra
from recursion_runs import module_of, random_structure, run_plan
from small_libraries import untuned_library

import dietcode
from dietcode.graph.recursive_model import RecursiveModel
from dietcode.graph.samples import Samples, levels_of
from dietcode.measure.turns import Timings
from dietcode.recursion import trials
from dietcode.recursion.exporting import export_cells
from dietcode.recursion.planning import plan_recursion, schedules_of
from dietcode.recursion.schedules import (
    SCHEDULES,
    RecursionSchedule,
    multiply_adds_of,
    timed_structures,
    tried_structure,
)
from dietcode.recursion.trials import plan_by_counts, plans_of

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))
from forgetting_cells import CHILDREN, WORDS, H, X, forgetting  # noqa: E402


def drawn(kind: str, num_nodes: int) -> Any:
    random = np.random.default_rng(num_nodes)
    if kind == "words":
        return random.integers(0, WORDS, num_nodes)
    return random.standard_normal((num_nodes, X)).astype(np.float32)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["cell", "leaf", "words"])
def test_each_computes_the_same(kind: str) -> None:
    recursion = forgetting(kind)
    cells, weights = export_cells(recursion, "cell")
    facts = {}
    for schedule in SCHEDULES:
        plan = plan_recursion(cells, 200, 64, {}, schedule=schedule)
        facts[plan.facts["schedule"]] = plan.facts
        for seed, num_nodes, is_dag in ((1, 1, False), (2, 40, False), (3, 40, True)):
            structure = random_structure(seed, num_nodes, CHILDREN, is_dag)
            x = drawn(kind, num_nodes)
            for own, right in zip(
                run_plan(plan, weights, structure, x), recursion(structure, x, all_nodes=True), strict=False
            ):
                largest = max(1.0, float(right.abs().max()))
                np.testing.assert_allclose(own, right.numpy(), rtol=0, atol=2e-6 * largest)
    labels = {"plain", "refactored"}
    assert facts.keys() == (labels | {"unrolled", "unrolled and refactored"} if kind == "words" else labels)
    # Five gates and five products of c, of which one each is left; and the product of the sum.
    assert facts["plain"]["multiply_adds"]["cell"] == (2 * CHILDREN + 1) * H * H
    assert facts["refactored"]["multiply_adds"]["cell"] == (2 + 1) * H * H
    states = facts["plain"]["node_bytes"], facts["refactored"]["node_bytes"]
    assert states[1] - states[0] == 2 * 4 * H  # two more states


def test_what_is_worth_a_trial() -> None:
    cells, _ = export_cells(forgetting("cell"), "cell")
    found = schedules_of(cells, 200, 64)
    assert [schedule.label for schedule in found] == ["refactored", "plain"]
    below = tried_structure(None, CHILDREN, 200)
    sizes = list(map(len, levels_of(below)))
    assert len(below) == 200 // 31 * 31 and max(map(len, below)) <= CHILDREN
    inner, leaves = sum(sizes[1:]), sizes[0]
    # Leaves take their own products of x, and the two products of their states.
    assert found[RecursionSchedule(False, True)] == inner * (3 * H * H + 2 * X * H) + leaves * (
        2 * H * H + 2 * X * H
    )
    binary, _ = export_cells(dietcode.Recursion(Sum().eval(), children=2, states=[(H,)]), "cell")
    assert [schedule.label for schedule in schedules_of(binary, 200, 64)] == ["unrolled", "plain"]


class Sum(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.of_h = torch.nn.Linear(H, H)

    def forward(self, left: Any, right: Any) -> Any:
        return torch.tanh(self.of_h(left + right) + 1)


def test_where_nothing_can_be_timed() -> None:
    cells, _ = export_cells(forgetting("cell"), "cell")
    for shown, kept in (
        ((*[()] * 20, tuple(range(5)), (1, 2), (5, 20)), "plain"),  # nearly all are leaves
        (tuple((node - 1,) if node else () for node in range(30)), "refactored"),
    ):
        samples = Samples(1, {len(shown): 1}, {1: 1}, {1: 1}, shown)
        plans = plans_of(RecursiveModel(cells, 200, 64, samples), {})
        assert plan_by_counts(plans).facts["schedule"] == kept
        assert all(row["secs"] is None for row in plans[0].facts["schedules"])


def test_what_a_trial_runs_on() -> None:
    shown = ((), (), (0, 1))
    samples = Samples(3, {3: 1, 9: 2}, {2: 3}, {1: 3}, shown)
    assert tried_structure(samples, 2, 100) == [*map(list, shown), [], [], [3, 4], [], [], [6, 7]]
    assert len(tried_structure(samples, 2, 4)) == 3
    assert tried_structure(None, 1, 3)[:3] == [[], [0], [1]]
    assert tried_structure(None, 0, 1) == [[]]
    assert timed_structures(samples, 2, 100) == [tried_structure(samples, 2, 100)]
    few, many = timed_structures(None, 2, 16384)
    assert len(few) == 8 * 31 and len(many) == 16 * len(few) and many[-31:-1] != few[-31:-1]
    assert [[child - len(few) for child in row] for row in many[len(few) : 2 * len(few)]] == few
    assert len(timed_structures(None, 1, 31)) == 1
    assert multiply_adds_of(shown, {"cell": 7}, skips_leaves=False) == 21
    assert multiply_adds_of(shown, {"before": 100, "leaf": 3, "cell": 7}, skips_leaves=True) == 113
    assert multiply_adds_of(shown, {"leaf": 0, "first": 1, "cell": 7}, skips_leaves=False) == 1


_FILE = """
import sys
sys.path.insert(0, {folder!r})
from forgetting_cells import small
tree = small()
chains = [[[-1], *([at] for at in range(20))]]
"""


@pytest.fixture
def compiled(inside: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that compiles with kernels that nobody tuned, in this process."""
    if pytest.importorskip("tvm", reason=of_extra("models")) is None:
        return None
    from dietcode.models import compiling

    monkeypatch.setattr(compiling, "make_library", untuned_library)
    file = tmp_path / "trees.py"
    file.write_text(_FILE.format(folder=str(Path(__file__).parent)))

    def run(*options: object) -> tuple[Path, Any, Any]:
        bundle = tmp_path / "bundle"
        sizes = ("--max-nodes", "12000", "--max-level", "64")
        done = inside("compile", f"{file}:tree", "-o", bundle, *sizes, *options)
        assert bundle.is_dir(), done.stderr
        return bundle, done, module_of(file).tree

    return run


@pytest.mark.thorough
@pytest.mark.parametrize("fastest", [*(pytest.param(k, marks=pytest.mark.long) for k in range(2)), 2])
def test_the_fastest_is_kept(
    fastest: int, compiled: Any, inside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    secs = iter(
        ((1e-3, 0.5e-3), (1e-3, 8e-3))
    )  # of the one that is kept, and of others: the large call decides

    def timed(calls: Any, rounds: int) -> Timings:
        for call in calls.values():
            call()
        own, rest = next(secs)
        timings = Timings({name: own if at == fastest else rest for at, name in enumerate(calls)})
        timings.disturbed = "others" if fastest else None
        return timings

    monkeypatch.setattr(trials, "interleave", timed)
    bundle, _, recursion = compiled()
    report = json.loads((bundle / "report.json").read_text())
    rows = report["schedules"]
    assert sorted(row["schedule"] for row in rows) == ["plain", "refactored", "unrolled"]
    assert report["schedule"] == rows[fastest]["schedule"]
    assert [row["secs"] for row in rows] == [1e-3 if at == fastest else 2e-3 for at in range(3)]
    shown = inside("inspect", bundle).stdout
    assert (
        ("timed beside others" in shown) == (report.get("schedules_disturbed") is not None) == bool(fastest)
    )
    assert f"{report['schedule']}, kept: 1 ms" in shown and shown.count(", kept") == 1
    assert f"{report['node_bytes']} bytes for a node" in shown
    model = dietcode.load(bundle)
    structure = random_structure(3, 60, CHILDREN, is_dag=True)
    x = drawn("words", 60)
    right = recursion(structure, x, all_nodes=True)
    found = model(dietcode.Structure(structure.children), x, all_nodes=True)
    np.testing.assert_allclose(found, right.numpy(), rtol=0, atol=5e-6)


@pytest.mark.thorough
def test_structures_at_the_limits(compiled: Any) -> None:
    """Without nodes, of one, 10 000 levels high, a node of 40 parents; and memory as the manifest states."""
    bundle, done, recursion = compiled("--samples", "chains")
    report = json.loads((bundle / "report.json").read_text())
    assert all(row["secs"] > 0 for row in report["schedules"]) and " ms" in done.stderr
    model = dietcode.load(bundle)

    def check(children: Any) -> None:
        rows = np.asarray(children, np.int32).reshape(len(children), -1)
        x = drawn("words", len(rows))
        structure = dietcode.Structure(rows)
        found = model(structure, x, all_nodes=True)
        right = recursion(structure, x, all_nodes=True)
        assert found.shape == tuple(right.shape)
        np.testing.assert_allclose(found, right.numpy(), rtol=0, atol=5e-6)

    nothing = model(dietcode.Structure(np.empty((0, 2), np.int32)), drawn("words", 0))
    assert nothing.shape == (0, H)
    check([[-1, -1]])
    check([[-1], *([at] for at in range(9999))])
    below = np.full((42, CHILDREN), -1)
    below[1:41, 0] = 0
    below[41] = range(1, 1 + CHILDREN)
    check(below)
    stated = json.loads((bundle / "manifest.json").read_text())
    full = dietcode.Structure(np.full((12000, 1), -1, np.int32))
    model(full, drawn("words", 12000), all_nodes=True)
    used = max(one._memory.num_bytes for one in model._free)
    assert 12000 * stated["node_bytes"] <= used <= stated["workspace_bytes"]
