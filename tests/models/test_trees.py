"""The arguments and outputs of exported programs, as trees of plain data."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from graph_runs import assert_same, exported, imported, torch
from kernel_runs import lowered, model_of

from dietcode.errors import ModelError, TensorError
from dietcode.graph.reading import read_graph
from dietcode.graph.signature import built_output, flatten_arguments
from dietcode.models.exporting import export
from dietcode.models.importing.exported import load_exported


class ModelOutput(OrderedDict[str, Any]):
    """A dictionary with fields that are left out where they are None, as language models return."""


torch.utils._pytree.register_pytree_node(
    ModelOutput,
    lambda one: (list(one.values()), list(one)),
    lambda values, keys: ModelOutput(zip(keys, values, strict=True)),
    serialized_type_name="test_trees.ModelOutput",
)


@dataclasses.dataclass
class Pair:
    """A record of two tensors, of which one may be missing."""

    first: Any
    second: Any = None


torch.export.register_dataclass(Pair, serialized_type_name="test_trees.Pair")


class Named(NamedTuple):
    """A tuple with names."""

    left: Any
    right: Any


class Model(torch.nn.Module):
    """Takes and returns all kinds of trees."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Any, states: Any, *, mask: Any = None, **more: Any) -> Any:
        """Return x + h, and x · 2, in a tree."""
        first, second = x + states[0], x * 2
        if mask is not None:
            first = first * (mask.first if isinstance(mask, Pair) else mask["own"])
        if self.kind == "output":
            return ModelOutput(logits=first, past=(second, [second + 1]))
        if self.kind == "record":
            return Pair(first, second)
        if self.kind == "named":
            return Named(first, second)
        return {"logits": first, "past": ((second,), None)} if self.kind == "dict" else first


def test_keyword_only_and_nested_inputs() -> None:
    args = (torch.randn(3), [torch.randn(3), None])
    kwargs = {"mask": {"own": torch.randn(3), "other": torch.randn(2)}}
    for kind in ("dict", "one"):
        module = Model(kind)
        graph, weights = imported(exported(module, args, kwargs=kwargs))
        assert_same(module, graph, weights, args, kwargs)
        assert list(graph.signature["keyword"]) == ["mask"]
        assert json.loads(json.dumps(graph.signature)) == graph.signature
    assert graph.signature["output"] == "*"


def test_arguments_that_are_none() -> None:
    module, args = Model("dict"), (torch.randn(3), (torch.randn(3),))
    graph, weights = imported(exported(module, args))
    assert graph.signature["keyword"] == {}
    assert_same(module, graph, weights, args)
    graph, weights = imported(exported(module, args, kwargs={"mask": None}))
    assert graph.signature["keyword"] == {"mask": None}
    assert_same(module, graph, weights, args, {"mask": None})


class Scaled(torch.nn.Module):
    """Takes numbers and texts beside tensors."""

    def forward(self, x: Any, times: int, kind: str = "plain") -> Any:
        """Return x · times."""
        return x * times if kind == "plain" else x


def test_constants_are_repeated_by_calls() -> None:
    module, args = Scaled(), (torch.randn(3), 3, "plain")
    graph, weights = imported(exported(module, args))
    assert graph.signature["positional"][1:] == [{"constant": 3}, {"constant": "plain"}]
    assert_same(module, graph, weights, args)
    with pytest.raises(TensorError, match="given 4; allowed: 3, as the model was exported"):
        assert_same(module, graph, weights, (args[0], 4, "plain"))


