"""Random inputs of blocks that take roots and logarithms, and outputs that are no numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dietcode.search_space.rows.expected import expect_rows
from dietcode.search_space.rows.problem import RowProblem
from dietcode.workload.parse import spec_from_data

EXTENTS = {"m": 5, "n": 24}


def problem_of(**graph: Any) -> RowProblem:
    """The problem of a block of x, y [m, n], whose output is the last node."""
    tensors = {name: {"dims": "mn", "dtype": "float32"} for name in "xy" if name in str(graph.values())}
    block = {"version": 1, "graph": graph, "outputs": [list(graph)[-1]]}
    data = {"name": "drawn", "op": {"block": block}, "tensors": tensors}
    return RowProblem.of_spec(
        spec_from_data(data | {"shape_vars": {"M": {"min": 1, "max": 9}}, "dims": {"m": "M", "n": 24}})
    )


@pytest.mark.parametrize(
    ("graph", "wanted"),
    [
        ({"o": {"log": "x"}}, {"x"}),
        ({"s": {"add": ["x", 0.1]}, "r": {"rsqrt": "s"}, "o": {"mul": ["r", "y"]}}, {"x"}),
        ({"s": {"square": "x"}, "o": {"sqrt": "s"}}, set()),
        ({"s": {"sub": ["x", "y"]}, "o": {"relu": "s"}}, set()),
    ],
)
def test_what_roots_are_taken_of_is_above_zero(graph: Any, wanted: set[str]) -> None:
    problem = problem_of(**graph)
    assert problem.above_zero == wanted
    drawn = {name: problem.draw(name, EXTENTS, np.random.default_rng(0)) for name in problem.inputs}
    assert {name for name, one in drawn.items() if (one > 0).all()} == wanted
    (right,) = expect_rows(problem, drawn, EXTENTS).values.values()
    assert np.isfinite(right).all()


def test_outputs_that_are_no_numbers_are_the_same_ones() -> None:
    problem = problem_of(s={"sub": ["x", "y"]}, o={"sqrt": "s"})
    drawn = {name: problem.draw(name, EXTENTS, np.random.default_rng(k)) for k, name in enumerate("xy")}
    expected = expect_rows(problem, drawn, EXTENTS)
    (right,) = expected.values.values()
    own = right.astype(np.float32)
    assert np.isnan(own).any() and expected.error_of_all([own]) < 1e-6
    for value in (np.nan, 7.0):
        changed = own.copy()
        changed[np.isnan(own) if value == 7.0 else np.isfinite(own)] = value
        assert math.isnan(expected.error_of_all([changed]))
    assert math.isnan(expected.error_of_all([np.full_like(own, np.nan)]))
