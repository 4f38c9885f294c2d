"""The recursions of examples/recursion: taken apart, their kernels computed by PyTorch, beside eager ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from needs import of_extra
from recursion_runs import FOLDER, example_of, random_structure, run_plan

from dietcode.recursion.exporting import export_cells
from dietcode.recursion.planning import plan_recursion

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))
# Arguments of each example's `build`, children, and how many kernels its parts are.
EXAMPLES: dict[str, tuple[dict[str, int], int, dict[str, int]]] = {
    "binary_tree_lstm": ({"hidden": 24, "width": 20, "words": 9}, 2, {"leaf": 1, "first": 1, "cell": 1}),
    "dag_rnn": ({"hidden": 24, "width": 20, "children": 3}, 3, {"before": 1, "leaf": 1, "cell": 2}),
    "lstm": ({"hidden": 24, "width": 20}, 1, {"before": 1, "leaf": 1, "cell": 1}),
    "mv_rnn": ({"hidden": 12, "words": 9}, 2, {"leaf": 2, "first": 6, "cell": 10}),
    "tree_fc": ({"hidden": 24, "words": 9}, 2, {"leaf": 1, "first": 1, "cell": 1}),
    "tree_gru": ({"hidden": 24, "width": 20, "children": 2}, 2, {"before": 1, "leaf": 1, "cell": 3}),
    "tree_lstm": ({"hidden": 24, "width": 20, "children": 3}, 3, {"before": 1, "leaf": 1, "cell": 2}),
}


def inputs_of(recursion: Any, num_nodes: int) -> Any:
    random = np.random.default_rng(7)
    if recursion.x == ():
        return random.integers(0, 9, num_nodes)
    return random.standard_normal((num_nodes, *recursion.x)).astype(np.float32)


def test_all_are_tried() -> None:
    assert sorted(EXAMPLES) == sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_kernels_compute_what_the_cells_say(name: str) -> None:
    options, most, kernels = EXAMPLES[name]
    recursion = example_of(name).build(**options)
    cells, weights = export_cells(recursion, name)
    plan = plan_recursion(cells, 500, 64, {})
    assert plan.facts["kernels"] == kernels
    for seed, num_nodes, is_dag in ((1, 1, False), (2, 40, False), (3, 40, True)):
        structure = random_structure(seed, num_nodes, most, is_dag)
        x = inputs_of(recursion, num_nodes)
        wanted = recursion(structure, x, all_nodes=True)
        found = run_plan(plan, weights, structure, x)
        for own, right in zip(found, wanted if len(found) > 1 else [wanted], strict=True):
            largest = float(right.abs().max())
            np.testing.assert_allclose(own, right.numpy(), rtol=0, atol=1e-5 * max(1, largest))
    assert torch.is_tensor(recursion(structure, x)[0])
