"""Cells and sizes of a recursion out of data that anybody may have written."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from small_recursions import SAMPLES, recursion_data, tree_model

from dietcode.errors import DietCodeError, ModelError
from dietcode.graph.model_request import model_from_data, order_from_data
from dietcode.graph.recursive_model import read_recursive_model
from dietcode.graph.samples import Samples, by_cost, levels_of, read_samples, row_weights

HOSTILE: list[Any] = [
    None,
    True,
    -1,
    2**63,
    float("nan"),
    "",
    "B",
    "\0\ud800",
    [],
    {},
    [[[]]],
    [1e9],
    {"value": "x"},
]


def test_a_request_goes_there_and_back() -> None:
    data = json.loads(json.dumps(recursion_data()))
    model = model_from_data(data)
    assert model.to_json()["recursion"] == data["recursion"] and model.content == tree_model()
    order = model.order
    assert order.to_json()["recursion"] == {"max_nodes": 64, "max_level": 16}
    assert order_from_data(json.loads(json.dumps(order.to_json()))) == order
    assert model_from_data(recursion_data("other")).order.workload == order.workload
    changed = copy.deepcopy(data)
    del changed["recursion"]["samples"]
    assert model_from_data(changed).order.workload != order.workload


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("children", 17, "children: given 17; allowed: 1 to 16"),
        ("children", 3, "cell.inputs: given"),
        ("is_sum", 1, "is_sum: given 1; allowed: true or false"),
        ("is_sum", True, "cell.inputs: given"),
        ("states", [[8]], "cell.inputs: given"),
        ("states", [], "states: given"),
        ("x", [], "cell.inputs: given"),
        ("x", [2**40], "x: given"),
        ("leaf", {}, "leaf.format: given None"),
        ("max_nodes", 2**25, "--max-nodes: given 33554432; allowed: 1 to 16777216"),
        ("max_level", 65, "--max-level: given 65; allowed: 1 to 64"),
        ("max_nodes", 4, "--max-level: given 16"),
        ("max_level", 1.0, "max_level: given 1.0; allowed: a number of nodes"),
        ("samples", {"calls": 1}, "samples.nodes: given None; allowed: counts by size"),
        ("samples", SAMPLES.to_json() | {"nodes": {"65": 1}}, "a call of 65 nodes; allowed: 64"),
        ("samples", SAMPLES.to_json() | {"levels": {"01e": 1}}, "samples.levels: given the size '01e'"),
        ("samples", SAMPLES.to_json() | {"shown": [[0]]}, "samples.shown.0: given"),
        ("samples", SAMPLES.to_json() | {"shown": [[], [0, 0, 0]]}, "a node of 3 children; allowed: 2"),
        ("code", "import os", "'code': unknown field"),
    ],
)
def test_what_is_refused(field: str, value: Any, problem: str) -> None:
    with pytest.raises(ModelError) as refusal:
        read_recursive_model(tree_model().to_json() | {field: value})
    assert problem in str(refusal.value) and "\n" not in str(refusal.value)


def test_only_one_of_graph_and_recursion() -> None:
    with pytest.raises(ModelError, match="graph, recursion: all are given"):
        model_from_data(recursion_data(graph={}))


def _paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in children:
        yield from _paths(value, (*path, key))


def test_hostile_data_is_refused_or_read() -> None:
    """Each field gone or replaced: an error of DietCode's own, or a request that can be kept."""
    data = json.loads(json.dumps(recursion_data()))
    random.seed(23)
    read = refused = 0
    for path in [one for one in _paths(data) if one]:
        for value in (KeyError, *random.sample(HOSTILE, 3)):
            given = copy.deepcopy(data)
            inner = given
            for key in path[:-1]:
                inner = inner[key]
            if value is KeyError:
                del inner[path[-1]]
            else:
                inner[path[-1]] = value
            try:
                model = model_from_data(given)
            except DietCodeError as error:
                refused += 1
                assert "\n" not in str(error) and len(str(error)) < 1000
            else:
                read += 1
                assert model_from_data(json.loads(json.dumps(model.to_json()))).order == model.order
    assert refused > 250 and read > 10


def test_samples_weigh_rows() -> None:
    even = row_weights(None, 1000)
    assert {1, 2, 4, 8, 1000} <= set(even) and set(even.values()) == {1.0}
    assert row_weights(None, 1) == {1: 1.0}
    assert by_cost({1: 3, 16: 1}) == {1: 3000, 16: 4000}
    found = row_weights({3: 6, 50: 2, 130: 2}, 60)  # 130 is 60, 60 and 10
    assert found == {
        1: 0.01,
        2: 0.01,
        3: 0.428571,
        4: 0.01,
        8: 0.01,
        10: 0.142857,
        50: 0.142857,
        60: 0.285714,
    }


def test_many_sizes_become_few() -> None:
    found = row_weights(dict.fromkeys(range(1, 900), 1), 1024)
    assert {1, 2, 4, 8, 1024} <= set(found) and len(found) <= 14 + 5
    assert sum(found.values()) == pytest.approx(1, abs=0.06)


def test_levels_of_a_structure() -> None:
    assert levels_of(SAMPLES.shown) == [[0, 1, 2], [3], [4]]
    assert read_samples(json.loads(json.dumps(SAMPLES.to_json()))) == SAMPLES
    assert (SAMPLES.max_nodes, SAMPLES.max_level) == (5, 1)
    assert Samples(1, {3: 1}, {3: 1}, {}).max_level == 1
