"""``FILE.py:NAME``: recursions out of files, as ``dietcode compile`` reads them, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import of_extra

from dietcode.cli.compile import compile_model
from dietcode.errors import ModelError, RequestError
from dietcode.graph.recursive_model import RecursiveModel, check_sizes, default_sizes
from dietcode.programs.reader import read_object

pytest.importorskip("torch", reason=of_extra("models"))
FILE = """
import helper
import torch, dietcode

class Cell(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.join = torch.nn.Linear(helper.WIDTH * 2, helper.WIDTH)

    def forward(self, left, right):
        return torch.tanh(self.join(torch.cat([left, right])))

print("what a file prints is not read")
tree = dietcode.Recursion(Cell().eval(), children=2, states=[(helper.WIDTH,)])
other = 3
"""


@pytest.mark.thorough
def test_read(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("WIDTH = 5\n")
    file = tmp_path / "trees.py"
    file.write_text(FILE)
    found, weights = read_object(f"{file}:tree", "tree")
    assert isinstance(found, RecursiveModel)
    cells = found.cells
    assert (found.max_nodes, found.max_level, found.samples) == (8192, 1024, None)
    assert (cells.name, cells.children, cells.states, cells.x, cells.leaf) == ("tree", 2, ((5,),), None, None)
    assert {name: array.shape for name, array in weights.items()} == {
        "cell.join.weight": (5, 10),
        "cell.join.bias": (5,),
    }
    assert all(array.dtype == np.float32 for array in weights.values())
    with pytest.raises(ModelError, match=r"other is 3; allowed: a dietcode.Recursion; it has tree$"):
        read_object(f"{file}:other", "tree")
    (tmp_path / "helper.py").write_text("raise KeyError('width')\n")
    with pytest.raises(ModelError, match="running it failed: KeyError: 'width'"):
        read_object(f"{file}:tree", "tree")


@pytest.mark.parametrize(
    ("model", "problem"),
    [("none.py:tree", "none.py: no such file; give FILE.py:NAME"), ("trees.py", "no object is named")],
)
def test_files_that_are_none(model: str, problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        read_object(model, "tree")


@pytest.mark.parametrize(
    ("model", "options", "problem"),
    [
        ("trees.py:tree", {"ranges": ["L=1..2"]}, "--range: given for a recursion; allowed: --max-nodes and"),
        ("m.onnx", {"max_nodes": 5}, "--max-nodes, --max-level, --samples: given for a model"),
        ("trees.py:tree", {"max_nodes": 0}, "--max-nodes: given 0; allowed: 1 to 16777216"),
        ("trees.py:tree", {"max_nodes": 5, "max_level": 6}, "--max-level: given 6; allowed: 1 to 5, which"),
    ],
)
def test_options_of_the_command(model: str, options: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=problem):
        compile_model(Path(model), tmp_path / "bundle", **options)
    assert not (tmp_path / "bundle").exists()


def test_sizes_that_are_not_given() -> None:
    assert default_sizes(None, None) == (8192, 1024)
    assert default_sizes(100, None) == (100, 100)
    check_sizes(*default_sizes(1, None))
