"""The models of examples/models: exported by dietcode.export, imported, and compared over several shapes."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from graph_runs import assert_same, imported, torch

from dietcode.graph.reading import read_graph
from dietcode.models.exporting import export

FOLDER = Path(__file__).parents[2] / "examples" / "models"
# Sizes as `example_args` takes them: least, odd and large ones.
SIZES: dict[str, list[tuple[int, ...]]] = {
    "bert": [(1, 1), (2, 17), (3, 128)],
    "convnext": [(1, 32, 33), (2, 50, 40)],
    "graph_network": [(1, 1), (30, 3), (7, 16)],
    "greedy": [(1, 1), (3, 20), (16, 128)],
    "llama": [(1, 1, 0), (2, 7, 0), (1, 1, 20), (3, 4, 9)],
    "lstm": [(1, 1), (3, 20)],
    "mlp": [(1,), (33,)],
    "mobilenet": [(1, 32, 33), (2, 50, 40)],
    "resnet": [(1, 32, 33), (2, 50, 40)],
    "routed": [(1,), (2,), (50,), (256,)],
    "swin": [(1,), (3,)],
    "t5": [(1, 1), (2, 5), (1, 150)],
    "unet": [(1, 8, 12), (2, 40, 28)],
    "vit": [(1,), (5,)],
    "whisper": [(1, 3), (2, 33), (1, 100)],
}
# One of each kind of layer and of control flow is in `make test`, most of them lowered; ResNet is, as ONNX.
_AS_GRAPHS = {"lstm"}
_LOWERED = {"graph_network", "mlp", "routed"}


def in_turn(as_graphs: bool) -> list[Any]:
    """All examples as cases: a few of each of two tests in `make test`, all of both in `make test-long`."""
    here = _AS_GRAPHS if as_graphs else _LOWERED
    return [pytest.param(name, marks=() if name in here else pytest.mark.long) for name in SIZES]


def example_of(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def test_all_are_tried() -> None:
    assert sorted(SIZES) == sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", in_turn(as_graphs=True))
def test_examples(name: str) -> None:
    example = example_of(name)
    model = example.build()
    torch.manual_seed(1)
    program = export(model, example.example_args(), dynamic_shapes=example.dynamic_shapes())
    graph, weights = imported(program)
    assert json.dumps(read_graph(graph.to_json()).to_json()) == json.dumps(graph.to_json())
    for sizes in SIZES[name]:
        assert_same(model, graph, weights, example.example_args(*sizes))
