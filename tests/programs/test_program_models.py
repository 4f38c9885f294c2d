"""Programs read out of files, as data, and the phases of their blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from needs import of_extra

from dietcode.errors import ModelError
from dietcode.graph.program_model import read_program_model
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
    plans = [plan_program(model, {}, hoist=hoist) for hoist in (True, False)]
    assert [[one["name"] for one in plan.facts["blocks"]] for plan in plans] == [
        ["block0-first", "block0"],
        ["block0"],
    ]
    first, rest = plans[0].description["blocks"]
    assert [plans[0].description["types"][at]["dtype"] for at in first["operands"]] == ["int32"]
    assert len(rest["operands"]) == 2
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
