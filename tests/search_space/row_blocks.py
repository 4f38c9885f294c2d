"""Blocks of rows, compiled with several micro-kernels."""

from __future__ import annotations

import functools
import itertools
from typing import Any

from compiled import cpu_target
from compiled_block import CompiledBlock
from turns import few_of

from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.rows.micro_kernel import KEEPS, OVERLAPS, RowKernel
from dietcode.search_space.cpu.rows.space import allows, neighbours
from dietcode.search_space.rows.problem import RowProblem
from dietcode.workload.operators import CPU_ALONE
from dietcode.workload.parse import spec_from_data

Node = dict[str, Any]

# Graph, outputs, and the indices of each tensor.
BLOCKS: dict[str, tuple[dict[str, Node], list[Any], dict[str, str]]] = {
    "softmax": (
        {"Y": {"softmax": ["X", "mask"], "axis": "k", "scale": 0.3, "causal": "q"}},
        ["Y"],
        {"X": "bhqk", "mask": "bk"},
    ),
    "layernorm": (
        {"Y": {"layernorm": ["X", "gamma", "beta"], "axis": "n"}},
        ["Y"],
        {"X": "mn", "gamma": "n", "beta": "n"},
    ),
    "lengths": (  # of sentences: a softmax of what exists, and the largest of it
        {
            "S": {"hide": ["X", "long"], "axis": "k"},
            "P": {"softmax": ["S", "mask"], "axis": "k", "scale": 0.3},
            "most": {"max": "S", "axis": "k"},
        },
        ["P", "most"],
        {"X": "bhqk", "mask": "qk", "long": "bq"},
    ),
    "mean-of-images": (  # channels last: vectors lie across rows
        {
            "M": {"mean": "X", "axis": "hw"},
            "most": {"max": "X", "axis": "hw"},
            "least": {"min": "X", "axis": "hw"},
            "Y": {"sub": ["M", "shift"]},
        },
        ["Y", "most", "least"],
        {"X": "nhwc", "shift": "c"},
    ),
    "channels-first": (  # a norm and a softmax over channels, which are followed by the pixels
        {
            "S": {"add": ["X", "R"]},
            "N": {"layernorm": ["S", "gamma", "beta"], "axis": "c"},
            "Y": {"softmax": ["N", "mask"], "axis": "c", "scale": 0.5},
            "E": {"tanh": "Y"},
            "Z": {"rmsnorm": "E", "axis": "c", "eps": 1e-3},
        },
        ["Y", "Z"],
        {"X": "bchw", "R": "bchw", "gamma": "c", "beta": "c", "mask": "bchw"},
    ),
    "bags": (  # rows of a table, those of a bag added up
        {
            "rows": {"gather": ["words", "at"]},
            "weighted": {"mul": ["rows", "P"]},
            "Y": {"sum": "weighted", "axis": "l"},
        },
        ["Y"],
        {"words": "tc", "at": "bl", "P": "bl"},
    ),
    "tokens": (  # the largest of the tokens that exist, beside what no head has in common
        {"H": {"hide": ["X", "long"], "axis": "l"}, "Y": {"max": "H", "axis": "l"}},
        ["Y"],
        {"X": "bhle", "long": "be"},
    ),
    "transposed": ({"Y": {"transpose": "X", "dims": "nm"}}, ["Y"], {"X": "mn"}),
    "channels-to-last": (  # pixels are rows there; beside a tensor that is read as it lies
        {
            "T": {"transpose": "X", "dims": "nhwc"},
            "S": {"add": ["T", "R"]},
            "A": {"mul": ["S", "b"]},
            "Y": {"tanh": "A"},
        },
        ["Y", "S"],
        {"X": "nchw", "R": "nhwc", "b": "nh"},
    ),
    "turned-outside": (  # the rows that lie next to each other are not the last ones
        {
            "T": {"transpose": "X", "dims": "vbc"},
            "U": {"transpose": "Z", "dims": "vbc"},
            "Y": {"sub": ["T", "U"]},
        },
        ["Y"],
        {"X": "bcv", "Z": "cbv"},
    ),
    "heads": (  # whose vectors stay what they are, so that a norm may follow
        {"T": {"transpose": "X", "dims": "bhld"}, "Y": {"rmsnorm": ["T", "g"], "axis": "d"}},
        ["Y", "T"],
        {"X": "blhd", "g": "d"},
    ),
    "add-norm": (
        {"S": {"add": ["X", "R"]}, "Y": {"rmsnorm": ["S", "gamma"], "axis": "n", "eps": 1e-3}},
        ["S", "Y"],
        {"X": "mn", "R": "mn", "gamma": "n"},
    ),
    "costly-norm": (  # what the first pass computes is read by the last one, too
        {"E": {"tanh": "X"}, "Y": {"rmsnorm": ["E", "gamma"], "axis": "n"}},
        ["Y"],
        {"X": "mn", "gamma": "n"},
    ),
    "norm-and-sum": (  # of three passes, the last of which may read what the first and what the second keep
        {
            "S": {"add": ["X", "R"]},
            "N": {"layernorm": ["S", "gamma", "beta"], "axis": "n"},
            "Y": {"add": ["N", "S"]},
        },
        ["Y"],
        {"X": "mn", "R": "mn", "gamma": "n", "beta": "n"},
    ),
    "reductions": (
        {
            "total": {"sum": "X", "axis": "n"},
            "mean": {"mean": "X", "axis": "n"},
            "least": {"min": "X", "axis": "n"},
            "most": {"max": "X", "axis": "n"},
            "half": {"mul": ["most", 0.5]},
            "away": {"sub": ["X", "mean"]},
            "Y": {"where": ["flag", "away", "half"]},
        },
        ["total", "Y", "half", "least"],
        {"X": "mn", "flag": "m"},
    ),
    "embedding": (
        {
            "word": {"gather": ["words", "at"]},
            "S": {"add": ["word", "X"]},
            "Y": {"layernorm": ["S", "gamma"], "axis": "n"},
        },
        ["Y", "word"],
        {"words": "tn", "at": "m", "X": "mn", "gamma": "n"},
    ),
    "lookup": ({"Y": {"gather": ["words", "at"]}}, ["Y"], {"words": "tn", "at": "ab"}),
    "maxpool": (
        {"Y": {"maxpool": "X", "dims": "npqc", "window": 3, "strides": 2, "padding": 1}},
        ["Y"],
        {"X": "nhwc"},
    ),
    "avgpool": (  # with what follows, and a second window over the same tensor
        {
            "A": {
                "avgpool": "X",
                "dims": "npqc",
                "window": [3, 2],
                "strides": [1, 2],
                "padding": [2, 1, 0, 1],
                "count_include_pad": False,
            },
            "M": {
                "maxpool": "X",
                "dims": "npqc",
                "window": [2, 1],
                "strides": [1, 2],
                "padding": [1, 1, 0, 0],
            },
            "S": {"add": ["A", "shift"]},
            "Y": {"sub": ["S", "M"]},
        },
        ["Y"],
        {"X": "nhwc", "shift": "c"},
    ),
    "window-means": (
        {"Y": {"avgpool": "X", "dims": "ntc", "window": 4, "strides": 3, "padding": [1, 2]}},
        ["Y"],
        {"X": "nlc"},
    ),
    "rotary": (
        {
            "R": {"rotate": "X", "axis": "d", "by": 8, "negate": True},
            "a": {"mul": ["X", "cos"]},
            "b": {"mul": ["R", "sin"]},
            "Y": {"add": ["a", "b"]},
        },
        ["Y"],
        {"X": "bhtd", "cos": "td", "sin": "td"},
    ),
    "interleaved-rotary": (  # pairs of neighbours, and groups of four that are not negated
        {
            "R": {"rotate": "X", "axis": "d", "by": 1, "negate": True, "within": 2},
            "F": {"rotate": "X", "axis": "d", "by": 3, "within": 4},
            "a": {"mul": ["X", "cos"]},
            "b": {"mul": ["R", "sin"]},
            "c": {"add": ["a", "b"]},
            "Y": {"sub": ["c", "F"]},
        },
        ["Y"],
        {"X": "bhtd", "cos": "td", "sin": "td"},
    ),
    "groups-of-channels": (  # gamma and beta of each channel, one of the indices of a norm
        {"Y": {"layernorm": ["X", "gamma", "beta"], "axis": "chw"}},
        ["Y"],
        {"X": "bgchw", "gamma": "gc", "beta": "gc"},
    ),
    "parts-of-columns": (  # the first indices of them, the last ones, one between; with rows and without
        {
            "N": {"rmsnorm": "X", "axis": "uvw"},
            "more": {"add": ["line", 1]},
            "a": {"mul": ["N", "more"]},
            "b": {"add": ["a", "pixel"]},
            "Y": {"sub": ["b", "one"]},
        },
        ["Y"],
        {"X": "muvw", "line": "mv", "pixel": "vw", "one": "u"},
    ),
    "parts-across": (
        {
            "N": {"layernorm": ["X", "gamma"], "axis": "hw"},
            "a": {"mul": ["N", "line"]},
            "Y": {"add": ["a", "one"]},
        },
        ["Y"],
        {"X": "nhwc", "gamma": "hc", "line": "w", "one": "nh"},
    ),
    "part-rotary": (  # groups that no vector holds, and columns past the last one, which stay
        {
            "R": {"rotate": "X", "axis": "d", "by": 9, "negate": True, "within": 18},
            "F": {"rotate": "X", "axis": "d", "by": 2, "within": 3},
            "a": {"mul": ["X", "cos"]},
            "b": {"mul": ["R", "sin"]},
            "c": {"add": ["a", "b"]},
            "Y": {"sub": ["c", "F"]},
        },
        ["Y"],
        {"X": "bhtd", "cos": "td", "sin": "td"},
    ),
    "normed-rotary": (  # of a norm of what is in another order, and of a gathered row beside functions of it
        {
            "T": {"transpose": "X", "dims": "bhtd"},
            "N": {"rmsnorm": ["T", "g"], "axis": "d"},
            "R": {"rotate": "N", "axis": "d", "by": 16, "negate": True, "within": 32},
            "a": {"mul": ["N", "cos"]},
            "b": {"mul": ["R", "sin"]},
            "Y": {"add": ["a", "b"]},
            "word": {"gather": ["words", "at"]},
            "E": {"tanh": "word"},
            "F": {"rotate": "E", "axis": "d", "by": 5, "negate": True},
            "Z": {"sub": ["Y", "F"]},
        },
        ["Y", "Z"],
        {"X": "bthd", "g": "d", "cos": "td", "sin": "td", "words": "vd", "at": "bt"},
    ),
    "shifted": ({"Y": {"rotate": "X", "axis": "n", "by": 5}}, ["Y"], {"X": "mn"}),
    "shifted-norm": (
        {"R": {"rotate": "X", "axis": "n", "by": 16, "negate": True}, "Y": {"layernorm": "R", "axis": "n"}},
        ["Y"],
        {"X": "mn"},
    ),
    "into-rows": (  # of a table that rows are gathered from, and a norm that reads what is written
        {
            "old": {"gather": ["states", "at"]},
            "S": {"add": ["old", "X"]},
            "E": {"tanh": "S"},
            "Y": {"layernorm": ["E", "gamma"], "axis": "n"},
        },
        [{"E": {"into": "states", "at": "to"}}, "Y"],
        {"states": "tn", "at": "m", "to": "m", "X": "mn", "gamma": "n"},
    ),
    "into-two": (
        {"a": {"mul": ["X", 2]}, "b": {"softmax": "X", "axis": "n"}},
        [{"a": {"into": "A", "at": "to"}}, {"b": {"into": "B", "at": "to"}}],
        {"A": "un", "B": "tn", "to": "bm", "X": "bmn"},
    ),
    "broadcast": (
        {
            "a": {"mul": ["X", "K"]},
            "b": {"sub": ["a", "Q"]},
            "c": {"maximum": ["b", "B"]},
            "Y": {"minimum": ["c", 0.75]},
        },
        ["Y"],
        {"X": "bhqk", "K": "hk", "Q": "bq", "B": "k"},
    ),
    "several": (  # a norm of weights of a softmax over two indices: six passes, two values kept
        {
            "P": {"softmax": "X", "axis": "uv"},
            "E": {"tanh": "P"},
            "N": {"layernorm": "E", "axis": "uv"},
            "Y": {"mul": ["N", "P"]},
        },
        ["Y"],
        {"X": "muv"},
    ),
    "functions": (
        {
            **{
                name: {name: "X"}
                for name in ("neg", "abs", "square", "exp", "tanh", "sigmoid", "relu", "silu")
            },
            "root": {"sqrt": "abs"},
            **{name: {name: "X"} for name in ("sin", "cos", "floor", "ceil", "round")},
            "log": {"log": "abs"},
            "inverse": {"rsqrt": "abs"},
            "gelu": {"gelu": "X"},
            "approximately": {"gelu": "X", "form": "tanh"},
            "clipped": {"clip": "X", "low": -1.5, "high": 2},
            "above": {"clip": "X", "low": 0.5},
            "smaller": {"less": ["X", "Z"]},
            "quotient": {"div": ["X", "Z"]},
            "larger": {"maximum": ["X", "Z"]},
            "lower": {"minimum": ["X", "Z"]},
            "chosen": {"where": ["smaller", "X", 3]},
            "not_above": {"less_equal": ["X", "Z"]},
            "kept": {"where": ["not_above", "Z", "chosen"]},
        },
        [
            *("neg", "abs", "square", "exp", "tanh", "sigmoid", "relu", "silu", "root", "inverse", "gelu"),
            *("sin", "cos", "floor", "ceil", "round", "log"),
            *("approximately", "clipped", "above", "quotient", "larger", "lower", "chosen", "kept"),
        ],
        {"X": "mn", "Z": "mn"},
    ),
    "apart": (  # halves of a layer's result, one weight of several, and a number for each row
        {
            "a": {"slice": "X", "axis": "g", "at": 1},
            "b": {"slice": "X", "axis": "g", "at": 0},
            "w": {"slice": "W", "axis": "g", "at": 1},
            "e": {"slice": "E", "axis": "g", "at": 0},
            "N": {"rmsnorm": ["a", "w"], "axis": "n"},
            "S": {"silu": "b"},
            "T": {"mul": ["N", "S"]},
            "Y": {"add": ["T", "e"]},
        },
        ["Y"],
        {"X": "mgn", "W": "gn", "E": "mg"},
    ),
    "apart-across": (  # half of the channels of images, and a weight of a part of the columns
        {
            "a": {"slice": "X", "axis": "g", "at": 1},
            "w": {"slice": "W", "axis": "g", "at": 0},
            "Y": {"layernorm": ["a", "w"], "axis": "cd"},
        },
        ["Y"],
        {"X": "bgcdh", "W": "gc"},
    ),
    "labels": (  # rows of tables without columns, with a part of them, and with an index of the rows
        {
            "shift": {"gather": ["shifts", "at"]},
            "scale": {"gather": ["scales", "at"]},
            "line": {"gather": ["lines", "at"]},
            "A": {"add": ["X", "shift"]},
            "B": {"mul": ["A", "scale"]},
            "C": {"sub": ["B", "line"]},
            "Y": {"softmax": "C", "axis": "uv"},
        },
        ["Y", "C"],
        {"X": "bmuv", "shifts": "tm", "scales": "tu", "lines": "tmuv", "at": "b"},
    ),
    "narrow-rotary": (  # a row lies in one vector of any unit
        {"R": {"rotate": "X", "axis": "d", "by": 4, "negate": True}, "Y": {"add": ["X", "R"]}},
        ["Y"],
        {"X": "bhtd"},
    ),
}


