"""Enumeration, sampling and joint instances; digests."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from dietcode.workload.identity import canonical_bytes, job_digest, workload_digest
from dietcode.workload.instances import largest_instance, make_instances
from dietcode.workload.parse import load_spec, spec_from_data

TWO = {
    "shape_vars": {"M": {"min": 1, "max": 4}, "N": {"values": [128, 256, 512]}},
    "dims": {"m": "M", "n": "N", "k": 512},
}


def test_a_range_is_enumerated(changed):
    found = make_instances(spec_from_data(changed()))
    assert found.exhaustive
    assert found.variables == ("T",)
    assert found.bindings.tolist() == [[t] for t in range(1, 129)]
    assert found.bindings.dtype == np.int64
    np.testing.assert_allclose(found.weights, 1 / 128)
    assert found.columns()["T"].tolist() == list(range(1, 129))
    assert len(found) == 128
    with pytest.raises(ValueError, match="read-only"):
        found.bindings[0, 0] = 7


def test_a_product_is_enumerated_last_variable_fastest(changed):
    found = make_instances(spec_from_data(changed(TWO)))
    assert found.exhaustive
    assert found.bindings[:4].tolist() == [[1, 128], [1, 256], [1, 512], [2, 128]]
    assert len(found) == 12


def test_weights_multiply_and_zeros_are_left_out(changed):
    spec = spec_from_data(
        changed(
            {**TWO, "shape_vars.M.weights": {1: 3, 2: 0, 4: 1}, "shape_vars.N.weights": {"256": 1, "128": 1}}
        )
    )
    found = make_instances(spec)
    assert found.bindings.tolist() == [[1, 128], [1, 256], [4, 128], [4, 256]]
    np.testing.assert_allclose(found.weights, [3 / 8, 3 / 8, 1 / 8, 1 / 8])


def test_joint_instances_are_exactly_those(changed):
    joint = [
        {"N": 512, "M": 1, "weight": 1},
        {"M": 3, "N": 128, "weight": 0},
        {"M": 4, "N": 256, "weight": 3},
    ]
    spec = spec_from_data(changed({**TWO, "instances": joint}))
    found = make_instances(spec, limit=3)
    assert found.exhaustive
    assert found.bindings.tolist() == [[1, 512], [3, 128], [4, 256]]
    np.testing.assert_allclose(found.weights, [0.25, 0, 0.75])
    assert largest_instance(spec) == {"M": 4, "N": 256}


def test_more_joint_instances_than_the_limit_are_thinned(changed):
    weights = np.random.default_rng(0).pareto(1.0, 2000) + 0.01
    joint = [{"M": m + 1, "N": m % 97 + 1, "weight": w} for m, w in enumerate(weights.tolist())]
    ranges = {"M": {"min": 1, "max": 2000}, "N": {"min": 1, "max": 97}}
    spec = spec_from_data(changed({**TWO, "shape_vars": ranges, "instances": joint}))
    found = make_instances(spec, limit=500)
    assert len(found) == 500 and not found.exhaustive and found.weights.sum() == pytest.approx(1)
    assert {1, 2000} <= set(found.bindings[:, 0].tolist()) and len(np.unique(found.bindings, axis=0)) == 500
    everywhere = np.arange(1, 2001) @ weights / weights.sum()
    assert found.bindings[:, 0] @ found.weights == pytest.approx(everywhere, rel=0.05)
    assert {int(weights.argmax()) + 1} <= set(found.bindings[:, 0].tolist())
    assert np.array_equal(make_instances(spec, limit=500).bindings, found.bindings)
    assert largest_instance(spec) == {"M": 1940, "N": 97}, "it is found among all"
    for limit in (2, 3, 1999, 2000):
        assert len(make_instances(spec, limit=limit)) == limit


def test_largest_joint_instance_is_the_first_of_equals(changed):
    joint = [{"M": 1, "N": 128}, {"M": 1, "N": 512}, {"M": 2, "N": 256}]
    assert largest_instance(spec_from_data(changed({**TWO, "instances": joint}))) == {"M": 1, "N": 512}


def test_largest_of_a_product(changed):
    assert largest_instance(spec_from_data(changed(TWO))) == {"M": 4, "N": 512}


LARGE = {"shape_vars": {"T": {"min": 3, "max": 1_000_000}}, "dims": {"m": "T", "n": 8, "k": 8}}
FOUR = {
    "shape_vars": {
        "A": {"min": 1, "max": 2**20},
        "B": {"min": 5, "max": 2**10},
        "C": {"values": [1, 10, 100]},
        "D": {"min": 1, "max": 2, "weights": {1: 9, 2: 1}},
    },
    "dims": {"m": "A", "n": "B", "k": "C + D"},
}


@pytest.mark.parametrize("changes", [LARGE, FOUR])
@pytest.mark.parametrize("limit", [2, 100, 4096])
def test_samples(changed, changes, limit):
    spec = spec_from_data(changed(changes))
    start = time.thread_time()
    found = make_instances(spec, limit=limit)
    assert time.thread_time() - start < 2
    assert not found.exhaustive
    assert len(found) == limit
    assert len(np.unique(found.bindings, axis=0)) == limit
    assert found.weights.sum() == pytest.approx(1)
    assert (found.weights > 0).all()
    rows = found.bindings.tolist()
    variables = spec.shape_vars.values()
    assert [variable.min for variable in variables] in rows
    assert [variable.max for variable in variables] in rows
    assert all(value in variable for row in rows for value, variable in zip(row, variables, strict=True))
    again = make_instances(spec, limit=limit)
    assert np.array_equal(again.bindings, found.bindings)
    assert np.array_equal(again.weights, found.weights)


def test_a_sample_covers_every_magnitude(changed):
    values = make_instances(spec_from_data(changed(LARGE)), limit=512).columns()["T"]
    counts, _ = np.histogram(np.log10(values), bins=[0, 1, 2, 3, 4, 5, 6.01])
    assert (counts >= 7).all()


def test_weighted_means_of_a_sample_estimate_those_of_the_range(changed):
    found = make_instances(spec_from_data(changed(LARGE)))
    values = found.columns()["T"].astype(float)
    assert (values * found.weights).sum() == pytest.approx(500_001, rel=0.03)
    assert found.weights[values < 100_000].sum() == pytest.approx(0.1, rel=0.1)
    four = make_instances(spec_from_data(changed(FOUR)))
    columns = four.columns()
    assert (columns["D"] * four.weights).sum() == pytest.approx(1.1, rel=0.05)
    assert (columns["B"] * four.weights).sum() == pytest.approx(514.5, rel=0.1)


def test_a_product_just_above_the_limit(changed):
    found = make_instances(spec_from_data(changed()), limit=127)
    assert not found.exhaustive
    assert 120 <= len(found) <= 127


def test_limit_below_two_is_refused(changed):
    with pytest.raises(ValueError, match="at least 2"):
        make_instances(spec_from_data(changed()), limit=1)


def test_the_widest_range(changed):
    wide = {"shape_vars": {"T": {"min": 1, "max": 2**31}}, "dims": {"m": "T", "n": 8, "k": 8}}
    found = make_instances(spec_from_data(changed(wide)), limit=64)
    assert len(found) == 64
    assert found.bindings.max() == 2**31


def test_canonical_bytes():
    assert canonical_bytes({"b": 1.0, "a": [True, None]}) == b'{"a":[true,null],"b":1}'
    with pytest.raises(ValueError, match=r"."):
        canonical_bytes({"a": float("nan")})


SAME_WORKLOAD = [
    {"name": "other"},
    {"budget.trials": 7},
    {"objective.binary_size": 0.5},
    {"target": {"kind": "cuda", "arch": "sm_90"}},
    {"shape_vars.T.weights": {1: 1}},
    {"instances": [{"T": 4}]},
]
SAME_JOB = [{"dims.m": "T*16"}, {"dims.n": "2304"}, {"budget.seconds": 300.0}, {"op.einsum": "mk, nk -> mn"}]
OTHER_WORKLOAD = [
    {"shape_vars.T.max": 127},
    {"shape_vars.T": {"values": list(range(1, 129))}},
    {"dims.m": "8*T"},
    {"op.epilogue": ["relu"]},
    {"tensors.W.constant": False},
    {"output.name": "Z"},
]


@pytest.mark.parametrize("changes", SAME_WORKLOAD + SAME_JOB)
def test_same_workload(changed, changes):
    base, other = spec_from_data(changed()), spec_from_data(changed(changes))
    assert workload_digest(base) == workload_digest(other)
    same_job = job_digest(base, {"kind": "llvm"}) == job_digest(other, {"kind": "llvm"})
    assert same_job == (changes in SAME_JOB or "target" in changes)


@pytest.mark.parametrize("changes", OTHER_WORKLOAD)
def test_other_workload(changed, changes):
    base, other = spec_from_data(changed()), spec_from_data(changed(changes))
    assert workload_digest(base) != workload_digest(other)
    assert job_digest(base, {}) != job_digest(other, {})


def test_job_digest_depends_on_the_resolved_target(changed):
    spec = spec_from_data(changed())
    digests = {job_digest(spec, {"kind": "llvm", "mcpu": cpu}) for cpu in ("znver4", "skylake")}
    assert len(digests) == 2
    assert all(digest.startswith("sha256:") and len(digest) == 71 for digest in digests)


def test_a_digest_is_what_it_was():
    """Records and libraries of earlier versions belong to it."""
    example = load_spec(Path(__file__).parents[2] / "examples" / "bert-dense.yaml")
    known = "sha256:61848574643ebbe23b3531c555d4596b78ee99561bd1f2cd04010bcd870d6461"
    assert workload_digest(example) == known
