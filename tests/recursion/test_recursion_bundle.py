"""From a cell to a bundle by the command line, and from the bundle to states without PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import compile_cache
import numpy as np
import pytest
from needs import of_extra
from recursion_runs import module_of, random_structure
from small_libraries import ROOT, untuned_library

from dietcode.lean import with_torch, without_torch

if find_spec("torch") is None or find_spec("tvm") is None:
    pytest.skip(of_extra("models"), allow_module_level=True)

# `before`, a leaf by zeros, kernels that pass values on, moves of elements, and a state of one number.
_FILE = """
import torch, dietcode
from torch import nn

class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.of_x, self.of_h = nn.Linear(12, 32), nn.Linear(16, 32)

    def forward(self, x, h, new, mixed, count):
        count = count.max() + 1
        h = h.sum(0) + mixed.flip(1)[0]
        update, new = (self.of_x(x) + self.of_h(h)).chunk(2)
        new = torch.tanh(new)
        own = h + torch.sigmoid(update) * (new - h)
        return own, new, torch.cat([new[12:], torch.where(h > 0, h, new)[:12]]), count

torch.manual_seed(0)
states = [(16,), (16,), (16,), ()]
tree = dietcode.Recursion(Cell().eval(), children=dietcode.ChildSum(2), states=states, x=(12,))
"""
_RUN = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"tvm", "torch", "scipy", "psutil", "xgboost"}:
            raise ImportError(f"{name} is blocked in this test")
sys.meta_path.insert(0, Blocked())
import numpy as np
import dietcode
model = dietcode.load(sys.argv[1])
given = np.load(sys.argv[2])
structure = dietcode.Structure(given["children"])
roots = model(structure, given["x"])
states = model(structure, given["x"], all_nodes=True)
assert all(np.array_equal(a, b[structure.roots]) for a, b in zip(roots, states))
np.savez(sys.argv[3], *states)
"""


def _run(*command: object, torch: bool = True) -> subprocess.CompletedProcess[str]:
    env = (with_torch if torch else without_torch)(os.environ)
    cache = {"DIETCODE_CACHE": str(compile_cache.parts())}
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=env | cache,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(params=["untuned", pytest.param("tuned", marks=pytest.mark.long)])
def compiled(request: pytest.FixtureRequest, inside: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs ``dietcode compile``: in `make test` with two micro-kernels for each part.

    Tuning all four takes half a minute.
    """
    if request.param == "tuned":
        return lambda *options: _run("-m", "dietcode", "compile", *options)
    from dietcode.models import compiling

    monkeypatch.setattr(compiling, "make_library", untuned_library)
    return lambda *options: inside("compile", *options)


def test_from_a_cell_to_states(tmp_path: Path, compiled: Any) -> None:
    file, bundle = tmp_path / "trees.py", tmp_path / "bundle"
    file.write_text(_FILE)
    sizes = ("--max-nodes", "64", "--max-level", "16", "--trials", "2", "--seconds", "1")
    done = compiled(f"{file}:tree", "-o", bundle, *sizes)
    assert f"dietcode.load('{bundle}')" in done.stdout, done.stderr
    children = random_structure(8, 60, 2, is_dag=True).children
    x = np.random.default_rng(3).standard_normal((60, 12)).astype(np.float32)
    np.savez(tmp_path / "given.npz", children=children, x=x)
    _run("-c", _RUN, bundle, tmp_path / "given.npz", tmp_path / "found.npz", torch=False)
    with np.load(tmp_path / "found.npz") as arrays:
        found = dict(arrays)
    wanted = module_of(file).tree(random_structure(8, 60, 2, is_dag=True), x, all_nodes=True)
    for name, right in zip(found, wanted, strict=True):
        assert found[name].shape == right.shape
        np.testing.assert_allclose(found[name], right.numpy(), rtol=0, atol=2e-5)
    shown = json.loads(_run("-m", "dietcode", "inspect", bundle, "--json", torch=False).stdout)
    assert shown["report"]["kernels"] == {"before": 1, "leaf": 1, "cell": 4}
    assert shown["report"]["moves"] > 0
    assert shown["manifest"]["name"] == "trees" and all(one["categories"] for one in shown["report"]["parts"])
    text = _run("-m", "dietcode", "inspect", bundle, torch=False).stdout
    assert "before 1, leaf 1, cell 4" in text and "N in 1…64" in text
