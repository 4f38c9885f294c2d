"""Each pass can be left out: a plan with more to do, which computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from needs import of_extra
from recursion_runs import example_of, random_structure, run_plan

from dietcode.recursion.exporting import export_cells
from dietcode.recursion.passes import Passes
from dietcode.recursion.planning import plan_recursion

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))
LSTM, WORDS = {"hidden": 12, "width": 10}, {"hidden": 12, "width": 10, "words": 9}


@pytest.mark.parametrize(
    ("name", "options", "without", "what", "more"),
    [
        ("tree_lstm", LSTM, "hoisting", "multiply_adds/cell", (5 * 144, 5 * 144 + 4 * 120)),
        ("tree_lstm", LSTM, "leaves", "kernels/leaf", (1, None)),
        ("binary_tree_lstm", WORDS, "tables", "multiply_adds/leaf", (0, 3 * 120)),
        ("tree_lstm", LSTM, "joined_gates", "num_operators", (53, 57)),
        ("tree_lstm", LSTM, "fused_gathers", "moves", (0, 6)),
    ],
)
def test_what_a_pass_leaves_out(
    name: str, options: dict[str, int], without: str, what: str, more: tuple[int, int | None]
) -> None:
    recursion = example_of(name).build(**options)
    cells, weights = export_cells(recursion, name)
    structure, random = random_structure(5, 40, 2), np.random.default_rng(5)
    x = (
        random.integers(0, 9, 40)
        if recursion.x == ()
        else random.standard_normal((40, 10)).astype(np.float32)
    )
    wanted = recursion(structure, x, all_nodes=True)
    counts = []
    for passes in (Passes(), Passes(**{without: False})):
        plan = plan_recursion(cells, 200, 64, {}, None, passes)
        found: Any = plan.facts
        for key in what.split("/"):
            found = found.get(key)
        counts.append(found)
        for own, right in zip(run_plan(plan, weights, structure, x), wanted, strict=True):
            np.testing.assert_allclose(own, right.numpy(), rtol=0, atol=2e-5)
    assert tuple(counts) == more
