"""Blocks with products, compiled with several micro-kernels."""

from __future__ import annotations

import functools
from typing import Any

from compiled import cpu_target
from compiled_block import CompiledBlock
from turns import few_of

from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.products.micro_kernel import ProductKernel
from dietcode.search_space.cpu.products.space import neighbours, tiles
from dietcode.search_space.products.problem import ProductProblem
from dietcode.workload.parse import spec_from_data

Node = dict[str, Any]


def _gates(source: str, names: str) -> dict[str, Node]:
    return {name: {"slice": source, "axis": "g", "at": at} for at, name in enumerate(names)}


LSTM: dict[str, Node] = {
    "P": {"einsum": ["X", "W"], "dims": "mgn"},
    "Q": {"einsum": ["H", "U"], "dims": "mgn"},
    "S": {"add": ["P", "Q"]},
    "Z": {"add": ["S", "b"]},
    **_gates("Z", "ifjo"),
    "si": {"sigmoid": "i"},
    "sf": {"sigmoid": "f"},
    "tj": {"tanh": "j"},
    "so": {"sigmoid": "o"},
    "kept": {"mul": ["sf", "C"]},
    "new": {"mul": ["si", "tj"]},
    "c": {"add": ["kept", "new"]},
    "tc": {"tanh": "c"},
    "h": {"mul": ["so", "tc"]},
}
GRU: dict[str, Node] = {
    "P": {"einsum": ["X", "W"], "dims": "mgn"},
    "Q": {"einsum": ["H", "U"], "dims": "mgn"},
    "A": {"add": ["P", "b"]},
    "B": {"add": ["Q", "d"]},
    **_gates("A", "rzn"),
    **{f"{name}h": {"slice": "B", "axis": "g", "at": at} for at, name in enumerate("rzn")},
    "rs": {"add": ["r", "rh"]},
    "zs": {"add": ["z", "zh"]},
    "reset": {"sigmoid": "rs"},
    "update": {"sigmoid": "zs"},
    "part": {"mul": ["reset", "nh"]},
    "sum": {"add": ["n", "part"]},
    "new": {"tanh": "sum"},
    "old": {"relabel": "H", "dims": "mn"},
    "away": {"sub": ["old", "new"]},
    "share": {"mul": ["update", "away"]},
    "h": {"add": ["new", "share"]},
}
# By name: the graph, the outputs, the tensors, which of them are constant, extents that are fixed.
BLOCKS: dict[str, tuple[dict[str, Node], list[Any], dict[str, str], str, dict[str, int]]] = {
    "swiglu": (
        {
            "A": {"einsum": ["X", "W"], "dims": "mn"},
            "B": {"einsum": ["X", "V"], "dims": "mn"},
            "G": {"silu": "A"},
            "Y": {"mul": ["G", "B"]},
        },
        ["Y"],
        {"X": "mk", "W": "nk", "V": "kn"},
        "WV",
        {"n": 51, "k": 37},
    ),
    "lines-of-tables": (  # rows that are gathered have an index of the block's rows, and may lack its columns
        {
            "x": {"gather": ["lines", "left"]},
            "P": {"einsum": ["x", "W"], "dims": "bmn"},
            "shift": {"gather": ["shifts", "left"]},
            "S": {"add": ["P", "shift"]},
            "own": {"gather": ["biases", "left"]},
            "Y": {"mul": ["S", "own"]},
        },
        ["Y"],
        {"lines": "tmk", "W": "nk", "shifts": "tm", "biases": "tmn", "left": "b"},
        "W",
        {"n": 21, "k": 13},
    ),
    "not-constant": (
        {
            "A": {"einsum": ["X", "W"], "dims": "mn"},
            "S": {"add": ["A", "R"]},
            "Y": {"mul": ["S", "scale"]},
        },
        ["S", "Y"],
        {"X": "mk", "W": "nk", "R": "mn", "scale": "m"},
        "",
        {},
    ),
    "qkv": (
        {
            "P": {"einsum": ["X", "W"], "dims": "bltn"},
            "A": {"add": ["P", "b"]},
            "Q": {"slice": "A", "axis": "t", "at": 0},
            "K": {"slice": "A", "axis": "t", "at": 1},
            "V": {"slice": "A", "axis": "t", "at": 2},
        },
        ["Q", "K", "V"],
        {"X": "blk", "W": "tnk", "b": "tn"},
        "W",
        {"t": 3, "n": 40, "k": 24},
    ),
    "lstm": (
        LSTM,
        ["h", "c"],
        {"X": "mk", "H": "mu", "C": "mn", "W": "gnk", "U": "gnu", "b": "gn"},
        "WU",
        {"g": 4, "n": 36, "k": 29, "u": 36},
    ),
    "gru": (
        GRU,
        ["h"],
        {"X": "mk", "H": "mu", "W": "gnk", "U": "gnu", "b": "gn", "d": "gn"},
        "WU",
        {"g": 3, "n": 33, "k": 18, "u": 33},
    ),
    "dense-add-layernorm": (
        {
            "P": {"einsum": ["X", "W"], "dims": "mn"},
            "B": {"add": ["P", "b"]},
            "S": {"add": ["B", "R"]},
            "Y": {"layernorm": ["S", "gamma", "beta"], "axis": "n"},
        },
        ["Y"],
        {"X": "mk", "W": "nk", "b": "n", "R": "mn", "gamma": "n", "beta": "n"},
        "W",
        {"n": 83, "k": 20},
    ),
    "softmax-of-a-product": (
        {
            "P": {"einsum": ["X", "W"], "dims": "bmn"},
            "Y": {"softmax": ["P"], "axis": "n", "scale": 0.3},
            "most": {"max": ["P"], "axis": "n"},
        },
        ["P", "Y", "most"],
        {"X": "bmk", "W": "kn"},
        "",
        {},
    ),
    "into": (  # what is known before a reduction and what is known after it, each into a table
        {
            "A": {"gather": ["T", "left"]},
            "P": {"einsum": ["A", "W"], "dims": "mn"},
            "h": {"tanh": "P"},
            "q": {"mul": ["P", 0.5]},
            "Y": {"softmax": "q", "axis": "n"},
        },
        [{"h": {"into": "H", "at": "to"}}, {"Y": {"into": "S", "at": "to"}}],
        {"T": "tk", "left": "m", "W": "nk", "H": "un", "S": "vn", "to": "m"},
        "W",
        {"n": 21, "k": 13},
    ),
    "gathered": (
        {
            "A": {"gather": ["T", "left"]},
            "B": {"gather": ["T", "right"]},
            "P": {"einsum": ["A", "W"], "dims": "mgn"},
            "Q": {"einsum": ["B", "U"], "dims": "mgn"},
            "S": {"add": ["P", "Q"]},
            "i": {"slice": "S", "axis": "g", "at": 0},
            "f": {"slice": "S", "axis": "g", "at": 1},
            "c": {"gather": ["C", "left"]},
            "fc": {"mul": ["f", "c"]},
            "h": {"add": ["i", "fc"]},
        },
        ["h"],
        {"T": "tk", "left": "m", "right": "m", "W": "gnk", "U": "gnk", "C": "tn"},
        "WU",
        {"g": 2, "n": 35, "k": 19},
    ),
    "added-gates": (  # several gates of one product become one sum, and a gate is added twice
        {
            "P": {"einsum": ["X", "W"], "dims": "mgn"},
            "Q": {"add": ["P", "b"]},
            **_gates("Q", "ijk"),
            "two": {"add": ["i", "j"]},
            "Y": {"tanh": "two"},
            "twice": {"add": ["k", "k"]},
            "Z": {"mul": ["twice", "Y"]},
        },
        ["Y", "Z"],
        {"X": "mu", "W": "gnu", "b": "gn"},
        "W",
        {"g": 3, "n": 35, "u": 19},
    ),
    "two-indices": (
        {"P": {"einsum": ["X", "W"], "dims": "abcd"}, "Y": {"relu": "P"}},
        ["Y"],
        {"X": "axbk", "W": "kcdx"},
        "W",
        {"c": 5, "d": 9, "k": 7, "x": 3},
    ),
}


