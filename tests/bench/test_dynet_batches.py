"""DyNet batches what the benchmarks write for it: a peer that computes row by row is no peer."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest
from needs import of_extra

pytest.importorskip("torch", reason=of_extra("bench"))
pytest.importorskip("dynet_config", reason=of_extra("bench"))

_INSTANCES = 8
_CALLS = f"""
import dynet_config
dynet_config.set(autobatch=1, profiling=2)  # prints what each execution computes, and for how many nodes
import torch
from benchmarks.program_sizes import program_of, samples_of
from benchmarks.programs import arrays_of, error_of
from benchmarks.programs_dynet import PROGRAMS
torch.set_grad_enabled(False)
for name, make in PROGRAMS.items():
    width = 16 if name == "mv_rnn" else 64
    program, instances = program_of(f"{{name}}_{{width}}"), samples_of(f"{{name}}_{{width}}", {_INSTANCES})
    print("of", name, flush=True)
    found = make(program, instances)()
    error = error_of(arrays_of(found), arrays_of([program.eager(one) for one in instances]))
    print("error", error, flush=True)
"""
# Of a product of two computed operands, as the MV-RNN's of matrices with vectors, DyNet has no batches.
_OWN_OPERANDS = {"mv_rnn": {"a * a"}}


def test_products_of_all_instances_are_computed_together() -> None:
    done = subprocess.run([sys.executable, "-c", _CALLS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    _, *parts = re.split(r"^of ", done.stdout, flags=re.MULTILINE)
    assert len(parts) == 6
    for part in parts:
        name = part.split()[0]
        assert float(re.search(r"^error (\S+)", part, re.MULTILINE)[1]) < 1e-5, name
        runs, nodes = Counter[str](), Counter[str]()
        for size, what in re.findall(r"^BatchSize:(\d+) (.*)", part, re.MULTILINE):
            runs[what] += 1
            nodes[what] += int(size)
        products = {what for what in runs if "*" in what} - _OWN_OPERANDS.get(name, set())
        assert products, name
        for what in products:
            assert nodes[what] >= 2 * runs[what], f"{name}: {what} {nodes[what]} times in {runs[what]} runs"
        alone = {what: runs[what] for what in runs if re.match("constant|reshape", what)}
        assert sum(alone.values()) <= 2, f"{name}: {alone}"
