"""The rule: exact on what was enumerated, total on everything else, and strict about what it reads."""

import copy
import json
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dietcode.dispatcher.rule import Branch, Leaf, Modulus, Rule, by_remainder, fit_rule, regret
from dietcode.dispatcher.tree import MAX_DEPTH, merged
from dietcode.errors import LibraryError, ShapeError

INT64 = st.integers(-(2**63), 2**63 - 1)


def grid(*axes):
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


def check_total(rule, points):
    predicted = rule.predict(points)
    assert predicted.dtype == np.int64 and set(predicted) <= set(range(rule.num_categories))
    for point, category in zip(points.tolist(), predicted.tolist(), strict=True):
        assert rule.select(dict(zip(rule.variables, point, strict=True))) == category


@settings(deadline=None, max_examples=80)
@given(
    st.dictionaries(st.integers(-(2**62), 2**62), st.integers(0, 4), min_size=1, max_size=40),
    st.lists(INT64, min_size=1, max_size=10),
)
def test_one_variable_is_exact_minimal_and_total(table, others):
    values = sorted(table)
    labels = np.array([table[value] for value in values])
    rule = fit_rule(["T"], np.array(values)[:, None], labels)
    assert (rule.predict(np.array(values)[:, None]) == labels).all()
    runs = 1 + int((np.diff(labels) != 0).sum())
    assert rule.num_leaves == runs and rule.depth <= int(np.ceil(np.log2(runs)))
    check_total(rule, np.array(others)[:, None])
    ranges = rule.ranges(-(2**63), 2**63 - 1)
    assert len(ranges) == runs and ranges[0][0] == -(2**63) and ranges[-1][1] == 2**63 - 1
    assert all(left[1] + 1 == right[0] for left, right in pairwise(ranges))
    for value in [*values, *others]:
        (category,) = [run[2] for run in ranges if run[0] <= value <= run[1]]
        assert rule.select({"T": value}) == category


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(
        st.tuples(st.integers(1, 12), st.integers(1, 10**9)), st.integers(0, 3), min_size=1, max_size=50
    ),
    st.lists(st.tuples(INT64, INT64), min_size=1, max_size=10),
    st.integers(0, 2**20),
)
def test_two_variables_are_exact_and_total(table, others, seed):
    points = np.array(sorted(table))
    labels = np.array([table[point] for point in sorted(table)])
    weights = np.random.default_rng(seed).choice([0.0, 1e-9, 1.0, 1e3], len(labels))
    weights[0] = 1
    rule = fit_rule(["B", "T"], points, labels, weights=weights)
    assert (rule.predict(points) == labels).all()
    assert rule.depth <= MAX_DEPTH and rule.num_leaves <= len(labels)
    check_total(rule, np.array(others))
    assert Rule.from_json(json.loads(json.dumps(rule.to_json()))) == rule


