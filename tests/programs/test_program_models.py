"""Programs read out of files, as data, and the phases of their blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from needs import of_extra

import dietcode
from dietcode.errors import ModelError
from dietcode.graph.program_model import read_program_model
from dietcode.programs.modeling import record
from dietcode.programs.optimisations import Optimisations
from dietcode.programs.planning import plan_program
from dietcode.programs.profiling import phases_of
from dietcode.programs.reader import _read

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))
_FILE = """
import torch, dietcode
from torch import nn

torch.manual_seed(0)
embedding, cell = nn.Embedding(9, 8).eval(), nn.RNNCell(8, 8).eval()
start = torch.zeros(8)

@dietcode.program
def encode(words):
    state = start
    for word in words:
        state = cell(embedding(torch.tensor(word)), state)
    return state

samples = [[1, 2, 3], [4], [5, 6]]
number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "words.py"
    path.write_text(_FILE)
    return str(path)


def test_a_program_is_plain_data(file: str) -> None:
    data, weights = _read(file, "encode", "words", "samples")
    model = read_program_model(json.loads(json.dumps(data)))
    assert model.to_json() == data
    assert model.num_samples == 3
    (block,) = model.blocks
    assert block.buckets == {3: 1, 2: 1, 1: 4}  # three at once, and one alone
    assert block.is_made == (False, True)
    options = [Optimisations(tables=False), Optimisations(hoisting=False, tables=False), Optimisations()]
    plans = [plan_program(model, {}, one) for one in options]
    assert [[one["name"] for one in plan.facts["blocks"]] for plan in plans] == [
        ["block0-first", "block0"],
        ["block0"],
        ["block0"],
    ]
    first, rest = plans[0].description["blocks"]
    assert [plans[0].description["types"][at]["dtype"] for at in first["operands"]] == ["int32"]
    assert len(rest["operands"]) == 2
    loads = [len(plan.description["blocks"][-1]["load"]) for plan in plans]
    assert loads[2] > loads[0], "the product of all words is computed at load"
    assert set(plans[0].description["weights"]) <= set(weights)
    code = plans[0].description["functions"][0]["code"]
    assert [one[2] for one in code if one[0] == "block"] == [0, 1]


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (None, "needs --samples NAME"),
        ("nothing", "given 'nothing', which is None; allowed: the name of a list"),
        ("number", "given 'number', which is 3; allowed: the name of a list"),
    ],
)
def test_samples_have_to_be_there(file: str, samples: str | None, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        _read(file, "encode", "words", samples)


def test_a_block_comes_after_those_that_it_reads() -> None:
    # 0 and 1 read each other; 2 reads 1; 3 reads itself; 4 reads 2 and 3.
    edges = [(0, 1), (1, 0), (2, 1), (3, 3), (4, 2), (4, 3)]
    assert phases_of(edges, 5) == [0, 0, 1, 0, 2]


def _two_sides(pair: tuple[Any, Any]) -> Any:
    first, second = dietcode.concurrent(_until(pair[0]), _until(pair[1]))
    return torch.tanh(first) * torch.relu(second)


def _until(x: Any) -> Any:
    for _ in range(3):
        x = torch.sin(torch.tanh(x))
        if x.sum() > 0.5:
            break
    return x


def test_what_an_optimisation_leaves_out_is_left_out() -> None:
    given = [(torch.ones(4), torch.ones(4)), (torch.ones(4), -torch.ones(4)), (-torch.ones(4), torch.ones(4))]
    counts = {}
    for off in ("", "coarsening", "concurrency"):
        chosen = Optimisations(**{off: False}) if off else Optimisations()
        model = record(dietcode.program(_two_sides), given, "two", chosen).model
        rows = sum(rows * many for one in model.blocks for rows, many in one.buckets.items())
        runs = sum(many for one in model.blocks for many in one.buckets.values())
        counts[off] = (len(model.blocks), rows, runs)
    assert counts["coarsening"][0] > counts[""][0]  # more blocks, of which more rows are noted
    assert counts["coarsening"][1] > counts[""][1]
    assert counts["concurrency"][:2] == counts[""][:2]  # the same rows, in more runs
    assert counts["concurrency"][2] > counts[""][2]
