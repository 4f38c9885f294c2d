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


@pytest.mark.parametrize("num_rows", [1, 2, 9, 64])
def test_rows_that_are_written_are_not_those_that_are_read(num_rows: int) -> None:
    dims = {"S": "tn", "at": "m", "to": "m"}
    block = {
        "version": 1,
        "graph": {"old": {"gather": ["S", "at"]}, "new": {"tanh": "old"}},
        "outputs": [{"new": {"into": "S", "at": "to"}}],
    }
    data = {
        "name": "states",
        "op": {"block": block},
        "tensors": {n: {"dims": d, "dtype": "int32" if d == "m" else "float32"} for n, d in dims.items()},
        "shape_vars": {"M": {"min": 1, "max": 9}, "T": {"min": 1, "max": 64}},
        "dims": {"m": "M", "n": 24, "t": "T"},
    }
    problem, rng = RowProblem.of_spec(spec_from_data(data)), np.random.default_rng(0)
    extents = EXTENTS | {"t": num_rows}
    read, written = (set(problem.draw(name, extents, rng).tolist()) for name in ("at", "to"))
    assert len(written) == EXTENTS["m"] and not read & written
    assert read <= set(range(num_rows)) and (num_rows < 2 or written & set(range(num_rows)))


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
