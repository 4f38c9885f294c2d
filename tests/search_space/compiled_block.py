"""A block, compiled with several micro-kernels, and the arrays to call it with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from compile_cache import load_compiled
from compiled import numbered

from dietcode.measure.cpu_worker import before_call
from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.candidate import AnyMicroKernel
from dietcode.search_space.cpu.host import build_module
from dietcode.search_space.cpu.limits import Limits
from dietcode.search_space.cpu.packing import packed_shape
from dietcode.search_space.rows.reference import block_reference
from dietcode.target.cpu import CpuTarget


class CompiledBlock:
    """Micro-kernels of one block as machine code; the last argument chooses one."""

    def __init__(self, problem: BlockProblem, kernels: Sequence[AnyMicroKernel], target: CpuTarget) -> None:
        self.problem, self.limits, self.kernels = problem, Limits.of(target), list(kernels)
        tree = numbered(len(self.kernels))
        self.code = build_module(problem, self.kernels, tree, ("kernel",), self.limits)
        self.module = load_compiled(self.code, target)

    def inputs(self, extents: dict[str, int], seed: int = 0) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        return {name: self.problem.draw(name, extents, rng) for name in self.problem.inputs}

    def before(self, inputs: dict[str, Any], extents: dict[str, int]) -> list[Any]:
        return [before_call(self.problem, name, inputs, extents) for name in self.problem.outputs]

    def run(self, inputs: dict[str, Any], extents: dict[str, int], category: int = 0) -> list[Any]:
        """The outputs, which were NaN everywhere beforehand, or copies of the tables that they go to."""
        outputs = self.before(inputs, extents)
        given = inputs | {name: self.pack(name, inputs[name], extents) for name in self.problem.packed}
        self.module["run"](*(given[name] for name in self.problem.inputs), *outputs, category)
        return outputs

    def pack(self, name: str, value: Any, extents: dict[str, int]) -> Any:
        """A constant as the kernels read it."""
        layout = self.problem.packed[name]
        shape = packed_shape(self.problem, layout, extents, self.limits.lanes)
        packed = np.full([int(extent) for extent in shape], np.nan, np.float32)
        self.module[layout.function](value, packed)
        return packed

    def check(self, extents: dict[str, int], seed: int = 0) -> None:
        """Every micro-kernel is right, and all give the same bits."""
        inputs = self.inputs(extents, seed)
        right = block_reference(self.problem, inputs)
        first: Sequence[Any] = ()
        for category, kernel in enumerate(self.kernels):
            outputs = self.run(inputs, extents, category)
            for name, output in zip(self.problem.outputs, outputs, strict=True):
                error = np.abs(output - right[name]).max() / (np.abs(right[name]).max() or 1.0)
                assert error < 1e-5, (kernel.name, name, extents, error)
            first = first or outputs
            same = [np.array_equal(a, b) for a, b in zip(first, outputs, strict=True)]
            assert all(same), (kernel.name, self.kernels[0].name, extents)
