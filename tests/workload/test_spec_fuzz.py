"""Whatever the text or the data: a valid spec, or a one-line RequestError."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dietcode.errors import RequestError, SpecError
from dietcode.workload.parse import parse_spec, spec_from_data
from dietcode.workload.spec import Spec

TEXT = (Path(__file__).parents[2] / "examples" / "bert-dense.yaml").read_text()
modest = settings(deadline=None, max_examples=60)

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@modest
@given(st.text(max_size=200) | st.text(alphabet="{}[]:,-?!&*#|>'\"% \n\tabT019.~@`", max_size=80))
def test_any_text_is_a_request_error(text):
    with pytest.raises(RequestError) as caught:
        parse_spec(text)
    assert "\n" not in str(caught.value)


@modest
@given(st.binary(max_size=100))
def test_any_bytes_are_a_request_error(data):
    with pytest.raises(RequestError):
        parse_spec(data)


@modest
@given(plain)
def test_any_json_is_a_request_error(data):
    with pytest.raises(RequestError):
        parse_spec(json.dumps(data))
    with pytest.raises(RequestError):
        spec_from_data(data)


PATHS = [
    "name",
    "op",
    "op.einsum",
    "op.epilogue",
    "tensors",
    "tensors.X",
    "tensors.X.dims",
    "tensors.W.constant",
    "output",
    "accumulate",
    "shape_vars",
    "shape_vars.T",
    "shape_vars.T.min",
    "shape_vars.T.weights",
    "dims",
    "dims.m",
    "instances",
    "target",
    "target.kind",
    "budget",
    "budget.seconds",
    "objective",
    "objective.max_loss",
]


@settings(deadline=None, max_examples=150)
@given(path=st.sampled_from(PATHS), value=plain, wrap=st.booleans())
def test_any_value_in_any_field_is_a_spec_or_a_one_line_spec_error(path, value, wrap):
    data = json.loads(json.dumps(parse_spec(TEXT).to_json()))
    *parents, last = path.split(".")
    at = data
    for part in parents:
        at = at[part]
    at[last] = [value] if wrap else value
    try:
        spec = parse_spec(json.dumps(data))
    except SpecError as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(spec, Spec)
        assert parse_spec(json.dumps(spec.to_json())) == spec


@modest
@given(st.integers(0, len(TEXT)), st.integers(0, 12), st.text(alphabet="{}[]:,'\"\n T1*&!-", max_size=4))
def test_a_damaged_example_is_a_spec_or_a_request_error(start, length, inserted):
    try:
        parse_spec(TEXT[:start] + inserted + TEXT[start + length :])
    except RequestError as error:
        assert "\n" not in str(error)
