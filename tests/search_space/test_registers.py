"""Accumulators stay in registers while the reduction runs, where the register file holds them all."""

from __future__ import annotations

import re

import pytest
from compiled import cpu_target

from dietcode.search_space.cpu.compiling import compile_module
from dietcode.search_space.cpu.host import build_module
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.problem import problem_from_spec
from dietcode.workload.parse import parse_spec

WORKLOAD = """
name: dense
op: {einsum: "mk,nk->mn"}
tensors: {X: {dims: mk, dtype: float32}, W: {dims: nk, dtype: float32, constant: true}}
shape_vars: {M: {min: 1, max: 512}, N: {min: 1, max: 512}}
dims: {m: M, n: N, k: 768}
"""
ON_STACK = re.compile(r"v\w+\s[^#\n]*\(%r[sb]p\)[^#\n]*%ymm|v\w+\s[^#\n]*%ymm\d+, [^#\n]*\(%r[sb]p\)")


@pytest.mark.parametrize("tails", ["local", "partition"])
@pytest.mark.parametrize(("rows", "columns"), [(6, 16), (4, 24)])
def test_no_step_of_a_reduction_moves_an_accumulator(rows: int, columns: int, tails: str) -> None:
    spec, target = parse_spec(WORKLOAD), cpu_target("haswell")
    kernels = [MicroKernel(rows, columns, tails)]
    module = build_module(problem_from_spec(spec), kernels, 0, spec.variables, Limits.of(target))
    text = compile_module(module, target).mod.inspect_source("s")
    steps = [
        block
        for block in re.split(r"^\.LBB\w+:.*$", text, flags=re.MULTILINE)
        if block.count("vfmadd") >= rows * columns // 8
    ]
    assert steps
    for step in steps:
        first, last = step.index("vfmadd"), step.rindex("vfmadd")
        assert not ON_STACK.findall(step[first:last])