def problem_of(name: str) -> ProductProblem:
    """A block; every index is dynamic whose extent is not fixed."""
    graph, outputs, tensors, constants, fixed = BLOCKS[name]
    indices = list(dict.fromkeys("".join(tensors.values())))
    free = [index for index in indices if index not in fixed]
    data = {
        "name": name,
        "op": {"block": {"version": 1, "graph": graph, "outputs": outputs}},
        "tensors": {
            tensor: {
                "dims": dims,
                "dtype": "int32" if tensor in ("left", "right", "to") else "float32",
                "constant": tensor in constants,
            }
            for tensor, dims in tensors.items()
        },
        "shape_vars": {f"V{index}": {"min": 1, "max": 200} for index in free},
        "dims": {index: f"V{index}" if index in free else fixed[index] for index in indices},
    }
    return ProductProblem.of_spec(spec_from_data(data))


def micro_kernels(problem: ProductProblem, limits: Limits) -> list[ProductKernel]:
    """The least, the widest and the tallest tile, one between, and one core."""
    all_tiles = tiles(problem, limits)
    tallest = max(all_tiles, key=lambda kernel: (kernel.rows, kernel.columns))
    widest = max(all_tiles, key=lambda kernel: (kernel.columns, kernel.rows))
    found = [all_tiles[0], tallest, widest, all_tiles[len(all_tiles) // 2]]
    return list(dict.fromkeys([*found, *neighbours(problem, tallest, limits)]))


@functools.cache
def built_block(name: str, mcpu: str) -> CompiledBlock:
    problem, target = problem_of(name), cpu_target(mcpu)
    every = micro_kernels(problem, Limits.of(target))
    return CompiledBlock(problem, few_of(every, list(BLOCKS).index(name)), target)
