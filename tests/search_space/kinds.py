"""Kinds of problems that code is generated for, each with micro-kernels of all axes in one module."""

from __future__ import annotations

import dataclasses
import functools
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from compiled import Compiled, cpu_target, make_problem, numbered
from turns import TARGETS

from dietcode.search_space.access import can_window
from dietcode.search_space.cpu.axes import allows
from dietcode.search_space.cpu.limits import Limits, MicroKernel
from dietcode.search_space.problem import Problem, problem_from_spec
from dietcode.search_space.stage import Stage
from dietcode.search_space.tails import TAILS
from dietcode.workload.parse import spec_from_data

# How many of each kind and vector unit, and what they are drawn by: compiling them is what takes the time.
KERNELS, SALT = (3, 0) if os.environ.get("DIETCODE_TEST_LONG") else (2, 2)
BIAS, RESIDUAL, RELU = Stage("bias", tensor="bias"), Stage("residual", tensor="R"), Stage("relu")
SCALE, GELU, SILU = Stage("scale", value=-1.5), Stage("gelu-erf"), Stage("silu")


@dataclass(frozen=True)
class Kind:
    """A problem.

    Attributes
    ----------
    largest : dict of str to int
        Of letters that should stay smaller than others.
    """

    problem: Problem
    largest: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def free(self) -> tuple[str, ...]:
        """Letters whose extents a caller chooses."""
        outputs = {window.output for window in self.problem.windows}
        return tuple(letter for letter in self.problem.dynamic if letter not in outputs)

    def complete(self, chosen: Mapping[str, int]) -> dict[str, int]:
        """All extents; an axis is made long enough for one window at least."""
        extents = {k: size for k, size in self.problem.extents.items() if size is not None} | dict(chosen)
        for window in self.problem.windows:
            least = window.dilation * (extents[window.kernel] - 1) + 1 - window.padding - window.end
            extents[window.axis] = max(extents[window.axis], least)
            extents[window.output] = window.num_positions(extents[window.axis], extents[window.kernel])
        return {letter: extents[letter] for letter in self.problem.extents}


def _einsum(
    einsum: str, *stages: Stage, constant: bool = False, dtype: str = "float32", **fixed: int
) -> Kind:
    problem = make_problem(einsum, fixed, stages, constant)
    few = {letter: 5 for letter in "abcgj" if letter in problem.extents}
    return Kind(dataclasses.replace(problem, output_dtype=dtype), few)


def _conv(
    options: dict[str, Any],
    sizes: dict[str, int],
    *stages: Any,
    dynamic: str = "nhwpq",
    dtype: str = "float32",
) -> Kind:
    usual = {"n": 1, "h": 9, "w": 9, "c": 3, "o": 5, "r": 3, "s": 3} | sizes
    grouped = options.get("groups", 1) > 1
    spec = spec_from_data(
        {
            "name": "conv",
            "op": {"conv2d": options, "epilogue": list(stages)},
            "tensors": {
                "X": {"dims": options.get("data_layout", "NHWC").lower(), "dtype": "float32"},
                "W": {"dims": "oirs" if grouped else "ocrs", "dtype": "float32", "constant": True},
            },
            "output": {"name": "Y", "dtype": dtype},
            "shape_vars": {"T": {"min": 1, "max": 4}},
            "dims": usual | {"n": "T"},
        }
    )
    problem = problem_from_spec(spec)
    extents = {k: None if k in dynamic else size for k, size in problem.extents.items()}
    # What is packed ahead has no extents that only the column operand tells.
    constant = problem.column_operand_constant and not {"r", "s"} & set(dynamic)
    problem = dataclasses.replace(problem, extents=extents, column_operand_constant=constant)
    return Kind(problem, {"n": 3, "h": 13, "w": 19, "r": 4, "s": 4})


