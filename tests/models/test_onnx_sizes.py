"""Arithmetic of ONNX on sizes, each beside the package's reference functions at every length of a range."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx_runs import Array, assert_as_reference, import_model, model_of_nodes, onnx

from dietcode.errors import ModelError

node = onnx.helper.make_node
INT64, FLOAT = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT


def _floor_division(divisor: str) -> list[Any]:
    """Return ``q = s // divisor`` as PyTorch's exporter writes it, of numbers of either sign."""
    return [
        *(
            node("Sign", ["s"], ["s1"]),
            node("Sign", [divisor], ["s2"]),
            node("Equal", ["s1", "s2"], ["same"]),
        ),
        *(node("Not", ["same"], ["differ"]), node("Mod", ["s", divisor], ["rest"])),
        *(node("Cast", ["rest"], ["left"], to=9), node("And", ["differ", "left"], ["less"])),
        *(node("Cast", ["less"], ["one_less"], to=INT64), node("Div", ["s", divisor], ["whole"])),
        node("Sub", ["whole", "one_less"], ["q"]),
    ]


def _float(*middle: Any, last: str = "f") -> list[Any]:
    return [node("Cast", ["L"], ["f"], to=FLOAT), *middle, node("Cast", [last], ["n"], to=INT64)]


# What makes ``n`` of the length ``L``, or of ``s``, which is L - 4.
ARITHMETIC: dict[str, list[Any]] = {
    "rest to a multiple": [node("Neg", ["L"], ["m"]), node("Mod", ["m", "three"], ["n"])],
    "negative divisor": [node("Mod", ["L", "minus"], ["r"]), node("Neg", ["r"], ["n"])],
    "signed remainder": [node("Mod", ["s", "three"], ["r"], fmod=1), node("Add", ["r", "three"], ["n"])],
    "truncated": [node("Div", ["s", "three"], ["q"]), node("Add", ["q", "three"], ["n"])],
    "truncated, negative": [node("Div", ["s", "minus"], ["q"]), node("Add", ["q", "three"], ["n"])],
    "floor division": [*_floor_division("three"), node("Add", ["q", "three"], ["n"])],
    "absolute": [node("Abs", ["s"], ["n"])],
    "clipped": [node("Clip", ["L", "two", "five"], ["n"])],
    "clipped above": [node("Clip", ["L", "", "five"], ["n"])],
    "half": _float(node("Mul", ["f", "half"], ["h"]), node("Floor", ["h"], ["w"]), last="w"),
    "rounded up": _float(node("Mul", ["f", "half"], ["h"]), node("Ceil", ["h"], ["w"]), last="w"),
    "third": _float(node("Div", ["f", "three_float"], ["h"]), node("Floor", ["h"], ["w"]), last="w"),
    "cast": _float(node("Mul", ["f", "half"], ["h"]), last="h"),
    "one and a half": _float(
        *(node("Mul", ["f", "half"], ["h"]), node("Add", ["f", "h"], ["a"]), node("Floor", ["a"], ["w"])),
        last="w",
    ),
    "where": [node("Less", ["L", "five"], ["is"]), node("Where", ["is", "two", "L"], ["n"])],
    "where equal": [node("Equal", ["L", "five"], ["is"]), node("Where", ["is", "two", "L"], ["n"])],
    "conditions": [
        *(node("Greater", ["L", "two"], ["a"]), node("LessOrEqual", ["L", "five"], ["b"])),
        *(node("And", ["a", "b"], ["c"]), node("Xor", ["a", "c"], ["d"]), node("Or", ["c", "d"], ["e"])),
        *(node("Not", ["e"], ["f"]), node("Where", ["f", "five", "three"], ["n"])),
    ],
    "largest": [node("Concat", ["L", "five"], ["both"], axis=0), node("ReduceMax", ["both"], ["n"])],
}
REFUSED: dict[str, tuple[list[Any], str]] = {
    "rounded": (
        _float(node("Mul", ["f", "tenth"], ["h"]), node("Floor", ["h"], ["w"]), last="w"),
        "arithmetic",
    ),
    "root": (
        _float(node("Sqrt", ["f"], ["h"]), last="h"),
        "arithmetic that sizes do not have; allowed: whole",
    ),
    "values": (
        [node("ReduceMax", ["x"], ["m"], keepdims=1), node("Cast", ["m"], ["n"], to=INT64)],
        "a size that depends on values; allowed: sizes that follow from shapes",
    ),
}
CONSTANTS: dict[str, Array] = {
    **{
        name: np.array([value])
        for name, value in {"one": 1, "two": 2, "three": 3, "five": 5, "minus": -3}.items()
    },
    **{"half": np.array([0.5], np.float32), "three_float": np.array([3], np.float32)},
    **{"tenth": np.array([0.1], np.float32), "four": np.array([4]), "value": np.array([0.5], np.float32)},
}


def _model(nodes: list[Any]) -> Any:
    """Return a model that makes a tensor of n elements, and n itself."""
    before = [node("Shape", ["x"], ["L"]), node("Sub", ["L", "four"], ["s"])]
    after = [node("Expand", ["value", "n"], ["y"]), node("Add", ["n", "one"], ["z"])]
    return model_of_nodes([*before, *nodes, *after], {"x": ("float32", ["L"])}, ["y", "z"], CONSTANTS)


@pytest.mark.parametrize("name", ARITHMETIC)
def test_sizes(name: str) -> None:
    lengths = [np.zeros(size, np.float32) for size in range(1, 10)]
    graph = assert_as_reference(_model(ARITHMETIC[name]), [{"x": one} for one in lengths], L=(1, 9))
    assert {one.operator for one in graph.nodes} <= {"full", "expand", "extent", "cast", "reshape", "concat"}


@pytest.mark.parametrize("name", REFUSED)
def test_sizes_that_are_refused(name: str) -> None:
    nodes, problem = REFUSED[name]
    with pytest.raises(ModelError) as error:
        import_model(_model(nodes), L=(1, 9))
    assert re.search(problem, str(error.value)), error.value


def test_pads_by_sizes() -> None:
    """As a U-Net pads: to a multiple of eight, however long the input is."""
    nodes = [
        *(
            node("Shape", ["x"], ["w"], start=1),
            node("Neg", ["w"], ["m"]),
            node("Mod", ["m", "eight"], ["rest"]),
        ),
        *(node("Concat", ["none", "rest"], ["pads"], axis=0), node("Pad", ["x", "pads"], ["y"])),
    ]
    constants = {"eight": np.array([8]), "none": np.zeros(3, np.int64)}
    model = model_of_nodes(nodes, {"x": ("float32", [2, "W"])}, ["y"], constants)
    calls = [{"x": np.ones((2, size), np.float32)} for size in (1, 7, 8, 9)]
    assert_as_reference(model, calls, W=(1, 20))
