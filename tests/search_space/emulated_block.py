"""Micro-kernels of blocks on an emulated GPU, against float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from emulation import compiled, launch

from dietcode.measure.cpu_worker import before_call
from dietcode.search_space.block_problem import BlockProblem
from dietcode.search_space.cuda.forms import device_problem
from dietcode.search_space.cuda.limits import CudaLimits
from dietcode.search_space.cuda.micro_kernel import CudaMicroKernel
from dietcode.search_space.cuda.source import cuda_text
from dietcode.search_space.rows.reference import block_reference
from dietcode.target.cuda import CudaTarget
from dietcode.workload.dtypes import INDEX_DTYPE, UNIT_ROUNDOFF, rounded, widened

TARGET = CudaTarget("sm_90")
LIMITS = CudaLimits.of(TARGET)


class EmulatedBlock:
    """Micro-kernels of one block, run on the CPU."""

    def __init__(self, problem: BlockProblem, tiles: Sequence[CudaMicroKernel]) -> None:
        self.problem = device_problem(problem)
        self.tiles = [tile for tile in tiles if LIMITS.holds(self.problem, tile)]
        assert self.tiles, "no micro-kernel of the test computes this block"
        self.library = compiled(cuda_text(self.problem, self.tiles, TARGET))

    @classmethod
    def of_text(cls, problem: BlockProblem, tiles: Sequence[CudaMicroKernel], text: str) -> EmulatedBlock:
        """Some micro-kernels whose text was changed."""
        own = cls.__new__(cls)
        own.problem, own.tiles, own.library = device_problem(problem), list(tiles), compiled(text)
        return own

    def draw(self, extents: dict[str, int], seed: int = 0) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        drawn = {name: self.problem.draw(name, extents, rng) for name in self.problem.inputs}
        dtypes = {name: self.problem.dtype(name) for name in drawn}
        return {n: v if dtypes[n] == INDEX_DTYPE else rounded(v, dtypes[n]) for n, v in drawn.items()}

    def run(
        self, tile: CudaMicroKernel, inputs: dict[str, Any], extents: dict[str, int], order: int = 0
    ) -> list[Any]:
        outputs = {name: before_call(self.problem, name, inputs, extents) for name in self.problem.outputs}
        found = launch(self.problem, self.library, tile, inputs, outputs, extents, order)
        return [found[name] for name in self.problem.outputs]

    def check(self, extents: dict[str, int], inputs: dict[str, Any] | None = None, order: int = 0) -> None:
        """Every micro-kernel is right."""
        inputs = self.draw(extents) if inputs is None else inputs
        right = block_reference(self.problem, inputs)
        for tile in self.tiles:
            for name, output in zip(
                self.problem.outputs, self.run(tile, inputs, extents, order), strict=True
            ):
                dtype = self.problem.dtype(name)
                error = np.abs(widened(output, dtype) - right[name]).max() / (
                    np.abs(right[name]).max() or 1.0
                )
                assert error < 1e-5 + UNIT_ROUNDOFF[dtype], (tile.name, name, extents, error)


def extents_of(problem: BlockProblem, *sizes: int) -> dict[str, int]:
    """The free extents in turns of these sizes."""
    free = [index for index in problem.extents if problem.extents[index] is None]
    found = {index: size for index, size in problem.extents.items() if size is not None}
    return found | {index: sizes[number % len(sizes)] for number, index in enumerate(free)}
