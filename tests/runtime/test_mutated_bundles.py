"""A bundle that somebody altered, digests and all: refused in a sentence, or it runs; nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from small_libraries import untuned_library
from small_models import mlp, weights_of
from small_programs import pair_program, pair_weights
from small_recursions import SAMPLES, tree_cells, tree_weights

from dietcode.graph.graph import Graph
from dietcode.models import compiling
from dietcode.programs.compiling import compile_program
from dietcode.recursion.compiling import compile_recursion

_HERE = Path(__file__).parent
_NUM = 400 if os.environ.get("DIETCODE_TEST_LONG") else 40


def model() -> Graph:
    """Products, and steps of the host: some of weights alone, some of each call."""
    graph = mlp()
    (rows,) = graph.outputs
    every = graph.add("slice", rows, axis=1, start=0, stop=32, step=2)
    numbers = graph.add("cast", graph.add("arange", stop=32), dtype="float32")
    order = graph.add("top", rows, axis=1, num=4)
    joined = graph.add("concat", every, order, graph.add("mul", rows, numbers), axis=1)
    padded = graph.add("pad", joined, pads=((0, 0), (1, 2)))
    graph.outputs = [graph.add("cumsum", padded, axis=1), f"{order}.1"]
    graph.signature = {"positional": ["x"], "keyword": {}, "output": {"tuple": ["*", "*"]}}
    return graph


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of each kind, whose libraries run, though nobody tuned them."""
    folder = tmp_path_factory.mktemp("bundles")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIETCODE_CACHE", str(folder / "cache"))
        patch.setattr(compiling, "make_library", untuned_library)
        compiling.compile_graph(model(), weights_of(model()), folder / "model")
        sizes = {"max_nodes": 64, "max_level": 16, "samples": SAMPLES}  # libraries that other tests have too
        compile_recursion(tree_cells(), tree_weights(), folder / "recursion", **sizes)
        compile_program(pair_program(), pair_weights(), folder / "program")
    return folder


@pytest.mark.parametrize("kind", ["model", "recursion", "program"])
def test_one_value_that_is_another_one(bundles: Path, kind: str) -> None:
    command = [sys.executable, str(_HERE / "mutated_bundles.py"), str(bundles / kind), kind, "0", str(_NUM)]
    paths = os.pathsep.join([str(_HERE.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": paths, "PYTHONFAULTHANDLER": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (len(outcomes), done.stderr[-2000:])
    counts = Counter(outcomes)
    assert [one for one in counts if one[0].isdigit()] == []  # a seed, and what was raised
    assert counts["LibraryError"] > _NUM // 4 and counts["ran"] > _NUM // 10
