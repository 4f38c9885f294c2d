"""Problems as plain data: what is read back, what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from dietcode.search_space.problem import Problem, Stage


def problem_data() -> dict[str, Any]:
    stages = (Stage("bias", "bias"), Stage("residual", "R"), Stage("scale", value=0.5))
    subscripts = {"X": "bmk", "W": "bnk", "Y": "bmn", "bias": "n", "R": "bmn"}
    roles = {"batch": ("b",), "rows": ("m",), "columns": ("n",), "reduction": ("k",)}
    extents: dict[str, int | None] = {"b": None, "m": None, "n": None, "k": 8}
    return Problem(
        "X", "W", "Y", subscripts, **roles, extents=extents, stages=stages, column_operand_constant=True
    ).to_json()


def test_problems_round_trip() -> None:
    data = json.loads(json.dumps(problem_data()))
    assert Problem.from_json(data).to_json() == problem_data()


@pytest.mark.parametrize(
    "change",
    [
        {"row_operand": "Z"},
        {"column_operand": "X"},
        {"output": "Z"},
        {"subscripts": {}},
        {"subscripts": problem_data()["subscripts"] | {"X": ""}},
        {"subscripts": problem_data()["subscripts"] | {"X": "bm1"}},
        {"subscripts": problem_data()["subscripts"] | {"X": "bmm"}},
        {"subscripts": problem_data()["subscripts"] | {"X": "bmkz"}},
        {"subscripts": problem_data()["subscripts"] | {"R": "bmk"}},
        {"subscripts": problem_data()["subscripts"] | {"R": ""}},
        {"rows": []},
        {"rows": ["m", "n"]},
        {"rows": ["m", "m"]},
        {"columns": []},
        {"reduction": []},
        {"columns": ["m"], "rows": ["n"]},
        {"windows": [{"axis": "m", "output": "n", "kernel": "k"}]},
        {"windows": [{"axis": "z", "output": "m", "kernel": "k"}]},
        {"splits": {"m": "bm"}},
        {"splits": {"z": "xy"}},
        {"extents": {}},
        {"extents": problem_data()["extents"] | {"k": 0}},
        {"extents": problem_data()["extents"] | {"k": 1 << 60}},
        {"extents": problem_data()["extents"] | {"z": None}},
        {"stages": [{"kind": "explode"}]},
        {"stages": [{"kind": "bias"}]},
        {"stages": [{"kind": "residual", "tensor": "Q"}]},
        {"stages": [{"kind": "relu", "tensor": "R"}]},
        {"stages": [{"kind": "scale"}]},
        {"stages": [{"kind": "scale", "value": math.inf}]},
    ],
    ids=str,
)
def test_problems_that_do_not_fit_together(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Problem.from_json(problem_data() | change)
    assert len(str(caught.value).splitlines()) == 1
