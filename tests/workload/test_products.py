"""Blocks with products in a spec: put together, and refused with the field that is wrong."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from small_libraries import block_data

from dietcode.errors import SpecError
from dietcode.workload.parse import spec_from_data
from dietcode.workload.sizes import largest_sizes

GRAPH = "op.block.graph"
GATES = {
    "P": {"einsum": ["X", "W"], "dims": "mgn"},
    "Z": {"add": ["P", "b"]},
    "i": {"slice": "Z", "axis": "g", "at": 0},
    "f": {"slice": "Z", "axis": "g", "at": 1},
    "h": {"mul": ["i", "f"]},
    "Y": {"rmsnorm": "h", "axis": "n"},
}
DATA = block_data(
    "gates",
    GATES,
    ["h", "Y"],
    tensors={
        "X": {"dims": "mk", "dtype": "float32"},
        "W": {"dims": "gnk", "dtype": "float32", "constant": True},
        "b": {"dims": "gn", "dtype": "float32", "constant": True},
    },
    dims={"m": "M", "n": 40, "k": 24, "g": 2},
)


def changed(**nodes: Any) -> dict[str, Any]:
    data = copy.deepcopy(DATA)
    graph = data["op"]["block"]["graph"]
    graph.update(nodes)
    data["op"]["block"]["outputs"] += [name for name in nodes if name not in GATES]
    return dict(data)


def test_a_block_is_put_together() -> None:
    spec = spec_from_data(DATA)
    graph = spec.block
    assert graph is not None and (graph.form, graph.rows, graph.columns) == ("products", "m", "n")
    assert graph.indices["P"] == "mgn" and graph.indices["i"] == "mn"
    # two products of 24, two additions, a product; then square, mean, mul, and two for each row
    assert largest_sizes(spec).flops == 30 * 40 * (2 * 2 * 24 + 3 + 3) + 30 * 2


@pytest.mark.parametrize("outputs", [["less", "h", "Y"], ["less", "most"], ["less"]])
def test_outputs_may_begin_with_a_number_for_each_row(outputs: list[str]) -> None:
    data = changed(most={"max": "h", "axis": "n"}, less={"mul": ["most", 0.5]})
    data["op"]["block"]["outputs"] = outputs
    if "Y" not in outputs:
        del data["op"]["block"]["graph"]["Y"]
    graph = spec_from_data(data).block
    assert graph is not None and (graph.rows, graph.columns) == ("m", "n")


def test_products_of_other_columns_are_refused() -> None:
    graph = {name: {"einsum": ["X", w], "dims": f"m{w.lower()}"} for name, w in (("Q", "N"), ("K", "J"))}
    tensors = {
        name: {"dims": dims, "dtype": "float32"} for name, dims in (("X", "mk"), ("N", "nk"), ("J", "jk"))
    }
    data = block_data("widths", graph, ["Q", "K"], tensors=tensors, dims={"m": "M", "n": 40, "j": 8, "k": 24})
    with pytest.raises(SpecError) as caught:
        spec_from_data(data)
    assert caught.value.field == f"{GRAPH}.Q.dims"
    assert "given mn, columns n; allowed: the rows and columns of K, mj" in caught.value.problem


REFUSALS = [
    ({"P": {"einsum": ["X", "W"], "dims": "mgq"}}, f"{GRAPH}.P.dims", "given 'mgq'; allowed: indices of mk"),
    ({"P": {"einsum": ["X", "W"]}}, f"{GRAPH}.P.dims", "missing; einsum needs it"),
    ({"P": {"einsum": ["X", 2], "dims": "m"}}, f"{GRAPH}.P.einsum", "given a number"),
    ({"P": {"einsum": ["X", "W"], "dims": "gn"}}, f"{GRAPH}.P.dims", "an index of each operand at least"),
    ({"T": {"einsum": ["X", "W"], "dims": "mn"}}, f"{GRAPH}.T.dims", "g is of one operand and left out"),
    ({"T": {"einsum": ["X", "W"], "dims": "mgnk"}}, f"{GRAPH}.T.dims", "k is of both operands"),
    ({"T": {"einsum": ["i", "W"], "dims": "mgk"}}, f"{GRAPH}.T.einsum.0", "given 'i'; allowed: a tensor"),
    ({"i": {"slice": "Z", "axis": "k", "at": 0}}, f"{GRAPH}.i.axis", "given 'k'; allowed: an index of mgn"),
    ({"i": {"slice": "Z", "axis": "g", "at": -1}}, f"{GRAPH}.i.at", "allowed: a whole number from 0"),
    (
        {"i": {"slice": "Z", "axis": "g", "at": 2}},
        f"{GRAPH}.i.at",
        "given 2; allowed: 0 to 1, positions",
    ),
    (
        {"Y": {"rmsnorm": "Z", "axis": "n"}},
        f"{GRAPH}.Y.rmsnorm",
        "Z has the indices mgn; allowed: some of mn",
    ),
    ({"Y": {"softmax": "h", "axis": "mn"}}, f"{GRAPH}.Y.axis", "given 'mn'; allowed: n, the columns"),
    ({"i": {"relabel": "Z", "dims": "mn"}}, f"{GRAPH}.i.dims", "allowed: 3 indices, each once"),
    ({"i": {"relabel": "Z", "dims": "mqn"}}, f"{GRAPH}.i.relabel.0", "given 'Z'; allowed: a tensor"),
    (
        {"i": {"relabel": "X", "dims": "mn"}},
        f"{GRAPH}.i.dims",
        "n is 40 and k is 24; allowed: the same",
    ),
]


@pytest.mark.parametrize(("nodes", "field", "said"), REFUSALS)
def test_refusals(nodes: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_from_data(changed(**nodes))
    assert caught.value.field == field and said in caught.value.problem, caught.value
    assert "\n" not in str(caught.value)


def gathers(**changes: Any) -> dict[str, Any]:
    """A product of rows that are gathered."""
    graph = {"G": {"gather": ["T", "at"]}, "Y": {"einsum": ["G", "W"], "dims": "mn"}}
    tensors = {
        "T": {"dims": "tk", "dtype": "float32"},
        "at": {"dims": "m", "dtype": "int32"},
        "W": {"dims": "nk", "dtype": "float32", "constant": True},
    }
    dims = {"m": "M", "n": 40, "k": 24, "t": 100}
    data = block_data("rows", graph, ["Y"], tensors=tensors, dims=dims)
    data["op"]["block"]["graph"] |= changes.pop("graph", {})
    data["tensors"] |= changes
    return data


def test_rows_are_gathered() -> None:
    graph = spec_from_data(gathers()).block
    assert graph is not None and (graph.rows, graph.columns, graph.indices["G"]) == ("m", "n", "mk")


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        (
            {"at": {"dims": "m", "dtype": "float32"}},
            "tensors.at.dtype",
            "given 'float32'; allowed on",
        ),
        (
            {"T": {"dims": "tk", "dtype": "int32"}},
            "tensors.T.dtype",
            "given 'int32'; allowed on",
        ),
        (
            {"T": {"dims": "k", "dtype": "float32"}},
            f"{GRAPH}.G.gather",
            "given k and m; allowed: a table",
        ),
        ({"graph": {"G": {"gather": ["T", 3]}}}, f"{GRAPH}.G.gather", "given a number; allowed: tensors"),
        (
            {"graph": {"Y": {"einsum": ["W", "G"], "dims": "nm"}}},
            f"{GRAPH}.Y.einsum.1",
            "given 'G'; allowed: a tensor, since it has the last index",
        ),
    ],
)
def test_what_is_no_table(changes: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_from_data(gathers(**changes))
    assert caught.value.field == field and said in caught.value.problem, caught.value


def test_gates_have_a_fixed_extent() -> None:
    data = copy.deepcopy(DATA)
    data["dims"]["g"] = "M"
    with pytest.raises(SpecError, match=r"dims.g: given 'M'; allowed: 1 to 16, an index that"):
        spec_from_data(data)


def test_outputs_have_the_columns_last() -> None:
    data = copy.deepcopy(DATA)
    data["op"]["block"]["graph"] = {"P": {"einsum": ["X", "W"], "dims": "mgn"}}
    data["op"]["block"]["outputs"] = ["P"]
    del data["tensors"]["b"]
    graph = spec_from_data(data).block
    assert graph is not None and graph.columns == "gn"  # which nothing takes apart
    data["op"]["block"]["graph"]["P"]["dims"] = "gmn"
    with pytest.raises(SpecError, match=r"P has the indices gmn; allowed: all of m in any order, then gn"):
        spec_from_data(data)
