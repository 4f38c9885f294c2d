"""Depthwise convolutions, compiled with several micro-kernels, and the arrays to call them with."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from typing import Any

import numpy as np
from compile_cache import load_compiled
from compiled import cpu_target, numbered
from turns import few_of

from dietcode.measure.cpu_worker import layouts
from dietcode.search_space.cpu.depthwise.micro_kernel import DepthwiseKernel
from dietcode.search_space.cpu.depthwise.space import allows
from dietcode.search_space.cpu.host import build_module
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.depthwise import DepthwiseProblem, depthwise_from_spec
from dietcode.search_space.reference import reference
from dietcode.workload.dtypes import UNIT_ROUNDOFF, nan_filled, widened
from dietcode.workload.parse import spec_from_data

KERNEL_DIMS = {"OIHW": "oirs", "OHWI": "orsi", "HWIO": "rsio", "OIW": "ois"}
# Options of conv2d, or of conv1d where the kernel's layout is one of its own; channels, window, epilogue,
# whether the kernel is constant, dtype of the output.
DEPTHWISE: dict[str, tuple[dict[str, Any], int, tuple[int, int], list[Any], bool, str]] = {
    "plain": ({"padding": 1}, 64, (3, 3), [], True, "float32"),
    "ragged": ({"padding": 1}, 41, (3, 3), ["bias", {"residual": "R"}, "relu"], True, "float32"),
    "few channels": ({"padding": [0, 2], "strides": [2, 1]}, 3, (2, 3), ["silu"], True, "float32"),
    "strided": ({"padding": 1, "strides": 2}, 70, (3, 3), ["bias", {"gelu": "erf"}], True, "float16"),
    "dilated": ({"padding": [3, 0], "dilation": [2, 3]}, 33, (3, 2), ["hardswish"], True, "bfloat16"),
    "tall": ({"padding": [3, 0]}, 48, (7, 1), ["bias", {"clip": [0, 6]}], True, "float32"),
    "large": ({"padding": 4}, 20, (9, 8), [], True, "float32"),
    "one element": ({}, 37, (1, 1), ["bias"], True, "float32"),
    "far out": ({"padding": 5, "strides": [1, 3]}, 16, (2, 2), [], True, "float32"),
    "given OIHW": ({"padding": 1}, 40, (3, 3), ["bias"], False, "float32"),
    "given HWIO": ({"padding": 1, "kernel_layout": "HWIO"}, 21, (3, 3), [], False, "float32"),
    "uneven": ({"padding": [0, 2, 3, 1], "strides": [1, 2]}, 19, (3, 4), ["relu"], True, "float32"),
    "line": ({"padding": [4, 0], "kernel_layout": "OIW"}, 36, (1, 5), ["bias"], True, "float32"),
    "short line": ({"stride": 2, "kernel_layout": "OIW"}, 17, (1, 3), ["silu"], False, "float32"),
    "packed OHWI": ({"padding": 1, "kernel_layout": "OHWI"}, 35, (3, 2), [], True, "float32"),
}
# Each like another one here but for a layout or how far a window lies out: `make test-long` tries these too.
TWINS = {"given OIHW", "packed OHWI", "far out"}
TRIED = [name for name in DEPTHWISE if os.environ.get("DIETCODE_TEST_LONG") or name not in TWINS]
TILES = ((3, 1), (4, 2))


def depthwise_data(name: str) -> dict[str, Any]:
    """The spec of one, as plain data."""
    options, channels, window, epilogue, constant, dtype = DEPTHWISE[name]
    layout = options.get("kernel_layout", "OIHW")
    kind, data = ("conv2d", "nhwc") if "H" in layout else ("conv1d", "nwc")
    sizes = {"n": "N", "h": "H", "w": "W", "c": channels}
    sizes |= {"o": channels, "i": 1, "r": window[0], "s": window[1]}
    used = {index: size for index, size in sizes.items() if index in data + KERNEL_DIMS[layout]}
    variables = {"N": {"min": 1, "max": 4}, "H": {"min": 9, "max": 64}, "W": {"min": 9, "max": 64}}
    return {
        "name": "depthwise",
        "op": {kind: {"groups": channels, **options}, "epilogue": epilogue},
        "tensors": {
            "X": {"dims": data, "dtype": "float32"},
            "F": {"dims": KERNEL_DIMS[layout], "dtype": "float32", "constant": constant},
        },
        "output": {"name": "Y", "dtype": dtype},
        "shape_vars": {name: one for name, one in variables.items() if name in used.values()},
        "dims": used,
    }


def depthwise_problem(name: str) -> DepthwiseProblem:
    problem = depthwise_from_spec(spec_from_data(depthwise_data(name)))
    assert isinstance(problem, DepthwiseProblem), name
    return problem


def micro_kernels(problem: DepthwiseProblem, limits: Limits) -> list[DepthwiseKernel]:
    """Tiles of every kind, then some of other axes."""
    plain = [DepthwiseKernel(rows, vectors * limits.lanes) for rows, vectors in TILES]
    found = [kernel for kernel in plain if allows(problem, kernel, limits)]
    others = [replace(found[-1], strips=True, stream=True), replace(found[0], rows=1, serial=True)]
    return found + [kernel for kernel in others if allows(problem, kernel, limits)]


class CompiledDepthwise:
    """Micro-kernels of one convolution as machine code; the last argument chooses one."""

    def __init__(self, problem: DepthwiseProblem, mcpu: str, num_cores: int = 2, case: int = 0) -> None:
        target = cpu_target(mcpu, num_cores)
        self.problem, self.limits = problem, Limits.of(target)
        self.kernels = few_of(micro_kernels(problem, self.limits), case)
        tree = numbered(len(self.kernels))
        self.code = build_module(problem, self.kernels, tree, ("kernel",), self.limits)
        self.module = load_compiled(self.code, target)

    def extents(self, images: int, high: int, wide: int) -> dict[str, int]:
        """Extents of every index, positions of the output among them."""
        known = {k: v for k, v in self.problem.extents.items() if v is not None}
        sizes = {"n": images, "h": high, "w": wide} | known
        sizes = {index: size for index, size in sizes.items() if index in self.problem.extents}
        for window in self.problem.windows:
            sizes[window.output] = window.num_positions(sizes[window.axis], sizes[window.kernel])
        return sizes

    def inputs(self, extents: dict[str, int], seed: int = 0) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        return {
            name: rng.standard_normal(self.problem.shape(name, extents), dtype=np.float32)
            for name in self.problem.inputs
        }

    def arguments(self, inputs: dict[str, Any], extents: dict[str, int]) -> list[Any]:
        """The inputs, the kernel packed where it is constant."""
        given = dict(inputs)
        operand = self.problem.column_operand
        if self.problem.column_operand_constant:
            shapes = dict(layouts(self.problem, extents, self.limits.lanes))
            given[operand] = np.full(shapes[operand], np.nan, np.float32)
            self.module["pack"](inputs[operand], given[operand])
        return [given[name] for name in self.problem.arguments]

    def empty(self, extents: dict[str, int]) -> Any:
        return nan_filled(self.problem.shape(self.problem.output, extents), self.problem.output_dtype)

    def run(self, inputs: dict[str, Any], extents: dict[str, int], category: int = 0) -> Any:
        """The output, which was NaN everywhere beforehand."""
        output = self.empty(extents)
        self.module["run"](*self.arguments(inputs, extents), output, category)
        return output

    def check(self, extents: dict[str, int], seed: int = 0) -> None:
        """Every micro-kernel is right, and all give the same bits."""
        inputs, dtype = self.inputs(extents, seed), self.problem.output_dtype
        right, first = reference(self.problem, inputs), None
        for category, kernel in enumerate(self.kernels):
            output = self.run(inputs, extents, category)
            error = np.abs(widened(output, dtype) - right).max() / (np.abs(right).max() or 1.0)
            assert error < 1e-5 + UNIT_ROUNDOFF[dtype], (kernel.name, extents, error)
            first = output if first is None else first
            assert np.array_equal(first, output), (kernel.name, self.kernels[0].name, extents)


@functools.cache
def built_depthwise(name: str, mcpu: str, num_cores: int = 2) -> CompiledDepthwise:
    return CompiledDepthwise(depthwise_problem(name), mcpu, num_cores, list(DEPTHWISE).index(name))