def _conv1d(options: dict[str, Any], sizes: dict[str, int], *stages: Any) -> Kind:
    grouped = options.get("groups", 1) > 1
    spec = spec_from_data(
        {
            "name": "conv",
            "op": {"conv1d": options, "epilogue": list(stages)},
            "tensors": {
                "X": {"dims": options.get("data_layout", "NWC").lower(), "dtype": "float32"},
                "W": {"dims": "ois" if grouped else "ocs", "dtype": "float32", "constant": True},
            },
            "shape_vars": {"T": {"min": 1, "max": 4}, "L": {"min": 4, "max": 40}},
            "dims": {"n": "T", "w": "L", "c": 3, "o": 5, "s": 3} | sizes,
        }
    )
    return Kind(problem_from_spec(spec), {"n": 3, "w": 40})


KINDS: dict[str, Kind] = {
    "NT packed": _einsum("mk,nk->mn", SCALE, BIAS, RELU, RESIDUAL, constant=True),
    "NN packed": _einsum("mk,kn->mn", BIAS, GELU, constant=True, k=1),
    "TN packed": _einsum("km,kn->mn", RESIDUAL, constant=True, n=37),
    "TT packed": _einsum("km,nk->mn", BIAS, constant=True, dtype="bfloat16"),
    "NT": _einsum("mk,nk->mn", BIAS, RESIDUAL),
    "NN": _einsum("mk,kn->mn", BIAS, RESIDUAL, GELU),
    "NN float16": _einsum("mk,kn->mn", BIAS, RESIDUAL, dtype="float16"),
    "TN": _einsum("km,kn->mn", SILU),
    "TT": _einsum("km,nk->mn", RESIDUAL, BIAS),
    "NT fixed": _einsum("mk,nk->mn", BIAS, m=7, n=40, k=19),
    "NN fixed": _einsum("mk,kn->mn", n=19, k=1),
    "batched NT": _einsum("bmk,bnk->bmn", RESIDUAL),
    "batched NN": _einsum("bmk,bkn->bmn", BIAS, dtype="bfloat16"),
    "batched TN": _einsum("bkm,bkn->bmn"),
    "batched packed": _einsum("bmk,bnk->bmn", BIAS, constant=True),
    "rows of a batch": _einsum("bmk,kn->bmn", RESIDUAL),
    "shared rows": _einsum("mk,bnk->bmn", BIAS),
    "shared heads": _einsum("bgmk,bnk->bgmn"),
    "batch outside": _einsum("bmk,bkn->mbn", BIAS),
    "transposed output": _einsum("mk,nk->nm", BIAS),
    "interleaved": _einsum("amk,bkn->mbna", BIAS),
    "two reductions": _einsum("mjk,nkj->mn", RESIDUAL, Stage("sigmoid")),
    "summed letter": _einsum("mkj,nk->mn"),
    "matrix vector": _einsum("mk,k->m"),
    "vector matrix": _einsum("k,kn->n", BIAS, Stage("tanh")),
    "outer product": _einsum("m,n->mn"),
    "dot products": _einsum("bk,bk->b"),
    "NHWC": _conv({"padding": 1}, {}, "bias", "relu", {"residual": "R"}),
    "NHWC strided groups": _conv(
        {"strides": [2, 1], "padding": [1, 2], "groups": 2}, {"c": 6, "i": 3, "o": 10}, "bias"
    ),
    "NHWC dilated": _conv({"padding": [2, 3], "dilation": [2, 3]}, {"s": 2, "c": 1}, "silu", dtype="float16"),
    "NHWC depthwise": _conv({"padding": 1, "groups": 3}, {"i": 1, "o": 3}),
    "NHWC any": _conv({"padding": 1, "strides": 2}, {}, dynamic="nhwpqcors"),
    "NHWC 1x1": _conv({}, {"r": 1, "s": 1, "o": 33}, "bias", {"clip": [0, 6]}),
    "NCHW": _conv({"padding": 1, "data_layout": "NCHW"}, {}, "bias", "relu", {"residual": "R"}),
    "NCHW strided groups": _conv(
        {"strides": [1, 2], "padding": [2, 1], "groups": 2, "data_layout": "NCHW"},
        {"c": 6, "i": 3, "o": 10},
        "bias",
    ),
    "NCHW dilated": _conv(
        {"padding": [2, 3], "dilation": [2, 3], "data_layout": "NCHW"}, {"r": 2}, {"gelu": "erf"}
    ),
    "NCHW depthwise": _conv({"padding": 1, "groups": 3, "data_layout": "NCHW"}, {"i": 1, "o": 3}),
    "NCHW any": _conv({"padding": 2, "data_layout": "NCHW"}, {}, "hardsigmoid", dynamic="nhwpqcors"),
    "NCHW 1x1": _conv({"data_layout": "NCHW"}, {"r": 1, "s": 1}, {"residual": "R"}),
    "NHWC uneven": _conv({"padding": [0, 1, 2, 1], "strides": [1, 2]}, {}, "bias"),
    "NCHW uneven": _conv({"padding": [2, 0, 0, 3], "data_layout": "NCHW"}, {}, "bias"),
    "NWC": _conv1d({"padding": [2, 0], "stride": 2}, {"c": 6}, "bias", {"residual": "R"}),
    "NCW groups": _conv1d(
        {"padding": [0, 1], "groups": 3, "data_layout": "NCW"}, {"c": 6, "i": 2, "o": 9}, "bias", "hardswish"
    ),
}

