"""Sample structures, counted; and which sizes a rule sends where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dietcode.dispatcher.tree import Branch, Leaf, Rule
from dietcode.errors import ModelError
from dietcode.graph.extent import Extent
from dietcode.graph.recursive_model import default_sizes
from dietcode.graph.samples import MAX_SHOWN
from dietcode.recursion.level_runs import KernelRuns, level_runs
from dietcode.recursion.sampling import load_samples, samples_of
from dietcode.runtime.recursion.structure import Structure

TREE = np.array([[1, 2], [3, 4], [-1, -1], [-1, -1], [-1, -1]], np.int32)  # the root comes first
PAIR = np.array([[-1, -1], [-1, -1], [0, 1]], np.int32)


def test_counts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "structures.npz"
    np.savez(path, first=TREE, second=PAIR, third=PAIR)
    found = load_samples(path)
    assert (found.num_calls, dict(found.nodes), dict(found.leaves)) == (3, {5: 1, 3: 2}, {3: 1, 2: 2})
    assert dict(found.levels) == {1: 4} and found.shown == ((), (), (0, 1))
    assert default_sizes(None, None, found) == (10, 2)
    assert default_sizes(8, None, found) == (8, 2)
    assert samples_of([Structure(TREE), PAIR, PAIR.tolist()], "given").nodes == found.nodes


def test_of_a_large_sample_one_tree_is_shown() -> None:
    many = np.concatenate([np.where(PAIR < 0, -1, PAIR + 3 * k) for k in range(MAX_SHOWN)])
    found = samples_of([many], "given")
    assert dict(found.levels) == {MAX_SHOWN: 1} and found.shown == ((), (), (0, 1))
    chain = np.arange(-1, MAX_SHOWN, dtype=np.int32).reshape(-1, 1)
    assert samples_of([chain], "given").shown == ()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([], "given has no structure with a node"),
        (7, "given is 7; allowed: a list of structures"),
        ([TREE, np.array([[0, -1]])], "given: '1': children: node 0 is its own descendant"),
        ([np.zeros(3, np.float32)], "'0': children: float32"),
    ],
)
def test_what_is_no_sample(given: Any, problem: str) -> None:
    with pytest.raises(ModelError) as refusal:
        samples_of(given, "given")
    assert problem in str(refusal.value)


def test_files_that_are_no_samples(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file"):
        load_samples(tmp_path / "none.npz")
    for content in (b"", b"PK\x03\x04spoilt", b"text"):
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(ModelError, match=r"not a file of numpy\.savez"):
            load_samples(tmp_path / "bad.npz")
    np.savez(tmp_path / "objects.npz", first=np.array([{}], object))
    with pytest.raises(ModelError, match=r"not a file of numpy\.savez"):
        load_samples(tmp_path / "objects.npz")


def test_runs_of_a_rule() -> None:
    """Rows B, twice as many of them, and a table that hardly matters."""
    large = Branch("Nt", 5000, Leaf(1), Leaf(0))
    rule = Rule(("Nm", "Nt"), 3, Branch("Nm", 6, Branch("Nm", 2, Leaf(0), Leaf(2)), large))
    variables = {"Nm": Extent.of("B") * 2, "Nt": Extent.of("T")}
    runs = level_runs(rule, variables, 10_000)
    assert runs == [(1, 1, 0), (2, 3, 2), (4, 4999, 1), (5000, 10_000, 0)]
    for rows in (1, 2, 3, 4, 17, 4999, 5000, 9999):
        wanted = rule.select({"Nm": 2 * rows, "Nt": max(rows + 1, 1024)})
        assert KernelRuns("cell", "ab", ("a", "b", "c"), runs).category_of(rows) == wanted
    assert level_runs(Rule(("Nm",), 1, Leaf(0)), variables, 5) == [(1, 5, 0)]
    found = samples_of([PAIR, TREE], "given")
    rows = KernelRuns("leaf", "ab", ("a", "b", "c"), runs[:2]).to_json(found)
    assert [(one["rows"], one["micro_kernel"], one["samples"]) for one in rows] == [
        ([1, 1], "a", 0),
        ([2, 3], "c", 2),
    ]
