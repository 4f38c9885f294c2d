"""Attention in a spec: what is what in its graph, and what is refused with the field that is wrong."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dietcode.errors import SpecError
from dietcode.workload.attention import plan_attention
from dietcode.workload.parse import spec_from_data
from dietcode.workload.sizes import largest_sizes

GRAPH = "op.block.graph"
DATA: dict[str, Any] = {
    "name": "attention",
    "op": {
        "block": {
            "version": 1,
            "graph": {
                "S": {"einsum": ["Q", "K"], "dims": "bgrqk"},
                "P": {"softmax": ["S", "mask"], "axis": "k", "scale": 0.25, "causal": "q"},
                "O": {"einsum": ["P", "V"], "dims": "bqgre"},
            },
            "outputs": ["O"],
        }
    },
    "tensors": {
        "Q": {"dims": "bgrqd", "dtype": "float32"},
        "K": {"dims": "bkgd", "dtype": "float32"},
        "V": {"dims": "bgke", "dtype": "float32"},
        "mask": {"dims": "bk", "dtype": "float32"},
    },
    "shape_vars": {"B": {"min": 1, "max": 4}, "T": {"min": 1, "max": 8}, "C": {"min": 1, "max": 64}},
    "dims": {"b": "B", "g": 2, "r": 3, "q": "T", "k": "C", "d": 16, "e": 24},
}


def changed(**fields: Any) -> dict[str, Any]:
    """The spec with fields replaced, a double underscore between the names of a path."""
    data = copy.deepcopy(DATA)
    for path, value in fields.items():
        *outer, last = path.split("__")
        at = data
        for key in outer:
            at = at[key]
        at[last] = value
    return data


def plan_of(data: dict[str, Any]) -> Any:
    graph = spec_from_data(data).block
    assert graph is not None and graph.form == "attention"
    return plan_attention(graph.nodes, graph.indices, graph.outputs)


LENGTHS: dict[str, Any] = {
    "op__block__graph__H": {"hide": ["S", "long"], "axis": "k"},
    "op__block__graph__P": {"softmax": ["H", "mask"], "axis": "k", "scale": 0.25, "causal": "q"},
    "tensors__long": {"dims": "b", "dtype": "int32"},
}


def test_lengths() -> None:
    plan = plan_of(changed(**LENGTHS))
    assert (plan.lengths, plan.mask, plan.groups, plan.causal) == ("long", "mask", "bg", "q")
    assert plan_of(DATA).lengths is None


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"tensors__long": {"dims": "q", "dtype": "int32"}}, f"{GRAPH}.H", "with lengths of bg, which K has"),
        (
            {"tensors__long": {"dims": "b", "dtype": "float32"}},
            "tensors.long.dtype",
            "target: int32, lengths",
        ),
        ({"op__block__graph__H": {"hide": ["S", 7], "axis": "k"}}, f"{GRAPH}.H.hide.1", "allowed: a tensor"),
        (
            {"op__block__graph__H": {"hide": ["S", "long"], "axis": "q"}},
            f"{GRAPH}.H",
            "given q and lengths of b",
        ),
        (
            {"op__block__graph__P": {"softmax": ["H", "long"], "axis": "k"}},
            f"{GRAPH}.P.softmax.1",
            "long holds positions or lengths; allowed: second operand of gather or hide",
        ),
    ],
)
def test_lengths_that_are_refused(fields: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_from_data(changed(**LENGTHS | fields)).block  # noqa: B018 - which is worked out here
    assert caught.value.field == field and said in caught.value.problem


def test_what_is_what() -> None:
    plan = plan_of(DATA)
    assert (plan.query, plan.key, plan.value, plan.mask) == ("Q", "K", "V", "mask")
    assert (plan.groups, plan.rows, plan.keys, plan.depth, plan.width) == ("bg", "rq", "k", "d", "e")
    assert (plan.scale, plan.causal) == (0.25, "q")


def test_operands_in_the_other_order() -> None:
    nodes = {"S": {"einsum": ["K", "Q"], "dims": "bgrqk"}, "O": {"einsum": ["V", "P"], "dims": "bqgre"}}
    data = changed(**{f"op__block__graph__{name}": node for name, node in nodes.items()})
    assert plan_of(data) == plan_of(DATA)


def test_grid_and_operations() -> None:
    spec = spec_from_data(DATA)
    graph = spec.block
    assert graph is not None and (graph.rows, graph.columns) == ("bqgr", "e")
    assert spec.outputs == {"O": "bqgre"}
    seen = 8 * 64 - 7 * 8 // 2  # by the queries of one head
    assert largest_sizes(spec).flops == 4 * 2 * 3 * seen * (2 * 16 + 2 * 24 + 5)


CAPPED: dict[str, Any] = {
    "op__block__graph__U": {"tanh": "S"},
    "op__block__graph__F": {"add": ["U", "far"]},
    "op__block__graph__P": {"softmax": ["F", "mask"], "axis": "k", "causal": "q"},
    "tensors__far": {"dims": "gqk", "dtype": "float32"},
}


def test_functions_of_scores() -> None:
    plan = plan_of(changed(**CAPPED))
    assert (plan.product, plan.functions, plan.scores, plan.reads) == ("S", ("U", "F"), "F", ("far",))
    flops = [largest_sizes(spec_from_data(changed(**fields))).flops for fields in ({}, CAPPED)]
    assert flops[1] / flops[0] == (2 * 16 + 2 * 24 + 7) / (2 * 16 + 2 * 24 + 5)


@pytest.mark.parametrize(
    ("nodes", "field", "said"),
    [
        (
            {"U": {"softmax": "S", "axis": "k"}},
            f"{GRAPH}.U",
            "given softmax; allowed: functions",
        ),
        ({"far": {"relabel": "V", "dims": "bgqk"}}, f"{GRAPH}.far", "given relabel; allowed: functions of"),
        (
            {"A": {"einsum": ["X", "W"], "dims": "bgrqd"}, "S": {"einsum": ["A", "K"], "dims": "bgrqk"}},
            f"{GRAPH}.S.einsum.0",
            "given 'A'; allowed: a tensor",
        ),
        (
            {"O": {"einsum": ["P", "P"], "dims": "bqgrk"}},
            f"{GRAPH}.O.einsum.1",
            "given 'P'; allowed: a tensor",
        ),
        ({"P": {"softmax": ["F", 1], "axis": "k"}}, f"{GRAPH}.P.softmax.1", "given 1.0; allowed: a"),
        ({"P": {"softmax": ["F", "U"], "axis": "k"}}, f"{GRAPH}.P.softmax.1", "given 'U'; allowed: a"),
    ],
)
def test_functions_that_are_refused(nodes: dict[str, Any], field: str, said: str) -> None:
    data = changed(**CAPPED | {f"op__block__graph__{name}": node for name, node in nodes.items()})
    graph = data["op"]["block"]["graph"]
    read = {o for node in graph.values() for o in next(iter(node.values()))}
    added = {"X": {"dims": "bgrqx", "dtype": "float32"}, "W": {"dims": "dx", "dtype": "float32"}}
    every = data["tensors"] | added
    data["tensors"] = {name: tensor for name, tensor in every.items() if name in read - set(graph)}
    data["dims"] |= {"x": 8} if "X" in read else {}
    with pytest.raises(SpecError) as caught:
        spec_from_data(data).block  # noqa: B018 - which is worked out here
    assert caught.value.field == field and said in caught.value.problem, caught.value


REFUSALS = [
    ({"tensors__K__constant": True}, "tensors.K.constant", "given true; allowed in attention: false"),
    ({"dims__d": "T"}, "dims.d", "given 'T'; allowed: a number up to 1024"),
    ({"dims__e": 1025}, "dims.e", "given '1025'; allowed: a number up to 1024"),
    ({"tensors__Q__dims": "bgrdq"}, "tensors.Q.dims", "allowed: bgrq in any order, then d"),
    ({"tensors__V__dims": "bke"}, "tensors.V.dims", "allowed: bgk in any order, then e"),
    ({"op__block__graph__O__dims": "bqge"}, f"{GRAPH}.O.dims", "allowed: bgrq in any order, then e"),
    ({"op__block__outputs": ["O", "P"]}, "op.block.outputs", "allowed: O alone"),
    (
        {"op__block__graph__Y": {"relu": "O"}, "op__block__outputs": ["Y"]},
        f"{GRAPH}.Y.relu.0",
        "given 'O'; allowed: scores, tensors or numbers; what follows attention is a block of its own",
    ),
    (
        {"op__block__graph__P": {"softmax": ["S", "mask"], "axis": "k", "causal": "g"}},
        f"{GRAPH}.P.causal",
        "given 'g'; allowed: an index of the queries alone: r, q",
    ),
    (
        {"op__block__graph__P": {"softmax": "S", "axis": "qk"}, "op__block__graph__S__dims": "bgrqk"},
        f"{GRAPH}.P.axis",
        "given 'qk'; allowed between two products: one index",
    ),
    (
        {
            "op__block__graph__P": {"softmax": ["S"], "axis": "k"},
            "op__block__graph__S": {"neg": "mask"},
            "tensors__mask__dims": "bgrqk",
        },
        f"{GRAPH}.P.softmax.0",
        "given 'S'; allowed beside a product with the result: an einsum",
    ),
]


@pytest.mark.parametrize(("fields", "field", "said"), REFUSALS)
def test_refusals(fields: dict[str, Any], field: str, said: str) -> None:
    data = changed(**fields)
    graph = data["op"]["block"]["graph"]
    used = " ".join(str(next(iter(node.values()))) for node in graph.values())  # their operands
    data["tensors"] = {name: tensor for name, tensor in data["tensors"].items() if name in used}
    with pytest.raises(SpecError) as caught:
        spec_from_data(data)
    assert (caught.value.field, said in caught.value.problem) == (field, True), str(caught.value)
    assert "\n" not in str(caught.value)
