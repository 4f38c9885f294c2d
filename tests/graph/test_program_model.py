"""Programs as data: what is refused at the door, and that nothing else can be raised behind it."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from small_programs import pair_program, program_data

from dietcode.errors import DietCodeError, ModelError
from dietcode.graph.model_request import model_from_data, order_from_data, read_content
from dietcode.graph.program_model import MAX_ROWS, ProgramModel, rows_of_tables
from dietcode.programs.planning import plan_program
from dietcode.runtime.programs.form import check_form
from dietcode.runtime.programs.plan import read_program

_HOSTILE: list[Any] = [
    *(None, True, -1, 0, 1, 2**63, 1e308, "", "0", "a\nb", "x" * 500, [], [[]], {}, {"a": {}}),
    *([0] * 40, ["call", 0, 9, []], [["jump", 99]], "__import__('os')", float("nan")),
]


def _with(path: tuple[Any, ...], value: Any, data: Any) -> Any:
    given = copy.deepcopy(data)
    inner = given
    for key in path[:-1]:
        inner = inner[key]
    if value is KeyError:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return given


def _paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in children:
        yield from _paths(value, (*path, key))


def _checked(data: Any) -> ProgramModel:
    model = model_from_data({"program": data})
    assert isinstance(model.content, ProgramModel)
    check_form(model.content)
    return model.content


def test_a_program_travels() -> None:
    model = model_from_data(json.loads(json.dumps(program_data())))
    assert model.content.to_json() == json.loads(json.dumps(pair_program().to_json()))
    assert order_from_data(json.loads(json.dumps(model.order.to_json()))) == model.order
    assert model.order.sizes == {"max_rows": MAX_ROWS} and model.order.to_json()["program"]
    kept = read_content(json.loads(json.dumps(model.content.to_json())))
    assert isinstance(kept, ProgramModel) and kept.shown == pair_program().shown
    renamed = model_from_data(program_data("other")).order
    assert renamed.workload == model.order.workload


FUNCTION = ("form", "functions", 0)
NOTHING = pair_program().form["functions"][0] | {
    "parameters": 0,
    "code": [["const", 0, 0], ["return", 0]],
    "lines": [1, 1],
}


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("form", "functions"), [], "form.entry: given 0; allowed: 0 to -1"),
        (("form", "entry"), 1, "form.entry: given 1; allowed: 0 to 0"),
        (FUNCTION, NOTHING, "form.entry: a function without parameters"),
        ((*FUNCTION, "registers"), 5, "encode: instruction 5: register 5; allowed: -1…4"),
        ((*FUNCTION, "code", 3), ["else", 3, 12], "instruction 3: pc 12; allowed: 0…11"),
        ((*FUNCTION, "code", 5), ["block", [5], 2, [4]], "instruction 5: block 2; allowed: 0…1"),
        ((*FUNCTION, "code", 5), ["block", [5], 1, [4]], "block with 1 values; allowed: 2"),
        ((*FUNCTION, "code", 6), ["import", "os"], "'import' is no operation"),
        ((*FUNCTION, "source"), "import os", "unknown field"),
        (("form", "constants"), [{}], "form.constants.0: given {}; allowed: null, true"),
        (("form", "types", 0, "shape"), [0], "form.types.0: given"),
        (("form", "tensors"), [{"value": "w", "type": 9}], "form.tensors.0.type: given 9; allowed: 0 to 1"),
        (("form", "tensors"), [{"value": "leaf", "type": 0}], "weight 'leaf': is float32[16], and"),
        (("blocks",), [], "blocks: there is none"),
        (("blocks", 0, "operands"), [["float32", [16]]], "blocks.0.graph.inputs: given"),
        (("blocks", 0, "operands"), [["int32", [2]]], "int32 with extents; allowed: int32 without"),
        (("blocks", 1, "is_made"), [True], "blocks.1.is_made: given [True]; allowed: true or false"),
        (("blocks", 1, "buckets"), {"0": 1}, "blocks.1.buckets: given the size '0'"),
        (("blocks", 1, "phase"), 101, "blocks.1.phase: given 101; allowed: 0 to 100"),
        (("blocks", 1, "graph", "nodes", 0, "operator"), "exec", "blocks.1.graph.nodes.0"),
        (("max_rows",), 2 * MAX_ROWS, "max_rows: given 2097152; allowed: 2 to 1048576"),
        (("shown",), [[0, 1, 2, 5]], "shown.0: given 2; allowed: 0 to 1"),
        (("name",), "Not A Name", "name: given 'Not A Name'"),
        (("weights",), {}, "unknown field"),
    ],
)
def test_programs_that_are_refused(path: tuple[Any, ...], value: Any, problem: str) -> None:
    with pytest.raises(ModelError) as refusal:
        _checked(_with(path, value, pair_program().to_json()))
    assert problem in str(refusal.value) and "\n" not in str(refusal.value)


def test_hostile_programs_are_refused_or_planned() -> None:
    """Each field gone or replaced: an error of DietCode's own, or a program that loading would not refuse."""
    data = json.loads(json.dumps(pair_program().to_json()))
    random.seed(24)
    planned = refused = 0
    for path in [one for one in _paths(data) if one]:
        for value in (KeyError, *random.sample(_HOSTILE, 3)):
            try:
                model = _checked(_with(path, value, data))
                read_program(plan_program(model, {"target": {"kind": "llvm"}}).description)
            except DietCodeError as error:
                refused += 1
                assert "\n" not in str(error) and len(str(error)) < 1000
            else:
                planned += 1
    assert refused > 400 and planned > 50


def test_tables_are_bounded_by_bytes() -> None:
    leaf, merge = pair_program().blocks
    assert rows_of_tables([leaf, merge]) == MAX_ROWS
    wide = replace(merge, operands=(("float32", (256,)),) * 4)
    assert rows_of_tables([leaf, wide]) == 1 << 18  # 4 KiB a row
    assert rows_of_tables([replace(merge, operands=(("float32", (1 << 15, 1 << 15)),))]) == 2
