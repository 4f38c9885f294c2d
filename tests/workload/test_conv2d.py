"""Convolutions in a spec: letters, extents that follow from others, refusals."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dietcode.errors import SpecError
from dietcode.workload.contraction import Contraction
from dietcode.workload.expr import DimExpr
from dietcode.workload.identity import workload_digest
from dietcode.workload.parse import spec_from_data
from dietcode.workload.quotient import QuotientDim, bounds, parse_dim, window_positions
from dietcode.workload.spec import Spec

BASE: dict[str, Any] = {
    "name": "conv",
    "op": {"conv2d": {"strides": 2, "padding": 1}},
    "tensors": {
        "X": {"dims": "nhwc", "dtype": "float32"},
        "W": {"dims": "ocrs", "dtype": "float32", "constant": True},
    },
    "output": {"name": "Y", "dtype": "float32"},
    "shape_vars": {"T": {"min": 1, "max": 32}},
    "dims": {"n": "T", "h": "8*T", "w": 14, "c": 6, "o": 9, "r": 3, "s": 3},
}
GROUPED = {"op.conv2d.groups": 3, "tensors.W.dims": "oirs", "dims.i": 2}


def conv(**changes: Any) -> Spec:
    data = copy.deepcopy(BASE)
    for path, value in changes.items():
        *parents, last = path.split(".")
        at: Any = data
        for part in parents:
            at = at[part]
        at[last] = value
    return spec_from_data(data)


def output_dims(spec: Spec) -> list[str]:
    return [str(spec.dims_parsed[letter]) for letter in spec.output_indices]


def test_letters_and_extents() -> None:
    spec = conv()
    assert spec.output_indices == "npqo"
    assert output_dims(spec) == ["T", "4*T", "7", "9"]
    found = Contraction.from_spec(spec)
    assert (found.row_operand, found.column_operand) == ("X", "W")
    assert (found.batch, found.rows) == ((), ("n", "p", "q"))
    assert (found.columns, found.reduction) == (("o",), ("r", "s", "c"))
    assert found.flops(spec, {"T": np.array([1, 3])}).tolist() == [
        2 * t * 4 * t * 7 * 9 * 3 * 3 * 6 for t in (1, 3)
    ]


def test_letters_of_nchw_with_groups() -> None:
    spec = conv(**GROUPED, **{"op.conv2d.data_layout": "NCHW", "tensors.X.dims": "nchw"})
    assert spec.output_indices == "nopq"
    found = Contraction.from_spec(spec)
    assert (found.row_operand, found.column_operand) == ("W", "X")
    assert (found.batch, found.rows) == (("n", "g"), ("u",))
    assert (found.columns, found.reduction) == (("p", "q"), ("i", "r", "s"))
    assert spec.convolution is not None
    assert spec.convolution.splits == {"c": "gi", "o": "gu"}
    assert {k: str(spec.dims_parsed[k]) for k in "gu"} == {"g": "3", "u": "3"}


def test_fresh_letters_avoid_those_given() -> None:
    dims = {"p": "T", "q": 8, "g": 8, "u": 6, "a": 9, "r": 3, "s": 3, "i": 2}
    changes = {"tensors.X.dims": "pqgu", "tensors.W.dims": "airs", "dims": dims}
    spec = conv(**changes, **{"op.conv2d.groups": 3})
    assert spec.convolution is not None
    assert spec.output_indices == "pbca"
    assert spec.convolution.splits == {"u": "di", "a": "de"}


def test_a_window_of_one_element_is_none() -> None:
    plain = conv(**{"op.conv2d": {}, "dims.r": 1, "dims.s": 1})
    assert plain.output_indices == "nhwo"
    assert plain.convolution is not None
    assert plain.convolution.slides == ()
    strided = conv(**{"op.conv2d": {"strides": [1, 2]}, "dims.r": 1, "dims.s": 1})
    assert strided.output_indices == "nhqo"
    assert conv(**{"op.conv2d": {"padding": 1}, "dims.r": 1, "dims.s": 1}).output_indices == "npqo"


def test_bias_and_residual() -> None:
    nchw = {"op.conv2d.data_layout": "NCHW", "tensors.X.dims": "nchw"}
    spec = conv(**nchw, **{"op.epilogue": ["bias", {"residual": "R"}]})
    assert spec.epilogue_tensors == {"bias": "o", "R": "nopq"}


def test_one_number_stands_for_both() -> None:
    pairs = {"op.conv2d": {"strides": [2, 2], "padding": [1, 1], "dilation": [1, 1], "groups": 1}}
    assert workload_digest(conv()) == workload_digest(conv(**pairs))
    assert workload_digest(conv()) != workload_digest(conv(**{"op.conv2d.strides": [2, 1]}))
    assert spec_from_data(json.loads(json.dumps(conv().to_json()))) == conv()


def test_padding_that_differs_from_side_to_side() -> None:
    uneven = conv(**{"op.conv2d.padding": [0, 1, 3, 2]})
    assert output_dims(uneven) == ["T", "4*T", "9", "9"]
    assert spec_from_data(json.loads(json.dumps(uneven.to_json()))) == uneven
    assert workload_digest(uneven) != workload_digest(conv(**{"op.conv2d.padding": [1, 0, 2, 3]}))
    even = conv(**{"op.conv2d.padding": [1, 1, 1, 1]})
    assert workload_digest(even) == workload_digest(conv())


REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    ({"op.conv2d": 3}, "op.conv2d", "allowed: a mapping"),
    ({"op.conv2d.stride": 1}, "op.conv2d.stride", "did you mean 'strides'?"),
    ({"op.conv2d.strides": 0}, "op.conv2d.strides", "given 0; allowed: an integer from 1 to 32768"),
    ({"op.conv2d.strides": [1]}, "op.conv2d.strides", "or two of them, [height, width]"),
    ({"op.conv2d.strides": True}, "op.conv2d.strides", "given True"),
    ({"op.conv2d.padding": -1}, "op.conv2d.padding", "given -1; allowed: an integer from 0"),
    ({"op.conv2d.padding": "SAME"}, "op.conv2d.padding", "given 'SAME'"),
    ({"op.conv2d.padding": [1, 2**15 + 1]}, "op.conv2d.padding", "to 32768"),
    ({"op.conv2d.padding": [1, 2, 3]}, "op.conv2d.padding", "[height, width] or [top, bottom, left, right]"),
    ({"op.conv2d.padding": [1, 2, 3, -1]}, "op.conv2d.padding", "integers from 0 to 32768"),
    (
        {"dims.h": "T", "dims.r": 5, "op.conv2d.padding": [1, 0, 1, 1]},
        "dims.h",
        "at least the window, 5, less the padding of 1 and 0",
    ),
    ({"op.conv2d.dilation": 1.0}, "op.conv2d.dilation", "given 1.0"),
    ({"op.conv2d.groups": 0}, "op.conv2d.groups", "at least 1"),
    ({"op.conv2d.data_layout": "NHCW"}, "op.conv2d.data_layout", "allowed: 'NHWC' or 'NCHW'"),
    ({"op.conv2d.kernel_layout": "IOHW"}, "op.conv2d.kernel_layout", "'OIHW', 'OHWI' or 'HWIO'"),
    ({"op.einsum": "mk,nk->mn"}, "op", "given both; allowed: exactly one of einsum, conv2d"),
    ({"tensors.X.dims": "nhw"}, "tensors.X.dims", "given 'nhw'; allowed: a letter for each axis of NHWC"),
    ({"tensors.W.dims": "oorr"}, "tensors.W.dims", "each once, like oihw"),
    ({"tensors.W.dims": "oirs"}, "tensors.W.dims", "allowed: 'c' for I, the channels of X"),
    ({"tensors.W.dims": "ochs"}, "tensors.W.dims", "letters that are not X's, not 'h'"),
    ({**GROUPED, "tensors.W.dims": "ocrs"}, "tensors.W.dims", "a letter of its own, of extent c/3"),
    ({**GROUPED, "tensors.W.dims": "oihs"}, "tensors.W.dims", "not 'h'"),
    ({**GROUPED, "dims.i": 3}, "dims.i", "given 3; allowed: c/groups, 6/3"),
    ({**GROUPED, "dims.o": 8}, "dims.o", "given 8; allowed: a multiple of 3 groups"),
    ({**GROUPED, "dims.r": "T"}, "dims.r", "allowed with groups: a constant"),
    ({**GROUPED, "dims.c": "6*T"}, "dims.c", "allowed with groups: a constant"),
    ({"dims.p": 3}, "dims.p", "not an index of conv2d of NHWC and OIHW; allowed: c, h, n, o, r, s, w"),
    ({"tensors": {"X": BASE["tensors"]["X"]}}, "tensors", "the 2 operands of conv2d"),
    (
        {"dims.h": "T", "dims.r": 5},
        "dims.h",
        "given 'T'; an output of extent 0 at the smallest shape; allowed: at least the window, 5, less twice",
    ),
    (
        {"dims.w": 4, "op.conv2d.dilation": 3, "op.conv2d.padding": 0},
        "dims.w",
        "the window, 3*(3 - 1) + 1",
    ),
    ({"dims.h": 2**31, "dims.r": 1, "op.conv2d": {"padding": 1}}, "dims.h", "2**31"),
    ({"dims.r": "2*T", "dims.h": 40, "op.conv2d.padding": 0}, "dims.h", "an output of extent"),
    ({"op.epilogue": [{"residual": "X"}]}, "op.epilogue.0", "already used by tensors.X"),
]


@pytest.mark.parametrize(("changes", "field", "fragment"), REFUSALS)
def test_refusals(changes: dict[str, Any], field: str, fragment: str) -> None:
    with pytest.raises(SpecError) as caught:
        conv(**changes)
    assert caught.value.field == field
    assert fragment in caught.value.problem
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


numbers = st.integers(0, 9)


@settings(deadline=None)
@given(
    slope=numbers,
    start=st.integers(1, 40),
    kernel_slope=st.integers(0, 2),
    kernel_start=st.integers(1, 5),
    steps=st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(0, 4)),
)
def test_positions_follow_the_formula(
    slope: int, start: int, kernel_slope: int, kernel_start: int, steps: tuple[int, int, int]
) -> None:
    stride, dilation, padding = steps
    axis = DimExpr.parse(f"{slope}*T + {start}", "h")
    kernel = DimExpr.parse(f"{kernel_slope}*T + {kernel_start}", "r")
    dim = window_positions(axis, kernel, stride, dilation, 2 * padding, "h")
    assert parse_dim(str(dim), "h") == dim
    sizes = np.arange(1, 9)
    axes, kernels = slope * sizes + start, kernel_slope * sizes + kernel_start
    expected = (axes + 2 * padding - dilation * (kernels - 1) - 1) // stride + 1
    assert np.broadcast_to(dim.evaluate({"T": sizes}), sizes.shape).tolist() == expected.tolist()
    assert [dim.evaluate({"T": int(size)}) for size in sizes] == expected.tolist()
    least, greatest = bounds(dim, {"T": 1}, {"T": 8})
    assert least <= expected.min()
    assert greatest >= expected.max()
    if not (slope and kernel_slope):
        assert [least, greatest] == [expected.min(), expected.max()]
    assert dim.is_constant == (slope == dilation * kernel_slope)
    if dim.is_constant:
        assert dim.constant_value() == expected[0]


def test_a_division_without_rest_is_an_ordinary_dimension() -> None:
    height = DimExpr.parse("8*T", "h")
    three = DimExpr.parse(3, "r")
    assert window_positions(height, three, 2, 1, 2, "h") == DimExpr.parse("4*T", "h")
    assert window_positions(height, three, 1, 1, 2, "h") == height
    assert str(window_positions(height, three, 1, 1, 0, "h")) == "8*T - 2"
    odd = window_positions(DimExpr.parse("T", "h"), DimExpr.parse("R", "r"), 2, 3, 0, "h")
    assert str(odd) == "(T + 4 - 3*R)//2"
    assert odd.variables == ("R", "T")
    assert not odd.linear_in("T")
    assert odd.solve("T", 3, {"R": 1}) is None
    with pytest.raises(ValueError, match="not a constant"):
        odd.constant_value()


@pytest.mark.parametrize(
    "text",
    [
        "T//2",
        "(T)//0",
        "(T)//02",
        "(T)//",
        "(T)//x",
        "(T - - 1)//2",
        "(T//2)//2",
        "T - ",
        " - T",
        "(T)//9" * 9,
    ],
)
def test_texts_that_are_no_dimension(text: str) -> None:
    with pytest.raises(SpecError):
        parse_dim(text, "dims.p")


def test_a_quotient_without_a_difference() -> None:
    dim = parse_dim("(T + 1)//2", "dims.p")
    assert isinstance(dim, QuotientDim)
    assert [dim.evaluate({"T": t}) for t in (1, 2, 3)] == [1, 1, 2]


plain = (
    st.none()
    | st.booleans()
    | st.integers(-2, 40)
    | st.text("NHWCOI1hx", max_size=4)
    | st.lists(numbers, max_size=3)
)


@settings(deadline=None, max_examples=150)
@given(
    st.dictionaries(
        st.sampled_from(["strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "x"]),
        plain,
    ),
    st.dictionaries(
        st.sampled_from("nhwcors"), st.integers(0, 9) | st.sampled_from(["T", "2*T + 1"]), max_size=4
    ),
)
def test_any_options_are_a_spec_or_a_refusal(options: dict[str, Any], dims: dict[str, Any]) -> None:
    try:
        spec = conv(**{"op.conv2d": options, "dims": BASE["dims"] | dims})
    except SpecError as error:
        assert "\n" not in str(error)
    else:
        assert spec_from_data(json.loads(json.dumps(spec.to_json()))) == spec
        assert all(dim.evaluate({"T": 1}) >= 1 for dim in spec.dims_parsed.values())
