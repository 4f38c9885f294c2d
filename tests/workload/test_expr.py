"""DimExpr: its grammar, its limits, and agreement with independent evaluation."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dietcode.errors import SpecError
from dietcode.workload.expr import DimExpr

modest = settings(deadline=None, max_examples=60)


def parse(value: object) -> DimExpr:
    return DimExpr.parse(value, "dims.m")


# A tree with an evaluation of its own: (text, function of a binding).
leaves = st.one_of(
    st.integers(0, 40).map(lambda n: (str(n), lambda _: n)),
    st.sampled_from(["T", "B", "_h1"]).map(lambda name: (name, lambda binding: binding[name])),
)


def combine(children):
    def sums(pair):
        (left, f), (right, g) = pair
        return f"({left} + {right})", lambda binding: f(binding) + g(binding)

    def products(pair):
        (left, f), (right, g) = pair
        return f"({left})*({right})", lambda binding: f(binding) * g(binding)

    pairs = st.tuples(children, children)
    return st.one_of(pairs.map(sums), pairs.map(products))


trees = st.recursive(leaves, combine, max_leaves=7)
bindings = st.fixed_dictionaries({name: st.integers(1, 500) for name in ("T", "B", "_h1")})


@modest
@given(trees, bindings)
def test_evaluation_agrees_with_the_tree_and_text_round_trips(tree, binding):
    text, function = tree
    try:
        expr = parse(text)
    except SpecError as error:
        assert any(limit in str(error) for limit in ("power", "2**31", "200", "terms"))
        return
    assert expr.evaluate(binding) == function(binding)
    assert parse(str(expr)) == expr
    assert str(parse(str(expr))) == str(expr)
    assert hash(parse(str(expr))) == hash(expr)


@modest
@given(trees, bindings, st.sampled_from(["T", "B", "_h1"]))
def test_solve_inverts_evaluate(tree, binding, variable):
    try:
        expr = parse(tree[0])
    except SpecError:
        return
    value = expr.evaluate(binding)
    known = {name: bound for name, bound in binding.items() if name != variable}
    if expr.linear_in(variable):
        assert expr.solve(variable, value, known) == binding[variable]
    else:
        assert expr.solve(variable, value, known) is None


@modest
@given(st.text(alphabet="TB0123456789+*() \t\n._-'é٣", max_size=30))
def test_any_text_parses_or_is_a_spec_error(text):
    try:
        expr = parse(text)
    except SpecError as error:
        assert error.field == "dims.m"
        assert "\n" not in str(error)
    else:
        assert parse(str(expr)) == expr


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (768, "768"),
        (0, "0"),
        ("16*T", "16*T"),
        ("T*16", "16*T"),
        ("1+T", "T + 1"),
        ("2*(B+1)*T", "2*B*T + 2*T"),
        ("T*T", "T*T"),
        ("T+T", "2*T"),
        ("0*T + 5", "5"),
        ("((T))", "T"),
        ("B + A + A*B + 3", "A*B + A + B + 3"),
        (2**31, "2147483648"),
    ],
)
def test_canonical_text(value, text):
    assert str(parse(value)) == text


def test_terms_and_variables():
    expr = parse("2*(B+1)*T + 3")
    assert expr.terms == ((2, (("B", 1), ("T", 1))), (2, (("T", 1),)), (3, ()))
    assert expr.variables == ("B", "T")
    assert not expr.is_constant
    assert parse(7).is_constant
    assert parse("3*4").constant_value() == 12
    with pytest.raises(ValueError, match="not a constant"):
        expr.constant_value()


@pytest.mark.parametrize(
    ("value", "fragment"),
    [
        ("__import__('os').system('x')", "cannot read"),
        ("T.__class__", "cannot read"),
        ("T - 1", "cannot read"),
        ("T / 2", "cannot read"),
        ("T ** 2", "missing before '*'"),
        ("16T", "write 16*T"),
        ("T T", "unexpected 'T'"),
        ("", "ends too early"),
        ("T +", "ends too early"),
        ("(T", "')' is missing"),
        ("T)", "unexpected ')'"),
        ("+T", "missing before '+'"),
        ("016*T", "leading zero"),
        ("T[0]", "cannot read"),
        ("T\n", "cannot read"),
        ("٣", "cannot read"),
        (True, "not an integer"),
        (1.0, "not an integer"),
        (None, "not an integer"),
        ([1], "not an integer"),
        (-1, "negative"),
        (2**31 + 1, "above 2**31"),
        pytest.param(10**6000, "above 2**31", id="6001 digits"),
        ("65536*65536", "above 2**31"),
        ("9" * 150, "above 2**31"),
        ("T*T*T*T*T", "power above 4"),
        ("T+" * 200 + "T", "longer than 200"),
        ("(" * 60 + "T" + ")" * 60, "nested"),
        ("x" * 33, "longer than 32"),
        ("*".join(f"(a{i}+b{i}+c{i})" for i in range(12)), "terms"),
        ("(aaaaaaaa+bbbbbbbb+cccccccc)*(dddddddd+eeeeeeee+ffffffff)*(g+h)", "multiplied out"),
    ],
)
def test_refusals(value, fragment):
    with pytest.raises(SpecError) as caught:
        parse(value)
    assert caught.value.field == "dims.m"
    assert fragment in str(caught.value)
    assert "allowed: a non-negative integer" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_evaluate_on_arrays_matches_scalars():
    expr = parse("2*(B+1)*T + T*T")
    points = list(itertools.product(range(1, 6), range(1, 6)))
    batches, lengths = (np.array(column, dtype=np.int32) for column in zip(*points, strict=True))
    result = expr.evaluate({"B": batches, "T": lengths})
    assert result.dtype == np.int64
    assert result.tolist() == [expr.evaluate({"B": b, "T": t}) for b, t in points]


def test_evaluate_narrow_integers_do_not_overflow():
    assert parse("1000*T").evaluate({"T": np.array([100], dtype=np.int8)}).tolist() == [100_000]
    assert parse("1000*T").evaluate({"T": np.int8(100)}) == 100_000


def test_evaluate_needs_every_variable():
    with pytest.raises(KeyError):
        parse("T + B").evaluate({"T": 1})


@pytest.mark.parametrize(
    ("text", "variable", "value", "known", "solution"),
    [
        ("16*T", "T", 160, {}, 10),
        ("16*T", "T", 161, {}, None),
        ("T + 1", "T", 1, {}, 0),
        ("T + 5", "T", 2, {}, -3),
        ("T*B", "T", 12, {"B": 4}, 3),
        ("T*B", "T", 12, {}, None),
        ("T*T", "T", 9, {}, None),
        ("T*B", "T", 0, {"B": 0}, None),
        ("B", "T", 3, {"B": 3}, None),
        ("T*B + T", "T", 12, {"B": 3, "T": 99}, 3),
    ],
)
def test_solve(text, variable, value, known, solution):
    assert parse(text).solve(variable, value, known) == solution


def test_linear_in():
    assert parse("T*B*B").linear_in("T")
    assert not parse("T*B*B").linear_in("B")
    assert not parse("T*T + T").linear_in("T")
    assert not parse("T").linear_in("B")


def test_expr_and_binding_import_without_pydantic():
    code = (
        "import sys, dietcode.workload.expr, dietcode.workload.binding, dietcode.workload.contraction\n"
        "print(sorted({'pydantic', 'yaml', 'tvm', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
