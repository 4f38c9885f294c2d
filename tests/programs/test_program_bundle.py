"""From a program to a bundle by the command line, and from the bundle to results without PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from needs import of_extra
from program_runs import assert_same, module_in
from small_libraries import ROOT, untuned_library

from dietcode.lean import without_torch
from dietcode.programs.block_runs import sources_of

if find_spec("torch") is None or find_spec("tvm") is None:
    pytest.skip(of_extra("models"), allow_module_level=True)

# Recursion, a decision, a loop, a list and an item of a computed tensor.
_FILE = """
import torch, dietcode
from dataclasses import dataclass
from torch import nn

torch.manual_seed(0)
embedding, cell, score = nn.Embedding(7, 8).eval(), nn.RNNCell(8, 8).eval(), nn.Linear(8, 3).eval()
step = nn.Linear(8, 8).eval()

@dataclass
class Tree:
    word: int
    below: list

def node(tree):
    h = embedding(torch.tensor(tree.word))
    for state in dietcode.map(node, tree.below):
        h = cell(state, h)
    return h

@dietcode.program
def encode(tree):
    h = node(tree)
    found = [h]
    while len(found) < 3 and score(h)[0] > 0:
        h = torch.tanh(step(h))
        found = [*found, h]
    best = int(score(h).argmax())
    return found, best, torch.softmax(score(h), dim=-1)[best]

def tree(depth, word):
    below = [tree(depth - 1, 3 * word + at) for at in range(depth)]
    return Tree(word % 7, below)

def samples():
    return [tree(depth, word) for depth in (0, 1, 2, 3) for word in range(4)]
"""
_RUN = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"tvm", "torch", "scipy", "psutil", "xgboost"}:
            raise ImportError(f"{name} is blocked in this test")
sys.meta_path.insert(0, Blocked())
import json
from types import SimpleNamespace
import numpy as np
import dietcode
def tree(data):
    return SimpleNamespace(word=data[0], below=[tree(one) for one in data[1]])
program = dietcode.load(sys.argv[1])
results = program([tree(one) for one in json.loads(sys.argv[2])])
print(json.dumps([[[one.tolist() for one in found], best, float(share)] for found, best, share in results]))
"""


def _plain(tree: Any) -> list[Any]:
    return [tree.word, [_plain(one) for one in tree.below]]


def test_from_a_program_to_results(tmp_path: Path, inside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from dietcode.models import compiling

    monkeypatch.setattr(compiling, "make_library", untuned_library)
    file, bundle = tmp_path / "trees.py", tmp_path / "bundle"
    file.write_text(_FILE)
    options = ("--samples", "samples", "--trials", "2", "--seconds", "1")
    done = inside("compile", f"{file}:encode", "-o", bundle, *options)
    assert f"dietcode.load('{bundle}')" in done.stdout, done.stderr
    module = module_in(file)
    samples = module.samples()
    run = [sys.executable, "-c", _RUN, str(bundle), json.dumps([_plain(one) for one in samples])]
    env = without_torch(os.environ)
    process = subprocess.run(run, capture_output=True, text=True, cwd=ROOT, env=env, timeout=300, check=False)
    assert process.returncode == 0, process.stderr
    wanted = [module.encode.eager(one) for one in samples]
    assert {len(found) for found, *_ in wanted} > {1}
    for (states, best, share), (found, right, part) in zip(json.loads(process.stdout), wanted, strict=True):
        assert_same(list(map(torch.tensor, states)), found)
        assert best == right
        assert_same(torch.tensor(share), part)


@pytest.mark.parametrize("line", ["²", "9" * 5000, "-1", "x", ""])
def test_a_line_of_a_stranger_s_source_is_no_number(line: str) -> None:
    assert sources_of({"steps": [{"sources": ["a.py:3", f"a.py:{line}", "a.py:5"]}]}) == "a.py:3…5"


def test_a_block_of_several_statements_comes_from_their_lines() -> None:
    assert sources_of({"steps": [{"sources": ["a.py:10 to 12"]}, {"sources": ["a.py:11"]}]}) == "a.py:10…12"