@pytest.mark.parametrize(
    "label",
    [
        lambda p: (p[:, 0] + p[:, 1]) % 2,
        lambda p: (p[:, 0] * 7 + p[:, 1] * 13) % 5,
        lambda p: ((p[:, 0] > 5) ^ (p[:, 1] > 9)).astype(int),
        lambda p: np.minimum(p[:, 0] // 4, p[:, 1] // 8),
        lambda p: np.zeros(len(p), int),
    ],
    ids=["checkerboard", "noise", "xor", "steps", "constant"],
)
def test_hard_tables_over_two_variables(label):
    points = grid(np.arange(1, 41), np.arange(1, 31))
    labels = label(points)
    rule = fit_rule(["I", "H"], points, labels)
    assert (rule.predict(points) == labels).all() and rule.depth <= MAX_DEPTH


def test_deep_tables_are_halved_and_stay_exact():
    # A diagonal of alternating categories: scikit-learn peels one point after another off the end.
    points = np.stack([np.arange(300)] * 2, axis=1)
    labels = np.arange(300) % 2
    rule = fit_rule(["I", "H"], points, labels)
    assert (rule.predict(points) == labels).all() and rule.depth <= MAX_DEPTH
    assert Rule.from_json(rule.to_json()) == rule


def test_values_beyond_float32_are_exact():
    points = grid(2**40 + np.arange(6), 2**62 + np.arange(5))
    labels = np.arange(30) % 3
    rule = fit_rule(["I", "H"], points, labels)
    assert (rule.predict(points) == labels).all()


def test_thresholds_lie_halfway():
    rule = fit_rule(["T"], [[10], [20]], [0, 1])
    assert rule.root == Branch("T", 15, Leaf(0), Leaf(1))
    assert rule.ranges(1, 100) == [(1, 15, 0), (16, 100, 1)]
    assert rule.ranges(16, 17) == [(16, 17, 1)]
    two = fit_rule(["I", "T"], [[1, 10], [1, 20]], [0, 1])
    assert two.root == Branch("T", 15, Leaf(0), Leaf(1))


def test_three_variables():
    points = grid(np.arange(8), np.arange(8) * 100, np.array([1, 5]))
    labels = (points[:, 0] > 3) * 1 + (points[:, 1] > 250) * (points[:, 2] == 5) * 2
    rule = fit_rule(["A", "B", "C"], points, labels)
    assert (rule.predict(points) == labels).all() and rule.num_leaves <= 8


def test_one_binding_with_two_categories_takes_the_one_that_loses_least():
    points, labels = [[1], [1], [2]], [0, 1, 0]
    assert fit_rule(["T"], points, labels, weights=[1, 5, 1]).select({"T": 1}) == 1
    cost = np.array([[10.0, 9.9], [1.0, 10.0], [5.0, 5.0]])
    assert fit_rule(["T"], points, labels, cost, [5, 1, 1]).select({"T": 1}) == 1


def test_a_smoothed_assignment_stands_against_its_throughput():
    cost = np.array([[10.0, 9.99], [9.99, 10.0]])
    rule = fit_rule(["T"], [[1], [2]], [0, 0], cost)
    assert rule.root == Leaf(0) and rule.num_categories == 2


@pytest.mark.parametrize("num_variables", [1, 2])
@pytest.mark.parametrize("max_leaves", [1, 2, 7, 20])
def test_too_few_leaves_give_a_rule_with_a_known_regret(num_variables, max_leaves):
    rng = np.random.default_rng(0)
    points = grid(np.arange(40)) if num_variables == 1 else grid(np.arange(8), np.arange(8))
    cost = rng.uniform(0.8, 1.0, (len(points), 3))
    weights = np.full(len(points), 1 / len(points))
    names = ["A", "B"][:num_variables]
    rule = fit_rule(names, points, cost.argmax(axis=1), cost, weights, max_leaves=max_leaves)
    assert rule.num_leaves <= max_leaves
    mean, worst = regret(rule.predict(points), cost, weights)
    assert 0 < mean < worst <= 0.2
    if max_leaves == 1:
        alone = [regret(np.full(len(points), one), cost, weights)[0] for one in range(3)]
        assert mean == pytest.approx(min(alone))


def test_regret_by_hand():
    cost = np.array([[10.0, 5.0], [4.0, 8.0], [1.0, np.nan]])
    assert regret([0, 1, 0], cost, [0.5, 0.5, 0]) == (0.0, 0.0)
    mean, worst = regret([1, 1, 0], cost, [0.5, 0.5, 0])
    assert mean == pytest.approx(1 - 0.5**0.5) and worst == pytest.approx(0.5)
    assert regret([0, 1, 1], cost, [0.5, 0.5, 0]) == (0.0, 1.0)
    assert regret([0, 1, 1], cost, [0.5, 0.25, 0.25]) == (1.0, 1.0)


@pytest.mark.parametrize(
    "arguments",
    [
        (["T"], np.ones((3, 2)), [0, 0, 0]),
        (["T"], np.ones((0, 1)), []),
        ([], np.ones((3, 0)), [0, 0, 0]),
        (["T"], np.ones((3, 1)), [0, 0]),
        (["T"], np.ones((3, 1)), [0, 0, -1]),
        (["T"], np.ones((3, 1)), [0, 0, 2], np.ones((3, 2))),
        (["T"], np.ones((3, 1)), [0, 0, 0], None, [1, 1]),
        (["T"], np.ones((3, 1)), [0, 0, 0], None, [0, 0, 0]),
    ],
    ids=range(8),
)
def test_arguments_that_do_not_fit(arguments):
    with pytest.raises(ValueError, match=r"give|must be"):
        fit_rule(*arguments)
    with pytest.raises(ValueError, match="max_leaves"):
        fit_rule(["T"], [[1]], [0], max_leaves=0)


def test_a_shape_that_is_no_shape():
    rule = fit_rule(["T"], [[1], [2]], [0, 1])
    for binding in ({}, {"S": 1}, {"T": 1.5}, {"T": "1"}, {"T": True}, {"T": None}):
        with pytest.raises(ShapeError, match="shape variable T"):
            rule.select(binding)
    assert rule.select({"T": np.int64(2)}) == 1
    with pytest.raises(ShapeError, match="give \\[n, 1\\]"):
        rule.predict([1, 2])
    with pytest.raises(ValueError, match="low <= high"):
        rule.ranges(2, 1)


def test_siblings_of_one_category_are_merged():
    tree = Branch("T", 5, Branch("T", 2, Leaf(1), Leaf(1)), Leaf(1))
    assert merged(tree) == Leaf(1)


def test_rules_by_remainder_are_joined():
    """Multiples of 8 by one rule, of 4 that are none of 8 by another, the rest by a third."""
    cost = np.ones((2, 3))
    parts = [fit_rule(["I", "T"], [[1, 1], [1, 9]], labels, cost) for labels in ((0, 1), (2, 2), (1, 0))]
    rule = by_remainder("T", (8, 4), parts)
    points = grid(np.arange(1, 4), np.arange(0, 70))
    of = np.where(points[:, 1] % 8 == 0, 0, np.where(points[:, 1] % 4 == 0, 1, 2))
    wanted = np.stack([part.predict(points) for part in parts])[of, np.arange(len(points))]
    assert (rule.predict(points) == wanted).all()
    assert [rule.select({"I": int(i), "T": int(t)}) for i, t in points] == wanted.tolist()
    assert Rule.from_json(json.loads(json.dumps(rule.to_json()))) == rule
    assert (rule.num_leaves, rule.depth) == (5, 3)
    same = by_remainder("T", (8, 4), [parts[1]] * 3)
    assert same.root == Leaf(2)
    alone = by_remainder("T", (8,), [fit_rule(["T"], [[1]], [0]), Rule(("T",), 2, Leaf(1))])
    with pytest.raises(ValueError, match="by thresholds"):
        alone.ranges(1, 9)


REMAINDER = Rule(("T",), 2, Modulus("T", 8, Leaf(0), Leaf(1))).to_json()
GOOD = Rule(("T",), 2, Branch("T", 5, Leaf(0), Leaf(1))).to_json()


def chain(depth):
    node = {"category": 0}
    for _ in range(depth):
        node = {"variable": "T", "threshold": 1, "below": {"category": 1}, "above": node}
    return node


def doubled(depth):
    node = {"category": 0}
    for _ in range(depth):
        node = {"variable": "T", "threshold": 1, "below": node, "above": node}
    return node


HOSTILE = {
    "none": None,
    "list": [],
    "empty": {},
    "divisor 1": {**REMAINDER, "tree": {**REMAINDER["tree"], "divisor": 1}},
    "divisor 0": {**REMAINDER, "tree": {**REMAINDER["tree"], "divisor": 0}},
    "divisor huge": {**REMAINDER, "tree": {**REMAINDER["tree"], "divisor": 10**12}},
    "divisor text": {**REMAINDER, "tree": {**REMAINDER["tree"], "divisor": "8"}},
    "divisor and threshold": {**REMAINDER, "tree": {**REMAINDER["tree"], "threshold": 8}},
    "modulus unknown variable": {**REMAINDER, "tree": {**REMAINDER["tree"], "variable": "S"}},
    "modulus without others": {**GOOD, "tree": {"variable": "T", "divisor": 8, "multiples": {"category": 0}}},
    "extra key": {**GOOD, "code": "import os"},
    "missing key": {key: GOOD[key] for key in ("variables", "tree")},
    "variables text": {**GOOD, "variables": "T"},
    "variables twice": {**GOOD, "variables": ["T", "T"]},
    "variables unhashable": {**GOOD, "variables": [["T"]]},
    "variable empty": {**GOOD, "variables": ["T", ""]},
    "categories 0": {**GOOD, "num_categories": 0},
    "categories true": {**GOOD, "num_categories": True},
    "categories huge": {**GOOD, "num_categories": 10**12},
    "category out of range": {**GOOD, "num_categories": 1},
    "category negative": {**GOOD, "tree": {"category": -1}},
    "category text": {**GOOD, "tree": {"category": "0"}},
    "category float": {**GOOD, "tree": {"category": 0.0}},
    "category bool": {**GOOD, "tree": {"category": False}},
    "leaf and branch": {**GOOD, "tree": {**GOOD["tree"], "category": 0}},
    "branch unknown variable": {**GOOD, "tree": {**GOOD["tree"], "variable": "S"}},
    "branch unhashable variable": {**GOOD, "tree": {**GOOD["tree"], "variable": []}},
    "threshold float": {**GOOD, "tree": {**GOOD["tree"], "threshold": 5.0}},
    "threshold bool": {**GOOD, "tree": {**GOOD["tree"], "threshold": True}},
    "threshold huge": {**GOOD, "tree": {**GOOD["tree"], "threshold": 2**63}},
    "child null": {**GOOD, "tree": {**GOOD["tree"], "below": None}},
    "no child": {**GOOD, "tree": {"variable": "T", "threshold": 5, "below": {"category": 0}}},
    "too deep": {**GOOD, "tree": chain(MAX_DEPTH + 1)},
    "far too deep": {**GOOD, "tree": chain(100_000)},
    "too many leaves": {**GOOD, "tree": doubled(40)},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_json_is_refused(name):
    with pytest.raises(LibraryError, match="dispatch rule: ") as caught:
        Rule.from_json(HOSTILE[name])
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_json_at_the_limits_is_accepted():
    assert Rule.from_json({**GOOD, "tree": chain(MAX_DEPTH)}).depth == MAX_DEPTH
    before = copy.deepcopy(GOOD)
    assert Rule.from_json(GOOD).to_json() == GOOD == before


def test_reading_and_selecting_need_no_scikit_learn():
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from dietcode.dispatcher.rule import Rule, fit_rule\n"
        f"rule = Rule.from_json({GOOD!r})\n"
        "assert rule.select({'T': 6}) == 1\n"
        "assert fit_rule(['T'], [[1], [2]], [0, 1]).select({'T': 2}) == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