@pytest.mark.parametrize("kind", ["output", "record", "named"])
def test_an_export_of_records_is_read_without_their_classes(kind: str, tmp_path: Path) -> None:
    x, states = torch.randn(3), (torch.randn(3),)
    program = export(Model(kind).eval(), (x, states), {"mask": Pair(x)})
    torch.export.save(program, tmp_path / "model.pt2")
    with zipfile.ZipFile(tmp_path / "model.pt2") as file:
        assert not any(
            b"test_trees.ModelOutput" in file.read(name) or b"test_trees.Pair" in file.read(name)
            for name in file.namelist()
            if name.endswith(".json")
        )
    graph, weights = imported(load_exported(tmp_path / "model.pt2"))
    found = model_of(lowered(graph), weights)(x, states, mask=Pair(x))
    first, second = (x + states[0]) * x, x * 2
    wanted = {
        "output": {"logits": first, "past": (second, [second + 1])},
        "record": {"first": first, "second": second},
        "named": (first, second),
    }[kind]
    torch.testing.assert_close(found, wanted)


def test_a_record_of_an_unknown_class_is_refused_with_its_name(tmp_path: Path) -> None:
    program = torch.export.export(Model("record"), (torch.randn(3), (torch.randn(3),)))
    torch.export.save(program, tmp_path / "model.pt2")
    with (
        zipfile.ZipFile(tmp_path / "model.pt2") as file,
        zipfile.ZipFile(tmp_path / "other.pt2", "w") as other,
    ):
        for name in file.namelist():
            other.writestr(name, file.read(name).replace(b"test_trees.Pair", b"elsewhere.Pair"))
    with pytest.raises(
        ModelError, match=r"other.pt2: an input or output is a elsewhere.Pair, .*dietcode.export"
    ):
        load_exported(tmp_path / "other.pt2")
    (tmp_path / "other.pt2").write_bytes(b"no archive")
    with pytest.raises(ModelError, match=r"no program of torch.export: '.*not a ZIP archive.*; write it by"):
        load_exported(tmp_path / "other.pt2")


class OfPair(torch.nn.Module):
    """Takes a record."""

    def forward(self, pair: Any) -> Any:
        """Return the sum of what the record has."""
        return pair.first if pair.second is None else pair.first + pair.second


def test_inputs_may_be_records() -> None:
    for pair in (Pair(torch.randn(3), torch.randn(3)), Pair(torch.randn(3))):
        module = OfPair()
        graph, weights = imported(exported(module, (pair,)))
        assert_same(module, graph, weights, (pair,))
        fields = {"first": pair.first} | ({} if pair.second is None else {"second": pair.second})
        assert flatten_arguments(graph.signature, (fields,), {}).keys() == graph.inputs.keys()
    with pytest.raises(TensorError, match="pair: given Pair; allowed: a dictionary of first"):
        flatten_arguments(graph.signature, (Pair(torch.randn(3), torch.randn(3)),), {})


class WithNumbers(torch.nn.Module):
    """Takes a flag and a text, and returns a number and a text beside its tensor."""

    def forward(self, x: Any, *, flag: bool = True, kind: str = "plain") -> Any:
        """Return x, or its double, and what it is."""
        return {"x": x if flag else x * 2, "count": 3, "kind": kind}


def test_models_with_constants_among_arguments_and_outputs_are_called() -> None:
    module, x, kwargs = WithNumbers(), torch.randn(3), {"flag": False, "kind": "plain"}
    graph, weights = imported(exported(module, (x,), kwargs=kwargs))
    assert read_graph(graph.to_json()).to_json() == graph.to_json()
    found = model_of(lowered(graph), weights)(x, **kwargs)
    assert torch.equal(found["x"], x * 2) and (found["count"], found["kind"]) == (3, "plain")


def test_classes_of_outputs_become_dictionaries_and_tuples() -> None:
    args = (torch.randn(3), (torch.randn(3),))
    for kind, wanted in (
        ("output", {"dict": [["logits", "*"], ["past", {"tuple": ["*", {"list": ["*"]}]}]]}),
        ("record", {"dict": [["first", "*"], ["second", "*"]]}),
        ("named", {"tuple": ["*", "*"]}),
    ):
        graph, _ = imported(exported(Model(kind), args))
        assert graph.signature["output"] == wanted, kind
        leaves = iter(range(3))
        assert built_output(graph.signature["output"], leaves)
