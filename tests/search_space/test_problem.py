"""Problems as plain data: what is read back, what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from dietcode.search_space.problem import Problem, instance_extents, problem_from_spec
from dietcode.search_space.stage import Stage
from dietcode.workload.parse import spec_from_data


def problem_data() -> dict[str, Any]:
    stages = (Stage("bias", "bias"), Stage("residual", "R"), Stage("scale", value=0.5))
    indices = {"X": "bmk", "W": "bnk", "Y": "bmn", "bias": "n", "R": "bmn"}
    roles = {"batch": ("b",), "rows": ("m",), "columns": ("n",), "reduction": ("k",)}
    extents: dict[str, int | None] = {"b": None, "m": None, "n": None, "k": 8}
    return Problem(
        "X", "W", "Y", indices, **roles, extents=extents, stages=stages, column_operand_constant=True
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
        {"stages": [{"kind": "clip"}]},
        {"stages": [{"kind": "clip", "value": 6.0}]},
        {"stages": [{"kind": "clip", "value": [6.0, 0.0]}]},
        {"stages": [{"kind": "clip", "value": [0.0, math.nan]}]},
        {"stages": [{"kind": "tanh", "value": [0.0, 6.0]}]},
        {"stages": [{"kind": "gelu"}]},
        {"stages": [{"kind": "gelu-erf", "tensor": "R"}]},
        {"output_dtype": "float64"},
    ],
    ids=str,
)
def test_problems_that_do_not_fit_together(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        Problem.from_json(problem_data() | change)
    assert len(str(caught.value).splitlines()) == 1


def einsum_problem(einsum: str, dims: dict[str, Any], epilogue: tuple[str, ...] = ()) -> Problem:
    """Operands X and W, which are both constant; T is 1 to 4."""
    first, second = einsum.partition("->")[0].split(",")
    tensors = {
        name: {"dims": letters, "dtype": "float32", "constant": True}
        for name, letters in (("X", first), ("W", second))
    }
    spec = spec_from_data(
        {
            "name": "einsum",
            "op": {"einsum": einsum, "epilogue": list(epilogue)},
            "tensors": tensors,
            "output": {"name": "Y", "dtype": "float32"},
            "shape_vars": {"T": {"min": 1, "max": 4}},
            "dims": dims,
        }
    )
    return problem_from_spec(spec)


@pytest.mark.parametrize(
    ("einsum", "varying", "packed"),
    [
        ("mk,nk->mn", "m", True),
        ("mk,nk->mn", "mnk", True),
        ("bmk,nk->bmn", "bm", True),
        ("mk,bnk->bmn", "m", True),
        ("mkj,nk->mn", "m", False),
        ("mk,jnk->mn", "m", True),
        ("mk,jnk->mn", "j", False),
        ("m,n->mn", "mn", True),
        ("bk,bk->b", "b", True),
    ],
)
def test_constants_that_can_be_packed(einsum: str, varying: str, packed: bool) -> None:
    letters = set(einsum) - set(",->")
    problem = einsum_problem(einsum, {k: "T" if k in varying else 3 for k in letters})
    problem.check()
    assert problem.column_operand_constant == packed


@pytest.mark.parametrize("einsum", ["mk,nk->mn", "bmk,bnk->mnb", "bk,bk->b", "mk,cnk->cmn"])
def test_a_bias_belongs_to_the_last_axis_whatever_its_role(einsum: str) -> None:
    problem = einsum_problem(einsum, dict.fromkeys(set(einsum) - set(",->"), "T"), ("bias",))
    problem.check()
    assert problem.indices["bias"] == einsum[-1]


def test_a_grouped_convolution() -> None:
    spec = spec_from_data(
        {
            "name": "conv",
            "op": {"conv2d": {"groups": 2, "strides": [2, 1], "padding": [1, 0]}, "epilogue": ["bias"]},
            "tensors": {
                "X": {"dims": "nhwc", "dtype": "float32"},
                "W": {"dims": "oirs", "dtype": "float32", "constant": True},
            },
            "output": {"name": "Y", "dtype": "float32"},
            "shape_vars": {"T": {"min": 1, "max": 4}},
            "dims": {"n": "T", "h": "8*T", "w": 9, "c": 6, "i": 3, "o": 4, "r": 3, "s": 1},
        }
    )
    problem = problem_from_spec(spec)
    problem.check()
    assert Problem.from_json(json.loads(json.dumps(problem.to_json()))) == problem
    assert problem.indices == {"X": "nhwgi", "W": "guirs", "Y": "npwgu", "bias": "gu"}
    assert problem.column_operand_constant
    extents = instance_extents(spec, {"T": np.array([1, 3])})
    assert set(extents) == set(problem.extents)
    assert [size.tolist() for size in problem.shape("X", extents)] == [[1, 3], [8, 24], [9, 9], [6, 6]]
    assert [size.tolist() for size in problem.shape("Y", extents)] == [[1, 3], [4, 12], [9, 9], [4, 4]]
    assert problem.flops(extents).tolist() == [2 * t * 4 * t * 9 * 4 * 3 * 3 for t in (1, 3)]
