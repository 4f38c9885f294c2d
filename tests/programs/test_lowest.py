"""Calls of a block on leaves: products of words are looked up, in a block that takes these calls over."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from needs import of_extra
from program_runs import as_torch, assert_same, example_of, native_program

import dietcode
from dietcode.errors import ModelError
from dietcode.graph.program_model import NumberSource, read_program_model
from dietcode.programs.modeling import model_of
from dietcode.programs.optimisations import Optimisations
from dietcode.programs.planning import plan_program

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))
H, WORDS = 12, 9


@dataclass
class Node:
    word: int
    below: list[Any]


class Leaf(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, H)
        self.of_word = torch.nn.Linear(H, H)

    def forward(self, word: Any) -> Any:
        h = torch.tanh(self.of_word(self.words(word)))
        return h, h.sum()


class Begun(torch.nn.Module):  # type: ignore[misc]
    """A word, and a second state that all words have."""

    def __init__(self, is_learned: bool) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, H)
        self.start = torch.nn.Parameter(torch.randn(H) if is_learned else torch.zeros(H))
        self.is_learned = is_learned

    def forward(self, word: Any) -> Any:
        return self.words(word), 2 * self.start if self.is_learned else torch.zeros(H)


class Merge(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.of_h, self.of_c = torch.nn.Linear(2 * H, H), torch.nn.Linear(H, H)

    def forward(self, left: Any, right: Any) -> Any:
        (h, c), (other, other_c) = left, right
        new = torch.tanh(self.of_h(torch.cat([h, other]))) * torch.sigmoid(self.of_c(c)) + other_c
        return new, c + new


class Cell(torch.nn.Module):  # type: ignore[misc]
    """Of a word of its own, two vectors, and two numbers that belong to them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, 7)
        self.of_word = torch.nn.Linear(7, H)
        self.first, self.second = torch.nn.Linear(H, H), torch.nn.Linear(H, H, bias=False)

    def forward(self, word: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
        h = torch.tanh(self.of_word(self.words(word)) + self.first(a) * x + self.second(b) * torch.sigmoid(y))
        return h, h.sum()


def _trees() -> Any:
    torch.manual_seed(1)
    leaf, cell = Leaf().eval(), Cell().eval()

    def state(node: Any) -> Any:
        if not node.below:
            return leaf(torch.tensor(node.word))
        (a, x), (b, y) = dietcode.map(state, node.below)
        return cell(torch.tensor(node.word), a, b, x, y)

    @dietcode.program
    def encode(node: Any) -> Any:
        return state(node)[0]

    return encode


def _leaf(word: int) -> Node:
    return Node(word, [])


SAMPLES = [
    Node(1, [Node(2, [_leaf(3), _leaf(4)]), _leaf(5)]),
    Node(6, [_leaf(7), _leaf(8)]),
    Node(0, [Node(1, [_leaf(2), _leaf(3)]), Node(4, [_leaf(5), Node(6, [_leaf(7), _leaf(7)])])]),
    _leaf(2),
]


@pytest.mark.parametrize("tables", [True, False])
def test_words_of_nodes_and_of_leaves(tables: bool) -> None:
    """The cell is two blocks without tables: what is of its word, and the rest; with tables it is one."""
    program = _trees()
    model, weights = model_of(program, SAMPLES, "trees")
    cell = next(one for one in model.blocks if len(one.operands) == 5)
    assert cell.lowest is not None
    by_dtype = [source for source in cell.lowest.sources if source is not None]
    assert len(by_dtype) == 4 and cell.lowest.rows == {4: 1, 1: 1}  # of four instances, and of the first
    assert {one.leader for one in by_dtype} == {
        min(k for k, other in enumerate(cell.lowest.sources) if other and other.leader == one.leader)
        for one in by_dtype
    }
    plan = plan_program(model, {}, Optimisations(tables=tables))
    names = [one["name"] for one in plan.facts["blocks"]]
    assert any(name.endswith("-lowest") for name in names) == tables
    compiled = native_program(plan, weights)
    for own, one in zip(compiled(SAMPLES), SAMPLES, strict=True):
        assert_same(as_torch(own), program.eager(one), of_tensors=True)
    rows = {one.block: 0 for one in compiled.block_runs(SAMPLES)}
    for run in compiled.block_runs(SAMPLES):
        rows[run.block] += run.rows
    lowest = {name: count for name, count in rows.items() if name.endswith("-lowest")}
    assert list(lowest.values()) == ([4] if tables else [])
    assert sum(rows.values()) - sum(count for name, count in rows.items() if "-first" in name) == 18
    whole = next(one for one in plan.facts["blocks"] if one["name"] == f"block{model.blocks.index(cell)}")
    assert whole["buckets"] == ({"1": 2, "2": 1} if tables else {"4": 1, "1": 3, "2": 1})


@pytest.mark.parametrize("is_learned", [False, True])
def test_a_state_that_all_words_have(is_learned: bool) -> None:
    """It is a table of one row, which is no limit of words; those of the embedding stay one."""
    torch.manual_seed(2)
    leaf, merge = Begun(is_learned).eval(), Merge().eval()

    def state(node: Any) -> Any:
        if not node.below:
            return leaf(torch.tensor(node.word))
        left, right = dietcode.map(state, node.below)
        return merge(left, right)

    @dietcode.program
    def encode(node: Any) -> Any:
        h, c = state(node)
        return h + 0, c + 0

    model, weights = model_of(encode, SAMPLES, "trees")
    compiled = native_program(plan_program(model, {}), weights)
    for own, one in zip(compiled(SAMPLES), SAMPLES, strict=True):
        assert_same(as_torch(own), encode.eager(one), of_tensors=True)
    assert any(one.block.endswith("-lowest") for one in compiled.block_runs(SAMPLES))
    (found,) = compiled([Node(0, [_leaf(WORDS), _leaf(0)])], errors="return")
    assert f"the number {WORDS}; allowed: 0…{WORDS - 1}" in str(found)


def test_a_tree_lstm_has_it_and_computes_the_same() -> None:
    module = example_of("tree_lstm")
    program, samples = module.build(hidden=H, words=WORDS), module.samples(6, words=WORDS)
    model, weights = model_of(program, samples[:4], "tree_lstm")
    again = read_program_model(json.loads(json.dumps(model.to_json())))
    assert again.blocks[1].lowest == model.blocks[1].lowest
    plan = plan_program(again, {})
    cell, lowest = plan.description["blocks"][1:]
    assert lowest["lowest_of"] == {"block": 1, "sources": [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]]}
    assert len(lowest["load"]) > len(cell["load"]), "products of all words are computed at load"
    compiled = native_program(plan, weights)
    for own, one in zip(compiled(samples), samples, strict=True):
        assert_same(as_torch(own), program.eager(one), of_tensors=True)
    assert sum(one.block == "block1-lowest" for one in compiled.block_runs(samples)) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sources": [[0, 0, 0]]}, "lowest.sources: given [[0, 0, 0]]; allowed: one for each operand"),
        ({"sources": [None] * 4}, "allowed: one for each operand, or null"),
        ({"sources": [[0, 0], None, None, None]}, "lowest.sources.0: given [0, 0]; allowed: [block, result"),
        ({"sources": [[0, 0, 1], None, None, None]}, "lowest.sources.0: given 1; allowed: 0"),
        ({"sources": [[1, 0, 0], None, None, None]}, "lowest.sources.0: given 1, 0, 0; allowed: a result of"),
        ({"sources": [[9, 0, 0], None, None, None]}, "lowest.sources.0: given 9, 0, 0"),
        ({"sources": [[0, 2, 0], None, None, None]}, "lowest.sources.0: given 0, 2, 0"),
        ({"sources": [None, [0, 1, 0], None, None]}, "lowest.sources.1: given 0, 1, 0"),
        ({"rows": {"0": 1}}, "lowest.rows: given the size"),
        ({"more": 1}, "lowest.'more': unknown field"),
    ],
)
def test_what_says_none(change: dict[str, Any], said: str) -> None:
    module = example_of("tree_lstm")
    program, samples = module.build(hidden=4, words=WORDS), module.samples(2, words=WORDS)
    data = model_of(program, samples, "tree_lstm")[0].to_json()
    data["blocks"][1]["lowest"] |= change
    with pytest.raises(ModelError) as caught:
        read_program_model(data)
    assert said in str(caught.value)


def test_what_is_too_large_is_no_table() -> None:
    """States of very many words take more memory than a table may have: the block stays as it is."""
    torch.manual_seed(0)
    module = example_of("tree_lstm")
    program, samples = module.build(hidden=64, words=270_000), module.samples(4, words=9)
    model, _ = model_of(program, samples, "tree_lstm")
    assert model.blocks[1].lowest is not None
    assert model.blocks[1].lowest.sources[0] == NumberSource(0, 0, 0)
    assert [one["name"] for one in plan_program(model, {}).facts["blocks"]] == ["block0", "block1"]