INTEGERS = ("at", "to", "long")

# Extents of indices that have to be fixed.
FIXED = {
    "into-two": {"b": 2},
    "rotary": {"d": 16},
    "narrow-rotary": {"d": 8},
    "interleaved-rotary": {"d": 44},
    "groups-of-channels": {"g": 3},
    "part-rotary": {"d": 44},
    "normed-rotary": {"d": 44},
    "apart": {"g": 2},
    "labels": {"u": 3},
    "apart-across": {"g": 2},
    "shifted": {"n": 37},
    "shifted-norm": {"n": 80},
}


def complete(problem: RowProblem, extents: dict[str, int]) -> dict[str, int]:
    """With axes that are long enough for one window at least, and the positions of all windows."""
    found = dict(extents) | {k: size for k, size in problem.extents.items() if size is not None}
    every = [one for axes in problem.pools.values() for one in axes]
    for one in every:
        found[one.axis] = max(found[one.axis], one.window - one.padding - one.padding_after)
    for one in every:
        room = found[one.axis] + one.padding + one.padding_after - one.window
        found[one.output] = room // one.stride + 1
    return found


def problem_of(name: str, fixed: dict[str, int] | None = None) -> RowProblem:
    """A block; every index is dynamic that neither `fixed` nor `FIXED` gives."""
    graph, outputs, tensors = BLOCKS[name]
    fixed = FIXED.get(name, {}) | (fixed or {})
    indices = list(dict.fromkeys("".join(tensors.values())))
    free = [index for index in indices if index not in fixed] or indices[:1]
    data = {
        "name": name,
        "op": {"block": {"version": 1, "graph": graph, "outputs": outputs}},
        "tensors": {
            tensor: {"dims": dims, "dtype": "int32" if tensor in INTEGERS else "float32"}
            for tensor, dims in tensors.items()
        },
        "shape_vars": {f"V{index}": {"min": 1, "max": 200} for index in free[:4]},
        "dims": {index: f"V{index}" if index in free else fixed[index] for index in indices},
    }
    return RowProblem.of_spec(spec_from_data(data))


