"""Attentions, compiled with several micro-kernels."""

from __future__ import annotations

import functools
from typing import Any

from compiled import cpu_target
from compiled_block import CompiledBlock
from turns import few_of

from dietcode.search_space.attention.problem import AttentionProblem
from dietcode.search_space.cpu.attention.micro_kernel import AttentionKernel
from dietcode.search_space.cpu.attention.space import allows
from dietcode.search_space.cpu.limits import Limits
from dietcode.workload.parse import spec_from_data

# Indices of Q, K, V, the mask or None, the scores and the result; attributes of the softmax, `lengths` of
# keys, `functions` of scores S, the last one F, with the indices of tensors that they read; fixed extents.
Case = tuple[tuple[str, str, str, str | None, str, str], dict[str, Any], dict[str, int]]
ATTENTIONS: dict[str, Case] = {
    "plain": (("bhqd", "bhkd", "bhkd", None, "bhqk", "bhqd"), {"scale": 0.125}, {"d": 64}),
    "causal": (("bqhd", "bkhd", "bkhd", None, "bhqk", "bqhd"), {"scale": 0.2, "causal": "q"}, {"d": 40}),
    "padded": (("bhqd", "bhkd", "bhkd", "bk", "bhqk", "bqhd"), {"scale": -0.3}, {"d": 9}),
    "lengths": (
        ("bhqd", "bkhd", "bkhd", "qk", "bhqk", "bqhd"),
        {"scale": 0.3, "causal": "q", "lengths": "b"},
        {"d": 12},
    ),
    "grouped": (
        ("bqgrd", "bkgd", "bkge", "gqk", "bgrqk", "bgrqe"),
        {"causal": "q"},
        {"d": 24, "e": 72, "r": 3},
    ),
    "capped": (  # as in Gemma 2, with positions and a mask of sentences beside it
        ("bhqd", "bkhd", "bkhd", "bk", "bhqk", "bqhd"),
        {
            "causal": "q",
            "functions": (
                {
                    "a": {"mul": ["S", 0.25]},
                    "t": {"tanh": "a"},
                    "c": {"mul": ["t", 3]},
                    "far": {"neg": "steps"},
                    "F": {"sub": ["c", "far"]},
                },
                {"steps": "hqk"},
            ),
        },
        {"d": 19},
    ),
    "filled": (  # scores with other indices after the keys, and a mask that is no sum
        ("bhqd", "hbkd", "bkhd", "kq", "bkhq", "bhqd"),
        {"scale": 0.4, "causal": "q", "functions": ({"F": {"where": ["seen", "S", -1e9]}}, {"seen": "bk"})},
        {"d": 7},
    ),
    "filled-lengths": (
        ("bqd", "bkd", "bke", None, "bqk", "bqe"),
        {"lengths": "b", "functions": ({"F": {"mul": ["S", "steep"]}}, {"steep": "bq"})},
        {"d": 5, "e": 4},
    ),
    "one-head": (("qd", "kd", "ke", "q", "qk", "qe"), {"scale": 0.5}, {"d": 17, "e": 3}),
}

ON_GPUS = [name for name, (_, attributes, _) in ATTENTIONS.items() if "lengths" not in attributes]
"""Cases that GPUs have code for."""


def attention_data(name: str, **more: str) -> dict[str, Any]:
    """A spec of a case, with more attributes of its softmax."""
    (q, k, v, mask, scores, output), attributes, fixed = ATTENTIONS[name]
    attributes = attributes | more
    lengths = attributes.pop("lengths", None)
    functions, reads = attributes.pop("functions", ({}, {}))
    operands = {"Q": q, "K": k, "V": v} | ({} if mask is None else {"mask": mask})
    operands |= reads | ({} if lengths is None else {"lengths": lengths})
    found = "F" if functions else "S"
    read = [found if lengths is None else "H", "mask"][: 1 if mask is None else 2]
    graph: dict[str, Any] = {
        "S": {"einsum": ["Q", "K"], "dims": scores},
        **functions,
        **({} if lengths is None else {"H": {"hide": [found, "lengths"], "axis": "k"}}),
        "P": {"softmax": read, "axis": "k", **attributes},
        "O": {"einsum": ["P", "V"], "dims": output},
    }
    free = [index for index in dict.fromkeys(q + k + v) if index not in fixed]
    return {
        "name": name,
        "op": {"block": {"version": 1, "graph": graph, "outputs": ["O"]}},
        "tensors": {
            tensor: {"dims": dims, "dtype": "int32" if tensor == "lengths" else "float32"}
            for tensor, dims in operands.items()
        },
        "shape_vars": {f"V{index}": {"min": 1, "max": 200} for index in free},
        "dims": {index: f"V{index}" for index in free} | fixed,
    }


def attention_of(name: str, **more: str) -> AttentionProblem:
    """The problem of a case."""
    return AttentionProblem.of_spec(spec_from_data(attention_data(name, **more)))


def attention_kernels(problem: AttentionProblem, limits: Limits) -> list[AttentionKernel]:
    """One of each kind: queries at once, keys at once, tiles that share a block, one core, split keys."""
    lanes = limits.lanes
    kernels = [
        AttentionKernel(1, lanes),
        AttentionKernel(1, 64 if lanes > 8 else 2 * lanes, split=True),
        AttentionKernel(3, 2 * lanes, 4),
        AttentionKernel(4, 2 * lanes, 1, serial=True),
        AttentionKernel(2, lanes, 3, serial=True),
    ]
    assert all(allows(problem, kernel, limits) for kernel in kernels)
    return kernels


@functools.cache
def built_attention(name: str, mcpu: str) -> CompiledBlock:
    problem, target = attention_of(name), cpu_target(mcpu)
    every = attention_kernels(problem, Limits.of(target))
    return CompiledBlock(problem, few_of(every, list(ATTENTIONS).index(name)), target)
