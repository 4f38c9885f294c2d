"""Fields of a convolution along one axis: what they mean, and what is refused."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from dietcode.errors import SpecError
from dietcode.workload.contraction import Contraction
from dietcode.workload.identity import workload_digest
from dietcode.workload.parse import spec_from_data
from dietcode.workload.spec import Spec

BASE: dict[str, Any] = {
    "name": "conv",
    "op": {"conv1d": {"stride": 2, "padding": 1}, "epilogue": ["bias"]},
    "tensors": {
        "X": {"dims": "nwc", "dtype": "float32"},
        "F": {"dims": "ocs", "dtype": "float32", "constant": True},
    },
    "shape_vars": {"T": {"min": 1, "max": 32}},
    "dims": {"n": 3, "w": "8*T", "c": 6, "o": 9, "s": 3},
}


def conv(**changes: Any) -> Spec:
    data = copy.deepcopy(BASE)
    for path, value in changes.items():
        *parents, last = path.split(".")
        at: Any = data
        for part in parents:
            at = at[part]
        at[last] = value
    return spec_from_data(data)


def test_letters_and_extents() -> None:
    spec = conv()
    assert spec.output_indices == "nqo"
    assert [str(spec.dims_parsed[k]) for k in "nqo"] == ["3", "4*T", "9"]
    assert str(spec.op) == "conv1d of NWC and OIW"
    assert spec.bias_index == "o"
    found = Contraction.from_spec(spec)
    assert (found.row_operand, found.rows, found.columns) == ("X", ("n", "q"), ("o",))
    assert (found.batch, found.reduction) == ((), ("s", "c"))
    assert spec_from_data(json.loads(json.dumps(spec.to_json()))) == spec


def test_channels_before_positions_and_groups() -> None:
    grouped = {"op.conv1d.groups": 3, "op.conv1d.data_layout": "NCW", "op.conv1d.kernel_layout": "WIO"}
    spec = conv(**grouped, **{"tensors.X.dims": "ncw", "tensors.F.dims": "sio", "dims.i": 2})
    found = Contraction.from_spec(spec)
    assert spec.output_indices == "noq"
    assert (found.row_operand, found.rows, found.columns) == ("F", ("u",), ("q",))
    assert (found.batch, found.reduction) == (("n", "g"), ("i", "s"))


def test_padding_that_differs_from_side_to_side() -> None:
    assert str(conv(**{"op.conv1d.padding": [0, 2]}).dims_parsed["q"]) == "4*T"
    assert workload_digest(conv(**{"op.conv1d.padding": [1, 1]})) == workload_digest(conv())
    assert workload_digest(conv(**{"op.conv1d.padding": [0, 2]})) != workload_digest(conv())


REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    ({"op.conv1d": 3}, "op.conv1d", "allowed: a mapping"),
    ({"op.conv1d.strides": 1}, "op.conv1d.strides", "did you mean 'stride'?"),
    ({"op.conv1d.stride": 0}, "op.conv1d.stride", "at least 1"),
    ({"op.conv1d.padding": -1}, "op.conv1d.padding", "given -1; allowed: an integer from 0 to 32768, or"),
    ({"op.conv1d.padding": [1, 2, 3]}, "op.conv1d.padding", "or two, [left, right]"),
    ({"op.conv1d.padding": True}, "op.conv1d.padding", "given True"),
    ({"op.conv1d.dilation": 1.5}, "op.conv1d.dilation", "an integer"),
    ({"op.conv1d.data_layout": "NHWC"}, "op.conv1d.data_layout", "allowed: 'NWC' or 'NCW'"),
    ({"op.conv1d.groups": 3}, "tensors.F.dims", "a letter of its own, of extent c/3"),
    ({"op.conv2d": {}}, "op", "given both; allowed: exactly one of einsum, conv2d, conv1d"),
    ({"tensors.X.dims": "nhwc"}, "tensors.X.dims", "a letter for each axis of NWC"),
    ({"dims.w": "T", "dims.s": 5}, "dims.w", "at least the window, 5, less twice the padding of 1"),
]


@pytest.mark.parametrize(("changes", "field", "fragment"), REFUSALS)
def test_refusals(changes: dict[str, Any], field: str, fragment: str) -> None:
    with pytest.raises(SpecError) as caught:
        conv(**changes)
    assert caught.value.field == field
    assert fragment in caught.value.problem
    assert "\n" not in str(caught.value)