@functools.cache
def on_gpus() -> list[str]:
    """Names of the blocks that GPUs have code for."""
    found = {name: problem_of(name) for name in BLOCKS}
    return [
        name
        for name, problem in found.items()
        if not problem.inner and not CPU_ALONE & {node.operator for node in problem.nodes.values()}
    ]


def micro_kernels(problem: RowProblem, limits: Limits) -> list[RowKernel]:
    """One of each kind: rows at once, steps, what is kept, one core."""
    sizes = [(1, 4), (3, 4), (1, 8), (1, 1), (3, 2)]
    plain = [RowKernel(rows, vectors * limits.lanes) for rows, vectors in sizes]
    if problem.turned:
        plain = [RowKernel(limits.lanes, vectors * limits.lanes) for vectors in (1, 2, 4)]
    if problem.inner:
        plain = [RowKernel(vectors * limits.lanes, columns) for vectors, columns in ((1, 4), (3, 4), (1, 8))]
    else:
        plain += overlapping(limits.lanes)
    found = [kernel for kernel in plain if allows(problem, kernel, limits)]
    return list(dict.fromkeys([*found, *neighbours(problem, found[0], limits)]))


@functools.cache
def built_block(name: str, mcpu: str, fixed: tuple[tuple[str, int], ...] = ()) -> CompiledBlock:
    problem, target = problem_of(name, dict(fixed)), cpu_target(mcpu)
    every = micro_kernels(problem, Limits.of(target))
    return CompiledBlock(problem, few_of(every, list(BLOCKS).index(name)), target)


def overlapping(lanes: int) -> list[RowKernel]:
    """Every order of two groups, with all that may be kept between them."""
    axes = itertools.product((1, 3), KEEPS, OVERLAPS[1:])
    return [RowKernel(rows, 4 * lanes, keep, overlap=overlap) for rows, keep, overlap in axes]


OVERLAPPING = ("softmax", "lengths", "embedding", "add-norm", "costly-norm", "norm-and-sum")
"""Of three passes, with positions in a table; others, whose last pass may read what the first one keeps."""


@functools.cache
def built_overlapping(name: str, mcpu: str) -> CompiledBlock:
    """A block whose rows overlap, after a micro-kernel of which they do not."""
    problem, target = problem_of(name), cpu_target(mcpu)
    limits = Limits.of(target)
    found = [RowKernel(1, 4 * limits.lanes)]
    found += overlapping(limits.lanes)
    return CompiledBlock(problem, [kernel for kernel in found if allows(problem, kernel, limits)], target)
