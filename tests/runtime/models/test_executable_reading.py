"""Descriptions of models: what is read, and each refusal, which is a LibraryError of one line."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hand_models import scaled_sum, step

from dietcode.errors import LibraryError
from dietcode.graph.extent import parse_extent
from dietcode.runtime.models.executable import HostStep, KernelStep, read_executable

Change = Callable[[dict[str, Any]], object]
DIGEST = "ab" * 16


def test_what_is_read() -> None:
    found = read_executable(scaled_sum())
    assert found.ranges == {"B": (1, 8), "L": (0, 512)} and found.outputs == ("y",)
    assert str(found.inputs["x"]) == "float32[B, L]" and found.digests == []
    assert found.storage_sizes == ((parse_extent("4*B*L"),),) and found.storage_of == {"twice": 0}
    assert found.steps[0] == HostStep("mul", ("x", 2.0), {}, ("twice",), False)


def test_a_step_of_a_kernel() -> None:
    data = scaled_sum()
    data["steps"][1] = {
        "kernel": DIGEST,
        "arguments": {"X": {"value": "twice", "shape": ["B*L"]}},
        "results": [{"value": "y", "shape": ["B*L"]}],
        "variables": {"Nm": "B*L"},
    }
    found = read_executable(data)
    kernel = found.steps[1]
    assert isinstance(kernel, KernelStep) and found.digests == [DIGEST]
    assert kernel.variables["Nm"].evaluate({"B": 3, "L": 5}) == 15


def test_numbers_that_json_lacks_are_texts() -> None:
    data = scaled_sum()
    data["steps"][0] = step("maximum", ["x"], "twice")
    data["steps"][0]["operands"].append("-inf")
    first = read_executable(data).steps[0]
    assert isinstance(first, HostStep) and first.operands == ("x", float("-inf"))


def _later_format(data: dict[str, Any]) -> None:
    data["format"] = "dietcode-model/2"


def _reads_too_early(data: dict[str, Any]) -> None:
    data["steps"].reverse()


def _reads_nothing_known(data: dict[str, Any]) -> None:
    data["steps"][0]["operands"][0] = {"value": "z"}


def _load_reads_an_input(data: dict[str, Any]) -> None:
    data["load"] = [step("mul", ["x", 2.0], "w")]
    data["values"]["w"] = data["values"]["y"]


def _writes_twice(data: dict[str, Any]) -> None:
    data["steps"].append(deepcopy(data["steps"][1]))


def _writes_an_input(data: dict[str, Any]) -> None:
    data["steps"][1]["results"] = ["x"]


def _writes_what_has_no_type(data: dict[str, Any]) -> None:
    del data["values"]["y"]


def _view_of_two(data: dict[str, Any]) -> None:
    data["steps"][1] = step("reshape", ["x", "twice"], "y", view=True, shape=["B", "L"])


def _view_that_computes(data: dict[str, Any]) -> None:
    data["steps"][1] = step("relu", ["twice"], "y", view=True)


def _bad_extent(data: dict[str, Any]) -> None:
    data["inputs"]["x"]["shape"] = ["B", "__import__('os').getpid()"]


def _unknown_dimension(data: dict[str, Any]) -> None:
    data["values"]["twice"]["shape"] = ["B", "K"]


def _range_upside_down(data: dict[str, Any]) -> None:
    data["dimensions"]["B"] = {"min": 8, "max": 1}


def _negative_range(data: dict[str, Any]) -> None:
    data["dimensions"]["L"] = {"min": -1, "max": 1}


def _deep_signature(data: dict[str, Any]) -> None:
    tree: Any = "x"
    for _ in range(5000):
        tree = {"list": [tree]}
    data["signature"]["positional"] = [tree]


REFUSALS: dict[str, tuple[Change, str]] = {
    "later format": (
        _later_format,
        "model.json: format 'dietcode-model/2'; this version reads dietcode-model/1",
    ),
    "no format": (lambda data: data.pop("format"), "format 'None'"),
    "no steps": (lambda data: data.pop("steps"), "KeyError: 'steps'"),
    "steps of another kind": (lambda data: data.update(steps=7), "TypeError"),
    "step of another kind": (lambda data: data.update(steps=["mul"]), "describes no model"),
    "unknown operator": (lambda data: data["steps"][0].update(host="system"), "KeyError: 'system'"),
    "unknown attribute": (lambda data: data["steps"][0].update(attributes={"of": 1}), "KeyError: 'of'"),
    "unknown dtype": (lambda data: data["inputs"]["x"].update(dtype="object"), "dtype 'object'"),
    "extent that is code": (_bad_extent, "allowed: names, numbers"),
    "extent of no dimension": (_unknown_dimension, "extent 'K' follows from no dimension of the model"),
    "range upside down": (_range_upside_down, "dimension 'B' from 8 to 1"),
    "negative range": (_negative_range, "dimension 'L' from -1 to 1"),
    "read too early": (_reads_too_early, "a step reads 'twice' before it is computed"),
    "read of nothing": (_reads_nothing_known, "a step reads 'z' before it is computed"),
    "load that reads an input": (_load_reads_an_input, "a step reads 'x' before it is computed"),
    "written twice": (_writes_twice, "a step writes 'y', which is no value that is yet to be computed"),
    "input written": (_writes_an_input, "a step writes 'x'"),
    "value without type": (_writes_what_has_no_type, "a step writes 'y'"),
    "view of two": (_view_of_two, "reshape as a view of 2 values"),
    "view that computes": (_view_that_computes, "relu as a view; allowed: reshape, transpose, expand, slice"),
    "output of nothing": (lambda data: data.update(outputs=["z"]), "output 'z' is computed by no step"),
    "storage that is not there": (lambda data: data["storages"]["of"].update(twice=1), "in storage 1 of 1"),
    "negative storage": (lambda data: data["storages"]["of"].update(twice=-1), "in storage -1 of 1"),
    "storage of nothing": (lambda data: data["storages"]["of"].update(z=0), "KeyError: 'z'"),
    "signature without an input": (
        lambda data: data["signature"].update(positional=[]),
        "the signature does not give each input once",
    ),
    "signature with too many outputs": (
        lambda data: data["signature"].update(output={"list": ["*", "*"]}),
        "the signature does not give each output once",
    ),
    "signature without end": (_deep_signature, "RecursionError"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_descriptions_that_are_refused(what: str) -> None:
    change, message = REFUSALS[what]
    data = scaled_sum()
    change(data)
    with pytest.raises(LibraryError) as caught:
        read_executable(data)
    assert message in str(caught.value) and str(caught.value).startswith("model.json: ")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200
