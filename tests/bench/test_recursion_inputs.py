"""The structures that recursions are measured on."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.recursion_inputs import KINDS, batch_of, described, sentence_tree


def test_perfect_trees_grids_and_sequences() -> None:
    trees = batch_of("perfect", 3)
    assert (trees.num_nodes, len(trees.roots), trees.num_leaves) == (3 * 255, 3, 3 * 128)
    assert np.diff(trees.level_begins).tolist() == [3 * 2**level for level in range(7, -1, -1)]
    grids = batch_of("grids", 2)
    assert np.diff(grids.level_begins).tolist() == [2 * min(k, 20 - k) for k in range(1, 20)]
    assert (grids.roots == [99, 199]).all()
    assert np.diff(batch_of("sequences", 5).level_begins).tolist() == [5] * 100


def test_sentences_are_binary_and_of_the_stated_sizes() -> None:
    rng = np.random.default_rng(0)
    leaves = []
    for _ in range(300):
        rows = sentence_tree(rng)
        assert all((left < 0) == (right < 0) for left, right in rows)
        leaves.append(sum(left < 0 for left, _ in rows))
        assert len(rows) == 2 * leaves[-1] - 1
    assert min(leaves) >= 2 and max(leaves) <= 52 and 17 < np.mean(leaves) < 21


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_has_a_root_for_each(kind: str) -> None:
    structure = batch_of(kind, 4, seed=3)
    assert len(structure.roots) == 4
    again = batch_of(kind, 4, seed=3)
    assert (again.children == structure.children).all()
    assert described(structure)["nodes"] == structure.num_nodes
