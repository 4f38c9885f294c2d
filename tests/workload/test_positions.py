"""Problems of a spec's text, each at its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dietcode.errors import SpecError
from dietcode.workload.check import MAX_PROBLEMS, check_file, check_text
from dietcode.workload.parse import load_spec, parse_spec
from dietcode.workload.positions import MAX_BYTES, SpecProblem

GOOD = """\
# A layer
name: dense
op: {einsum: "mk,nk->mn", epilogue: [bias, relu]}
tensors:
  X: {dims: mk, dtype: float32}
  W: {dims: nk, dtype: float32, constant: true}
output: {name: Y, dtype: float32}
shape_vars:
  T: {min: 1, max: 8}
dims: {m: 16*T, n: 32, k: 24}
instances:
  - {T: 1, weight: 2}
  - T: 3
"""


def shown(text: str, problem: SpecProblem) -> str:
    """What is marked."""
    return text.split("\n")[problem.line - 1][problem.column - 1 : problem.end_column - 1]


def problems(text: str) -> list[tuple[str | None, str]]:
    return [(problem.field, shown(text, problem)) for problem in check_text(text).problems]


def test_a_good_text() -> None:
    found = check_text(GOOD)
    assert found.problems == () and found.spec == parse_spec(GOOD)
    assert found.data is not None and found.data["dims"]["m"] == "16*T"


@pytest.mark.parametrize(
    ("old", "new", "field", "marked"),
    [
        ("min: 1", "min: 0", "shape_vars.T.min", "0"),
        ("16*T", "16*Q", "dims.m", "16*Q"),
        ("constant: true", "constant: 1", "tensors.W.constant", "1"),
        ("constant: true", "konstant: true", "tensors.W.konstant", "konstant"),
        ("n: 32", "z: 32", "dims.z", "z"),
        ("relu]", "rely]", "op.epilogue.1", "rely"),
        ("- T: 3", "- T: 30", "instances.1.T", "30"),
        ("- T: 3", "- T: 1", "instances.1", "T: 1"),
        ("name: dense", "name: 7", "name", "7"),
        ("  T: {min: 1, max: 8}", "  T: {min: 1}", "shape_vars.T.max", "T"),
        ("  T: {min: 1, max: 8}", "  T: 5", "shape_vars.T", "5"),
        ("  T: {min: 1, max: 8}", "  T: {values: []}", "shape_vars.T.values", "values"),
        ("W: {dims: nk", "X1.y: {dims: nk", "tensors.X1.y", "X1.y"),
        ("name: dense\n", "", "name", ""),
        ("T: {min", "T: &a {min", None, "&a"),
        ("weight: 2", "weight: !!python/object:os.system 2", None, "!!python/object"),
        ("min: 1", "min: 1, min: 2", None, "min"),
        ("min: 1", "min: on", None, "on"),
        ("min: 1", "min: .inf", "shape_vars.T.min", ".inf"),
        ("max: 8}", "max: 8", None, ":"),
    ],
)
def test_a_problem_is_at_its_place(old: str, new: str, field: str | None, marked: str) -> None:
    assert GOOD.count(old) == 1
    text = GOOD.replace(old, new)
    assert problems(text)[0] == (field, marked)
    as_json = check_text(text)
    assert as_json.spec is None and (field is None) <= (as_json.data is None)


def test_several_problems_are_told_at_once_unknown_fields_first() -> None:
    text = GOOD.replace("min: 1", "min: 0").replace("name: dense", "nmae: dense").replace(" n: 32", " n: 0")
    assert problems(text)[0] == ("dims.n", "0")  # by the code that raises at once
    text = text.replace(" n: 0", " n: 32").replace("name: Y", "name: 1")
    assert problems(text) == [
        ("nmae", "nmae"),
        ("name", ""),
        ("output.name", "1"),
        ("shape_vars.T.min", "0"),
    ]
    many = GOOD + "".join(f"x{number}: 1\n" for number in range(100))
    assert len(problems(many)) == MAX_PROBLEMS


def test_json_has_places_too() -> None:
    data = json.loads(json.dumps(check_text(GOOD).data))
    data["shape_vars"]["T"]["min"] = 0
    for text in (json.dumps(data), json.dumps(data, indent=2), json.dumps(data, indent="\t")):
        assert problems(text) == [("shape_vars.T.min", "0")], text
    (found,) = check_text('{\n  "name": "a",\n  "op": ]').problems
    assert (found.field, found.line, found.column) == (None, 3, 9) and "Expecting value" in found.message


def test_a_byte_order_mark_shifts_nothing() -> None:
    (found,) = check_text("\ufeff" + "min: on").problems
    assert (found.line, found.column, found.end_column) == (1, 7, 9)
    text = "\ufeff" + GOOD.replace("min: 1", "min: 0")
    assert problems(text) == [("shape_vars.T.min", "0")]


@pytest.mark.parametrize(
    "text", ["", "\n\n", "# only a comment", "7", "- a", "{", "\x00", "a: \ud800", "é" * 9]
)
def test_a_text_that_is_no_spec(text: str) -> None:
    (found,) = check_text(text).problems
    assert found.field is None and found.message and "\n" not in found.message


def test_a_text_that_is_too_long_or_too_deep() -> None:
    (found,) = check_text(GOOD + "#" * MAX_BYTES).problems
    assert found.field is None and f"at most {MAX_BYTES} bytes" in found.message
    (found,) = check_text("é" * (MAX_BYTES // 2 + 1)).problems
    assert "larger than 64 KiB" in found.message
    (found,) = check_text("a: " + "[" * 10_000).problems
    assert "nested too deep" in found.message


def check_places(text: str) -> None:
    """Every place is inside of the text, and what is answered is what the API would answer."""
    found = check_text(text)
    lines = text.split("\n")
    for problem in found.problems:
        assert 1 <= problem.line <= len(lines)
        assert 1 <= problem.column <= problem.end_column <= len(lines[problem.line - 1]) + 1
        assert "\n" not in problem.message
    try:
        spec = parse_spec(text)
    except SpecError as error:
        assert found.spec is None and found.problems
        first = found.problems[0]
        assert (first.field or "") == error.field and first.message in str(error)
    else:
        assert found.spec == spec and found.problems == ()


odd = st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.lists(st.integers(), max_size=2)
fields = st.sampled_from(
    ["name", "op", "tensors", "output", "shape_vars", "dims", "instances", "target", "x.y"]
)


@given(
    field=fields, value=odd | st.dictionaries(st.text(max_size=4), odd, max_size=3), style=st.integers(0, 2)
)
def test_places_of_nearly_good_data(field: str, value: Any, style: int) -> None:
    import yaml

    data = dict(check_text(GOOD).data or {}) | {field: value}
    texts = (json.dumps(data), json.dumps(data, indent="\t"), yaml.safe_dump(data, sort_keys=False))
    check_places(texts[style])


@settings(max_examples=200)
@given(begin=st.integers(0, len(GOOD)), length=st.integers(0, 20), new=st.text(max_size=8))
def test_places_of_texts_somebody_types(begin: int, length: int, new: str) -> None:
    check_places(GOOD[:begin] + new + GOOD[begin + length :])


@given(st.text(alphabet=" \n\t-:{}[],&*!|>'\"%@`#?ab1\r\u2028\ufeff", max_size=40))
def test_places_of_any_text(text: str) -> None:
    check_places(text)


def test_every_field_is_checked_where_one_stops_the_check() -> None:
    text = (
        GOOD.replace("16*T", "16**T").replace("min: 1", "min: 0")
        + "target: {kind: abacus}\nbudget: {trials: 0}\n"
    )
    assert sorted(problems(text)) == [
        ("budget.trials", "0"),
        ("dims.m", "16**T"),
        ("shape_vars.T.min", "0"),
        ("target.kind", "abacus"),
    ]


def test_fields_that_disagree_are_told_at_once() -> None:
    text = GOOD.replace("16*T", "16*Q").replace("k: 24", "k: 24*R").replace("n: 32", "n: 9*T")
    text = text.replace("name: Y", "name: X")
    named = ("output.name", "name")
    assert problems(text) == [named, ("dims.m", "16*Q"), ("dims.k", "24*R")], "names are compared first"
    text = text.replace("name: X", "name: Y").replace("dims: nk, dtype: float32", "dims: nk, dtype: float16")
    assert problems(text) == [("tensors.W.dtype", "float16"), ("dims.m", "16*Q"), ("dims.k", "24*R")]


def test_an_operand_that_does_not_fit_hides_no_other_problem() -> None:
    text = GOOD.replace("dims: nk, dtype: float32", "dims: nz, dtype: float31")
    text = text.replace("16*T", "16*Q").replace("n: 32", "n: 9*T")
    assert problems(text) == [("tensors.W.dims", "nz"), ("tensors.W.dtype", "float31"), ("dims.m", "16*Q")]


def test_a_file_names_itself_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    for text, says in {
        GOOD.replace("min: 1", "min: 0"): ":9:12: shape_vars.T.min: given 0; allowed: at least 1",
        GOOD.replace("min: 1", "min: on"): ":9:12: 'on' is a boolean in YAML; ",
        GOOD.replace("name: dense\n", ""): ":2:1: name: missing; required: ",
    }.items():
        path.write_text(text)
        with pytest.raises(SpecError) as caught:
            load_spec(path)
        assert str(caught.value).startswith(f"{path}{says}")
    path.write_bytes(b"\xff")
    with pytest.raises(SpecError, match=r"spec\.yaml: not UTF-8"):
        load_spec(path)


def test_a_file_is_checked_with_its_histograms(tmp_path: Path) -> None:
    (tmp_path / "seen.jsonl").write_text('{"T": 9}\n')
    text = (
        GOOD[: GOOD.index("instances")].replace("max: 8", "max: 8, weights: seen.jsonl")
        + "budget: {trials: 0}\n"
    )
    found = check_file(text.encode(), tmp_path).problems
    assert [problem.field for problem in found] == ["shape_vars.T.weights", "budget.trials"]
    (tmp_path / "seen.jsonl").write_text('{"T": 7}\n')
    good = check_file(text.replace("trials: 0", "trials: 9").encode(), tmp_path)
    assert good.problems == () and good.spec is not None and good.spec.shape_vars["T"].weights == {7: 1}
    (found_one,) = check_file(b"name: a\nop: \xff", tmp_path).problems
    assert (found_one.line, found_one.column) == (2, 5) and "not UTF-8" in found_one.message