# Each like another one here but for a layout or the order of indices: `make test-long` tries these too.
TWINS = {
    "TN",
    "TN packed",
    "TT",
    "NN",
    "NT fixed",
    "batched TN",
    "batched NT",
    "batched packed",
    "shared rows",
    "rows of a batch",
    "transposed output",
    "batch outside",
    "summed letter",
    "vector matrix",
    "dot products",
    "NCHW",
    "NCHW strided groups",
    "NCHW dilated",
    "NCHW 1x1",
    "NHWC depthwise",
    "NHWC any",
    "NHWC uneven",
    "NCHW uneven",
}
TRIED = [name for name in KINDS if os.environ.get("DIETCODE_TEST_LONG") or name not in TWINS]


def every_kind(turn: int) -> list[Any]:
    """Names of all kinds as cases: of two tests, each with its turn, one tries a kind in `make test`."""
    twice = [name for name in KINDS if name not in TWINS][turn::2]
    return [name if name in twice else pytest.param(name, marks=pytest.mark.long) for name in KINDS]


def micro_kernels(name: str, limits: Limits) -> list[MicroKernel]:
    """Some that the problem allows, with all four tails on two vector units; the same ones every time."""
    problem, rng = KINDS[name].problem, random.Random(f"{SALT} {name} {limits.lanes}")
    first = list(KINDS).index(name) + limits.lanes // 8
    widths = [limits.lanes * n for n in (1, 2, 3)] + [limits.lanes // 2, limits.lanes // 4]
    found: list[MicroKernel] = []
    while len(found) < KERNELS:
        drawn = MicroKernel(
            rng.choice([1, 2, 3, 5, 6]),
            rng.choice(widths),
            TAILS[(first + len(found)) % len(TAILS)],
            rng.choice([0, 0, 1, 3, 8]),
            rng.random() < 0.5,
            rng.random() < 0.5,
        )
        if rng.random() < 0.5 and drawn.tails != "global" and can_window(problem):
            drawn = dataclasses.replace(drawn, k_tile=0, gather=False, window=True)
        if allows(problem, drawn, limits) and drawn not in found:
            found.append(drawn)
    return found


@functools.cache
def built(name: str, mcpu: str) -> Compiled:
    """For 1, 2 or 3 cores; argument ``kernel`` chooses the micro-kernel."""
    number = list(KINDS).index(name)
    target = cpu_target(mcpu, 1 + (number + TARGETS.index(mcpu)) % 3)
    kernels: Sequence[MicroKernel] = micro_kernels(name, Limits.of(target))
    return Compiled(KINDS[name].problem, kernels, target, numbered(KERNELS), ("kernel",))
