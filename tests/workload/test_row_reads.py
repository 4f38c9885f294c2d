"""What blocks without a product read in a way of their own: taken apart, or gathered."""

from __future__ import annotations

from typing import Any

import pytest
from small_libraries import block_data

from dietcode.errors import SpecError
from dietcode.workload.parse import spec_from_data

GRAPH = "op.block.graph"
TENSORS: dict[str, Any] = {"X": "mn", "at": "m", "P": "mgn", "T": "tn"}


def reading(graph: dict[str, Any], **dims: str) -> dict[str, Any]:
    """A block of these nodes, the last of them its output, over tensors of `TENSORS` or of other indices."""
    read = {o for node in graph.values() for o in next(iter(node.values()))} - set(graph)
    tensors = {
        name: {"dims": own, "dtype": "int32" if name == "at" else "float32"}
        for name, own in (TENSORS | dims).items()
        if name in read
    }
    letters = dict.fromkeys("".join(tensor["dims"] for tensor in tensors.values()), 3)
    return block_data("reads", graph, list(graph)[-1:], tensors=tensors, dims=letters | {"m": "M"})


def test_columns_are_those_after_what_slices_take_apart() -> None:
    nodes = {"a": {"slice": ["P"], "axis": "g", "at": 0}, "Y": {"mul": ["a", "X"]}}
    graph = spec_from_data(reading(nodes)).block
    assert graph is not None and (graph.form, graph.rows, graph.columns) == ("rows", "m", "n")
    whole = spec_from_data(reading(nodes, P="gmn")).block
    assert whole is not None and (whole.rows, whole.columns) == ("", "mn")


@pytest.mark.parametrize(
    ("graph", "dims", "field", "said"),
    [
        (
            {"a": {"slice": ["P"], "axis": "g", "at": 0}, "Y": {"mul": ["a", "X"]}},
            {"P": "mng"},
            f"{GRAPH}.a.axis",
            "given g of mng; allowed: an index before mn",
        ),
        (
            {"E": {"exp": ["P"]}, "a": {"slice": ["E"], "axis": "g", "at": 0}},
            {},
            f"{GRAPH}.a.slice.0",
            "given 'E'; allowed: a tensor",
        ),
        ({"a": {"slice": ["P"], "axis": "g", "at": 3}}, {}, f"{GRAPH}.a.at", "given 3; allowed: 0 to 2"),
        (
            {"G": {"gather": ["T", "at"]}, "A": {"add": ["P", "G"]}, "Y": {"softmax": ["A"], "axis": "gn"}},
            {"at": "g"},
            f"{GRAPH}.G.gather.1",
            "given at of g; allowed: positions without gn, the columns",
        ),
    ],
)
def test_reads_that_are_refused(graph: dict[str, Any], dims: dict[str, str], field: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_from_data(reading(graph, **dims))
    assert caught.value.field == field and said in caught.value.problem, caught.value
