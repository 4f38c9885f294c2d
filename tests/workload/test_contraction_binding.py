"""The roles of operands, and how shapes determine shape variables."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dietcode.errors import LibraryError, SpecError
from dietcode.workload.binding import BindingPlan, BindStep, plan_bindings
from dietcode.workload.contraction import Contraction
from dietcode.workload.expr import DimExpr
from dietcode.workload.parse import spec_from_data


def classify(einsum: str) -> Contraction:
    inputs, output = einsum.split("->")
    first, second = inputs.split(",")
    return Contraction.from_indices({"A": first, "B": second}, "Y", output)


@pytest.mark.parametrize(
    ("einsum", "expected"),
    [
        ("mk,nk->mn", ("A", "B", "", "m", "n", "k")),
        ("mk,kn->mn", ("A", "B", "", "m", "n", "k")),
        ("mk,nk->nm", ("B", "A", "", "n", "m", "k")),
        ("bmk,bnk->bmn", ("A", "B", "b", "m", "n", "k")),
        ("bmk,bkn->bmn", ("A", "B", "b", "m", "n", "k")),
        ("k,nk->n", ("A", "B", "", "", "n", "k")),
        ("nk,k->n", ("B", "A", "", "", "n", "k")),
        ("mabk,cnkba->cmn", ("A", "B", "c", "m", "n", "abk")),
        ("mabk,cnkba->mcn", ("A", "B", "", "m", "cn", "abk")),
        ("kba,abcn->cn", ("A", "B", "", "", "cn", "kba")),
        ("mk,bnk->bmn", ("A", "B", "b", "m", "n", "k")),
        ("bmk,nk->bmn", ("A", "B", "", "bm", "n", "k")),
        ("bmk,bnk->mnb", ("A", "B", "b", "m", "n", "k")),
        ("nbk,bmk->mnb", ("B", "A", "b", "m", "n", "k")),
        ("nmk,nkp->mpn", ("A", "B", "n", "m", "p", "k")),
        ("cak,bk->acb", ("A", "B", "", "ac", "b", "k")),
        ("mkj,nk->mn", ("A", "B", "", "m", "n", "kj")),
        ("mk,jnk->mn", ("A", "B", "", "m", "n", "kj")),
        ("m,n->mn", ("A", "B", "", "m", "n", "")),
        ("bk,bk->b", ("A", "B", "b", "", "", "k")),
        ("ab,ab->ab", ("A", "B", "ab", "", "", "")),
        ("abn,an->abn", ("B", "A", "an", "", "b", "")),
        ("j,k->k", ("A", "B", "", "", "k", "j")),
        ("xmyk,yknx->ymxn", ("A", "B", "yx", "m", "n", "k")),
    ],
)
def test_roles(einsum, expected):
    found = classify(einsum)
    groups = (found.batch, found.rows, found.columns, found.reduction)
    assert (found.row_operand, found.column_operand, *map("".join, groups)) == expected
    assert found.output == "Y"
    assert sorted(found.indices) == sorted(set(einsum) - set(",->"))


@pytest.mark.parametrize(
    ("einsum", "fragment"),
    [
        ("mk,nk->mz", "in no operand"),
        ("k,k->", "no index"),
    ],
)
def test_refused_contractions(einsum, fragment):
    with pytest.raises(SpecError) as caught:
        classify(einsum)
    assert caught.value.field == "op.einsum"
    assert fragment in str(caught.value)


def test_flops(changed):
    spec = spec_from_data(changed())
    flops = Contraction.from_spec(spec).flops(spec, {"T": np.array([1, 128])})
    assert flops.dtype == np.int64
    assert flops.tolist() == [2 * 16 * 2304 * 768, 2 * 2048 * 2304 * 768]


def dims(**texts: object) -> dict[str, DimExpr]:
    return {letter: DimExpr.parse(value, letter) for letter, value in texts.items()}


def test_plan_takes_the_first_linear_dimension():
    plan = plan_bindings({"X": "mk", "W": "nk"}, dims(m="16*T", n=8, k="T"), ["T"])
    assert plan == BindingPlan((BindStep("T", "X", 0, "16*T"),), ())


def test_plan_orders_steps_by_dependency():
    plan = plan_bindings({"X": "mk", "W": "nk"}, dims(m="T*B", n="B + 1", k=4), ["T", "B"])
    assert [(step.variable, step.tensor, step.axis) for step in plan.steps] == [("B", "W", 0), ("T", "X", 0)]
    assert plan.keywords == ()


def test_variables_without_a_linear_dimension_become_keywords():
    assert plan_bindings({"X": "mk", "W": "nk"}, dims(m="T*T", n=8, k=8), ["T"]).keywords == ("T",)
    plan = plan_bindings({"X": "mk", "W": "nk"}, dims(m="A + B", n=8, k=8), ["A", "B"])
    assert plan.keywords == ("A",)
    assert plan.steps == (BindStep("B", "X", 0, "A + B"),)


def test_a_plan_recovers_every_binding():
    expressions = dims(m="2*(B+1)*T", n="B + H", k="H + 3")
    plan = plan_bindings({"X": "mk", "W": "nk"}, expressions, ["T", "B", "H"])
    truth = {"T": 5, "B": 7, "H": 11}
    shapes = {
        name: [expressions[letter].evaluate(truth) for letter in indices]
        for name, indices in {"X": "mk", "W": "nk"}.items()
    }
    found = {name: truth[name] for name in plan.keywords}
    for step in plan.steps:
        dim = DimExpr.parse(step.dim_text, "dim")
        solution = dim.solve(step.variable, shapes[step.tensor][step.axis], found)
        assert solution is not None
        found[step.variable] = solution
    assert found == truth


def test_plan_round_trips_through_json():
    plan = plan_bindings({"X": "mk", "W": "nk"}, dims(m="A*B", n="B", k="C*C"), ["A", "B", "C"])
    assert plan.keywords == ("C",)
    assert BindingPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"steps": []},
        {"steps": 1, "keywords": []},
        {"steps": [], "keywords": [1]},
        {"steps": [{}], "keywords": []},
        {"steps": [{"variable": "T", "tensor": "X", "axis": True, "dim": "T"}], "keywords": []},
        {"steps": [{"variable": "T", "tensor": "X", "axis": -1, "dim": "T"}], "keywords": []},
        {"steps": [{"variable": "T", "tensor": "X", "axis": "0", "dim": "T"}], "keywords": []},
    ],
)
def test_malformed_plans_are_refused(data):
    with pytest.raises(LibraryError):
        BindingPlan.from_json(data)
